"""The kinds of the experiment families: how each is asked for, what keeps their
parameters alike, and how many numbers each carries from token to token."""

from __future__ import annotations

from experiments.core import JsonDict
from experiments.recall_runs import PAIRING

# Linear attention of 2020; a fixed decay; decays by the token; the delta rule with
# them; softmax; and Gated DeltaNet whose last layer is softmax.
KINDS = ("linear", "retnet", "mamba2", "gla", "gdn", "kda", "rwkv7", "softmax", "hybrid")
# These kinds carry a state of fixed size and nothing else.
RECURRENT = KINDS[:7]
_RECURRENT_OF_HYBRID = "gdn"
_CONVOLVED = ("mamba2", "gdn", "kda")
_CONVOLUTION = 4  # tokens
# The rank of GLA's gates in Yang et al. 2023, section 5; all kinds with such a rank take it.
_RANK = 16
_RANKED = ("gla", "kda", "rwkv7")
# Position encodings of the kinds whose state does not tell the order of tokens. Recall has none.
_POSITIONS = {"linear": "rotary", "retnet": "rotary", "softmax": "rotary", "hybrid": "rotary"}

_D_MODEL = {"quick": 32, "cpu": 64, "full": 256}
_D_KEY = {"quick": 16, "cpu": 32, "full": 64}  # of copy, text and DNA
_LAYERS = {
    "quick": {"recall": 1, "copy": 1, "text": 2, "dna": 2},
    "cpu": {"recall": 1, "copy": 2, "text": 4, "dna": 4},
    "full": {"recall": 1, "copy": 2, "text": 8, "dna": 8},
}
# Hidden rows of the feed-forward part, which make up for what a mixer has more or less
# than Gated DeltaNet's. A test counts the parameters that come of them.
_D_FF = {
    "quick": {
        "recall": (71, 67, 64, 61, 64, 59, 49, 71, 28),
        "copy": (79, 69, 63, 58, 64, 54, 33, 79, 10),
        "text": (79, 69, 63, 58, 64, 54, 33, 79, 71),
    },
    "cpu": {
        "recall": (141, 131, 128, 125, 128, 128, 118, 141, 56),
        "copy": (154, 133, 127, 122, 128, 128, 108, 154, 141),
        "text": (154, 133, 127, 122, 128, 128, 108, 154, 134),
    },
    "full": {
        "recall": (557, 515, 512, 510, 512, 545, 535, 557, 227),
        "copy": (603, 519, 512, 508, 512, 577, 557, 603, 557),
        "text": (603, 519, 512, 508, 512, 577, 557, 603, 523),
    },
}


def layers(size: str, task: str, kind: str) -> list[str]:
    """Mixers from the first layer to the last. In recall one layer, the same for all
    kinds, pairs each value with its key, and what follows it recalls."""
    depth = _LAYERS[size][task]
    body = [{"softmax": "full"}.get(kind, kind)] * depth
    if kind == "hybrid":
        body = [_RECURRENT_OF_HYBRID] * max(1, depth - 1) + ["full"]
    return [PAIRING, *body] if task == "recall" else body


def d_key_of(size: str, d_key: int = 0) -> int:
    """The width asked for, or that of copy, text and DNA."""
    return d_key or _D_KEY[size]


def shape(size: str, task: str, kind: str, d_key: int = 0) -> JsonDict:
    """Flags of `tarn train` by their names in config.json. All heads together are as
    wide as the model, so that parameters do not depend on d_key, and a value is as wide
    as a key, which RWKV-7 asks for."""
    d_model, d_key = _D_MODEL[size], d_key_of(size, d_key)
    mixers = layers(size, task, kind)
    d_ff = _D_FF[size]["text" if task == "dna" else task][KINDS.index(kind)]
    found: JsonDict = {
        "layers": mixers,
        "n_layers": len(mixers),
        "d_model": d_model,
        "n_heads": d_model // d_key,
        "d_key": d_key,
        "d_value": d_key,
        "d_ff": d_ff,
        "norm_kind": "rms",
        "feed_forward": "swiglu",
    }
    if kind in _RANKED:
        found["gate_rank"] = _RANK
    if task != "recall":
        found["positions"] = _POSITIONS.get(kind, "none")
    return found


def flags(size: str, task: str, kind: str, d_key: int = 0) -> list[str]:
    words: list[str] = []
    for key, value in shape(size, task, kind, d_key).items():
        text = ",".join(value) if isinstance(value, list) else str(value)
        words += [f"--{key.replace('_', '-')}", text]
    return words


def state(size: str, task: str, kind: str, d_key: int = 0) -> JsonDict:
    """Numbers that the layers of a kind carry from token to token, the one that pairs
    in recall left out: of the recurrence, of windows and shifts in addition, and, of softmax, by
    which they grow with each token."""
    d_model, d_key = _D_MODEL[size], d_key_of(size, d_key)
    depth = _LAYERS[size][task]
    attending = {"softmax": depth, "hybrid": 1}.get(kind, 0)
    recurrent = max(1, depth - 1) if kind == "hybrid" else depth - attending
    inner = _RECURRENT_OF_HYBRID if kind == "hybrid" else kind
    beside = {"rwkv7": d_model, **dict.fromkeys(_CONVOLVED, (_CONVOLUTION - 1) * 3 * d_model)}
    # S, and of linear attention z, a number a column of a head's keys.
    own = d_model * d_key + (d_model if inner == "linear" else 0)
    return {
        "recurrence": recurrent * own,
        "beside": recurrent * beside.get(inner, 0),
        "per_token": attending * 2 * d_model,
    }
