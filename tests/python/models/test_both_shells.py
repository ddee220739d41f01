"""The C++ and the Python modules are two wrappers around one set of operators: the
same weights and the same batch give the same bits. Two models differ in the last
digits: torch's LSTM, whose products the two sides split differently, and linear
cross attention, which C++ reads from a state, unlike Python's whole-sequence form."""

import subprocess

import pytest
import safetensors.torch
import torch
from programs import BUILD

import tarn
from tarn import models

SMALL = dict(
    vocab_size=256, d_model=24, n_layers=2, n_heads=3, d_key=8, d_value=6, d_ff=40, max_positions=32
)
SIZES = {
    "lm": {},
    "seq2seq": {},
    "classify": dict(n_classes=5),
    "image": dict(task="image", image_height=3, image_width=5, image_channels=1, n_mixtures=4),
    "ctc": dict(task="ctc", n_classes=5, input_dim=7),
}
LEARNED = dict(positions="learned")
FACTORS = dict(embedding_factor=3.0, residual_factor=0.4, logit_factor=2.0, norm_offset=1.0)
GATED = (
    "retnet", "lightning", "mamba2", "gla", "hgrn2", "deltanet", "gdn", "kda", "rwkv6", "rwkv7",
    "gated-full", "mamba1", "short-conv", "rg-lru", "mlstm", "norm-linear",
)  # fmt: skip


def square(kind):
    """d_value, where keys and values have one width."""
    return dict(d_value=8) if kind.startswith("rwkv") else {}


CONCAT = dict(positions="sinusoidal", position_combine="concat")
CASES = [
    ("lm", "decoder", LEARNED),
    ("lm", "decoder", dict(attention="full", norm="post")),
    ("lm", "decoder", dict(positions="rotary", activation="relu")),
    ("lm", "decoder", dict(positions="rotary", attention="full", tied_head=True)),
    ("lm", "decoder", dict(feature_map="relu2", denominator="compat", norm="post")),
    ("lm", "decoder", dict(feature_map="favor", final_norm=False)),
    ("lm", "decoder", dict(layers=["linear", "full"])),
    ("lm", "decoder", dict(layers=["aft-simple", "linear"], d_value=8, norm="post")),
    ("lm", "decoder", dict(layers=["linear", {"mixer": "linear", "feature_map": "relu"}])),
    *(("lm", "decoder", dict(attention=kind, **square(kind))) for kind in GATED),
    ("lm", "decoder", dict(attention="retnet", positions="rotary", norm="post")),
    *(
        ("lm", "decoder", dict(layers=["linear", "gdn"], norm=norm, norm_kind="rms", **FACTORS))
        for norm in ("post", "pre", "after", "both", "none")
    ),
    ("lm", "decoder", dict(attention="full", norm="both")),
    ("seq2seq", "seq2seq", dict(attention="full", norm="after", **FACTORS)),
    ("seq2seq", "seq2seq", dict(attention="full", norm="both")),
    ("classify", "encoder", dict(attention="full", norm="none", **FACTORS)),
    ("lm", "decoder", dict(layers=["gdn", "full"], positions="rotary")),
    ("lm", "decoder", dict(attention="mamba2+full")),
    (
        "lm",
        "decoder",
        dict(layers=["full", "rwkv7"], value_residual=True, input_norm=True, d_value=8),
    ),
    (
        "lm",
        "decoder",
        dict(layers=["gdn", "mamba1"], recurrent_in_bias=True, recurrent_out_bias=True),
    ),
    ("lm", "decoder", dict(layers=["hgrn2", "full+hgrn2"], learned_bounds=True)),
    ("seq2seq", "seq2seq", dict(input_norm=True, norm_kind="rms", norm_offset=1.0)),
    ("ctc", "encoder", dict(input_norm=True, **LEARNED)),
    ("lm", "decoder", dict(head_bias=False, tied_head=True)),
    ("ctc", "encoder", dict(head_bias=False, **LEARNED)),
    ("seq2seq", "seq2seq", dict(head_bias=False)),
    ("lm", "decoder", dict(logit_softcap=0.5, logit_factor=2.0)),
    ("lm", "decoder", dict(attention="full", norm="pre", parallel_residual=True, activation="gelu-tanh")),
    ("lm", "decoder", dict(layers=["full", "gdn"], norm="both", parallel_residual=True)),
    ("lm", "decoder", dict(feed_forward="geglu-tanh", parallel_residual=True, **FACTORS)),
    (
        "lm", "decoder",
        dict(layers=[{"mixer": "full", "rotate": False}, {"mixer": "full", "own_rotary_base": 50.0}],
             positions="rotary"),
    ),
    ("seq2seq", "seq2seq", dict(logit_softcap=0.5)),
    *(
        ("lm", "decoder", dict(feed_forward=part, feed_forward_bias=bias))
        for part in ("mlp", "swiglu", "geglu", "geglu-tanh", "relu2")
        for bias in ("all", "none")
    ),
    ("lm", "decoder", dict(layers=["linear+full", "gdn"], positions="rotary", norm="both")),
    (
        "lm",
        "decoder",
        dict(layers=[{"mixer": ["mamba1", {"mixer": "full", "branch_factor": 0.5, "n_heads": 2}]}]),
    ),
    ("seq2seq", "seq2seq", dict(attention="linear+full")),
    ("seq2seq", "seq2seq", dict(layers=[{"mixer": "linear", "n_heads": 4, "d_key": 6}])),
    ("lm", "decoder", dict(attention="linear+linear", feature_map="favor")),
    ("classify", "encoder", dict(attention="linear+full", **LEARNED)),
    ("lm", "decoder", dict(attention="mamba2", key_heads=1, conv_width=0)),
    ("lm", "decoder", dict(attention="kda", key_heads=1, gate_rank=5)),
    ("lm", "decoder", dict(attention="norm-linear", qk_map="hadamard", unit_keys=True)),
    ("lm", "decoder", dict(attention="norm-linear", qk_map="hedgehog", divided_sums=True)),
    ("lm", "decoder", dict(attention="norm-linear", qk_map="dpfp", gate_activation="sigmoid")),
    ("lm", "decoder", dict(attention="deltanet", negative_eigenvalues=True, norm_kind="rms")),
    ("lm", "decoder", dict(layers=["gdn", "gated-full"], key_heads=1, positions="rotary")),
    ("lm", "decoder", dict(attention="full", key_heads=1, out_bias=False, head_norm="full", window=4)),
    ("lm", "decoder", dict(attention="full", head_gate=True, sinks=True, softcap=0.7, score_scale=0.4)),
    ("lm", "decoder", dict(attention="local", local_context=5, key_heads=1, head_norm="head")),
    (
        "lm",
        "decoder",
        dict(attention="full", rotary_scaling="yarn", rotary_factor=4.0, rotary_original_positions=8,
             rotary_width=4, positions="rotary"),
    ),
    ("lm", "decoder", dict(attention="full", qkv_bias=False, latent_width=6, sinks=True)),
    (
        "lm",
        "decoder",
        dict(attention="full", qkv_bias=False, latent_width=6, query_latent_width=5,
             shared_key_width=4, rotary_width=4, positions="rotary"),
    ),
    ("image", "decoder", dict(attention="gdn")),
    *(
        ("lm", "decoder", dict(**keys, norm=norm, feed_forward="channel-mix", d_value=8))
        for keys in (dict(attention="rwkv7"), dict(layers=["rwkv6", "full"]))
        for norm in ("pre", "post")
    ),
    ("image", "decoder", dict(feed_forward="channel-mix")),
    ("lm", "decoder", dict(attention="rwkv6", d_value=8, feed_forward="gated-channel-mix")),
    ("lm", "decoder", dict(attention="rwkv6", d_value=8, shift_rank=3, output_norm_eps=0.1)),
    (
        "lm",
        "decoder",
        dict(attention="rwkv7", d_value=8, value_residual=True, rate_rank=3, value_rank=5,
             output_gate_rank=4, unit_eps=0.1),
    ),
    ("lm", "decoder", dict(attention="kda", gate_bias=True, output_norm_eps=0.1)),
    ("lm", "decoder", dict(layers=["gla", "kda"], gate_activation="none", gate_bias=True)),
    ("lm", "decoder", dict(attention="deltanet", gate_activation="sigmoid")),
    *(
        ("lm", "decoder", dict(layers=layers, norm=norm))
        for layers in (
            [{"mixer": "mamba2", "feed_forward": "none"}],
            [{"mixer": "linear", "feed_forward": "none"}, {"mixer": "full", "feed_forward": "relu2"}],
            [{"mixer": "gdn", "feed_forward": "geglu"}, "full"],
        )
        for norm in ("pre", "post")
    ),
    ("classify", "encoder", dict(feed_forward="none")),
    ("lm", "decoder", dict(feed_forward="moe", experts=4, d_expert=16)),
    ("lm", "decoder", dict(feed_forward="moe", d_shared=8, shared_gate=True, norm="post")),
    ("lm", "decoder", dict(feed_forward="moe", router="sigmoid", expert_part="relu2")),
    ("seq2seq", "seq2seq", dict(feed_forward="geglu", attention="full")),
    ("seq2seq", "seq2seq", LEARNED),
    ("seq2seq", "seq2seq", dict(attention="full", positions="sinusoidal")),
    ("classify", "encoder", LEARNED),
    ("image", "decoder", LEARNED),
    ("image", "decoder", CONCAT),
    ("image", "decoder", dict(attention="full", norm="post", final_norm=False)),
    ("ctc", "encoder", LEARNED),
    ("ctc", "encoder", CONCAT),
    ("ctc", "encoder", dict(attention="full", positions="rotary", norm="post")),
    ("ctc", "lstm", {}),
    ("ctc", "lstm", dict(bidirectional=True)),
]  # fmt: skip
LENGTHS = [9, 4, 1]
TOLERANCE = 4e-6  # on logits of size about 1, where the bits are not the same


def same_bits(model):
    """Whether the two wrappers call the same operators on the same tensors."""
    return isinstance(model, (models.LanguageModel, models.Classifier, models.FrameClassifier)) or (
        model.config["arch"] == "seq2seq" and model.config["cross_attention"] == "full"
    )


def batch_of(task):
    """What a model of the task reads: images whole, all else padded."""
    if task == "image":
        return dict(tokens=torch.randint(256, (3, 15)))
    lengths = torch.tensor(LENGTHS)
    if task == "ctc":
        return dict(frames=torch.randn(3, 9, 7), lengths=lengths)
    batch = dict(tokens=torch.randint(256, (3, 9)), lengths=lengths)
    if task == "lm":
        del batch["lengths"]
    if task == "seq2seq":
        batch["target_in"] = torch.randint(256, (3, 6))
    return batch


def in_python(model, batch):
    """Logits of the Python module."""
    first = batch["frames"] if "frames" in batch else batch["tokens"]
    if "target_in" in batch:
        return model(first, batch["target_in"], batch["lengths"])
    return model(first, batch["lengths"]) if "lengths" in batch else model(first)


IDS = ["-".join(map(str, (*case[:2], *case[2].values()))) for case in CASES]


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    """Of each case: Python's, the C++ module's, and whether the bits are the same. One
    program runs all models, since its start takes longer than they do."""
    folders, given, same = [], [], []
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # sums of torch's own operators may depend on it
    for task, arch, keys in CASES:
        folder = tmp_path_factory.mktemp("case")
        torch.manual_seed(5)
        model = models.make_model(**{**SMALL, **SIZES[task], **keys}, arch=arch).eval()
        with torch.no_grad():
            for weight in model.parameters():  # norms and biases too
                weight.add_(torch.randn_like(weight), alpha=0.1)
            batch = batch_of(task)
            given.append(in_python(model, batch))
        tarn.save_model(model, folder / "model")
        safetensors.torch.save_file({k: v.float() for k, v in batch.items()}, folder / "batch")
        same.append(same_bits(model))
        folders.append(folder)
    torch.set_num_threads(before)
    done = subprocess.run([BUILD / "model_logits", *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = [safetensors.torch.load_file(folder / "out")["logits"] for folder in folders]
    return dict(zip(IDS, zip(given, wanted, same)))


@pytest.mark.parametrize("case, name", list(zip(CASES, IDS)), ids=IDS)
def test_same_weights_same_logits(case, name, logits, record_property):
    task = case[0]
    given, wanted, same = logits[name]
    assert given.shape == wanted.shape and given.std() > 0.1
    tolerance = 0 if same else TOLERANCE
    largest = 0.0
    for row in range(len(given)):
        # Past its length a row of frames is unspecified.
        valid = slice(LENGTHS[row]) if task == "ctc" else slice(None)
        torch.testing.assert_close(given[row, valid], wanted[row, valid], rtol=0, atol=tolerance)
        largest = max(largest, (given[row, valid] - wanted[row, valid]).abs().max().item())
    record_property("largest_difference", largest)
