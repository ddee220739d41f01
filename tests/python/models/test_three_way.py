"""Training forward, prefill and step of `tarn.models.LanguageModel` are one function,
for all combinations of kind, mixture or feature map, positions and place of the
norm."""

import itertools

import pytest
import torch

from tarn import models

SIZES = dict(vocab_size=256, d_model=24, n_layers=2, n_heads=3, d_ff=40, max_positions=32)
MODERN = dict(norm_kind="rms", feed_forward="swiglu")
GATED = (
    "retnet", "lightning", "mamba2", "gla", "hgrn2", "deltanet", "gdn", "kda", "rwkv6", "rwkv7",
    "gated-full", "mamba1", "short-conv", "rg-lru", "mlstm", "norm-linear",
)  # fmt: skip
KINDS = [
    *(
        dict(feature_map=name)
        for name in (
            "elu1", "identity", "relu", "relu2", "softplus", "poly2",
            "favor", "favor-positive", "rff", "smoothed-rff", "grf",
        )
    ),
    dict(feature_map="favor", stabilise=True),
    dict(denominator="compat"),
    dict(denominator="signed", feature_map="poly2"),
    dict(attention="full"),
    dict(attention="local", local_context=5),
    dict(attention="local", local_context=4),
    dict(attention="exact-topk", topk=3),
    dict(attention="aft-full", max_sequence_length=32, aft_parameterization=3),
    dict(attention="aft-simple"),
    dict(norm_kind="rms"),
    dict(feed_forward="swiglu"),
    dict(layers=["linear", "full"], **MODERN),
    dict(layers=["linear", "aft-simple"], **MODERN),
    *(dict(attention=name) for name in GATED),
    dict(attention="mamba2", key_heads=1, conv_width=2),
    dict(attention="mamba2", mamba2_norm=False, most_step=0.6),
    dict(attention="mamba2", mamba2_norm_first=True, key_heads=1, least_step=0.2),
    dict(attention="mamba1", selection_norm=True),
    dict(attention="mamba1", selection_norm=True, selection_norm_eps=0.3),
    dict(attention="gdn", key_heads=1, conv_width=0, negative_eigenvalues=True),
    dict(attention="kda", gate_rank=3, **MODERN),
    dict(attention="kda", gate_bias=True, output_norm_eps=0.1),
    dict(layers=["gla", "kda"], gate_activation="none", gate_bias=True),
    dict(layers=["gdn", "deltanet"], gate_activation="sigmoid", output_norm_eps=0.1),
    dict(attention="norm-linear", qk_map="hadamard"),
    dict(attention="norm-linear", qk_map="t2r", unit_queries=True, unit_keys=True),
    dict(layers=["norm-linear", "full"], qk_map="hedgehog", divided_sums=True),
    dict(attention="norm-linear", qk_map="dpfp", divided_sums=True, gate_activation="silu"),
    dict(attention="rwkv7", rate_rank=3, value_rank=5, output_gate_rank=4, unit_eps=0.1,
         value_residual=True),
    dict(attention="rwkv6", shift_rank=3, output_norm_eps=0.1),
    dict(layers=["gdn", "full"], **MODERN),
    dict(layers=["gdn", "gated-full"], key_heads=1, **MODERN),
    dict(layers=["gla", {"mixer": "local", "local_context": 5}]),
    dict(attention="mamba2+full"),
    dict(attention="rwkv7", value_residual=True, input_norm=True),
    dict(layers=["hgrn2", "linear+hgrn2"], learned_bounds=True),
    dict(layers=["mamba2", "kda"], recurrent_in_bias=True, recurrent_out_bias=True),
    dict(layers=["mamba1", "hgrn2"], recurrent_in_bias=True, recurrent_out_bias=True),
    dict(layers=["linear+full", "linear+local"], local_context=5, **MODERN),
    dict(feed_forward="channel-mix"),
    dict(attention="rwkv7", feed_forward="channel-mix"),
    dict(layers=["rwkv6", "full"], feed_forward="channel-mix"),
    dict(layers=["rwkv6", "full"], feed_forward="gated-channel-mix"),
    dict(attention="mamba2", feed_forward="none"),
    dict(feed_forward="geglu"),
    dict(feed_forward="swiglu", feed_forward_bias="all"),
    dict(feed_forward_bias="none", head_bias=False),
    dict(logit_softcap=0.5, logit_factor=2.0),
    dict(feed_forward="moe", experts=4, d_expert=16),
    dict(layers=[{"mixer": "linear", "feed_forward": "none"}, "full"], feed_forward="relu2"),
]  # fmt: skip
POSITIONS = [
    dict(positions="none"),
    dict(positions="learned"),
    dict(positions="sinusoidal"),
    dict(positions="sinusoidal", position_combine="concat"),
    dict(positions="rotary"),
    dict(positions="rotary", rotary_place="after"),
]
NORMS = ("pre", "post")
BATCH, LENGTH, FILLED = 2, 14, 6


def bound(kind):
    """The bound on logits of size about 1, float32. Without a feature map, and with
    rff's cosines, the weights of the keys have both signs, so that a denominator may
    come close to 0: each form alone is up to 3e-5 from float64 with rff."""
    return {"identity": 2e-4, "rff": 1e-4}.get(kind.get("feature_map"), 3e-5)


def supported(kind, position):
    """Whether there is such a model. Rotary positions need queries and keys whose
    product is taken; after a feature map, they need an elementwise one."""
    if position["positions"] != "rotary":
        return True
    mixers = kind.get("layers", [kind.get("attention", "linear")])
    mixers = [mixer if isinstance(mixer, str) else mixer["mixer"] for mixer in mixers]
    if any(mixer.startswith("aft") for mixer in mixers):
        return False
    if set(mixers) <= set(GATED) - {"retnet", "gated-full"}:
        return False  # no layer rotates its rows
    if "linear" not in mixers or "rotary_place" not in position:
        return True
    elementwise = kind.get("feature_map", "elu1") in (
        "elu1",
        "identity",
        "relu",
        "relu2",
        "softplus",
    )
    return elementwise and kind.get("denominator") != "signed"


def difference(model):
    """The largest difference on logits [B, T, 256] between the training forward
    and prefill in two pieces, and between it and one step per token."""
    tokens = torch.randint(256, (BATCH, LENGTH))
    with torch.no_grad():
        wanted = model(tokens)
        first, state = model.prefill(tokens[:, :FILLED])
        rest, _ = model.prefill(tokens[:, FILLED:], state=state)
        state, rows = None, []
        for t in range(LENGTH):
            row, state = model.step(tokens[:, t], state)
            rows.append(row)
        alone, _ = model.step(tokens[:, -1])
    filled, stepped = torch.cat([first, rest], 1), torch.stack(rows, 1)
    # Control: the context has an effect, so that a lost state would be seen.
    assert wanted.isfinite().all() and (alone - wanted[:, -1]).abs().max() > 1e-2
    return max((given - wanted).abs().max().item() for given in (filled, stepped))


@pytest.mark.parametrize("kind", KINDS, ids=["-".join(map(str, kind.values())) for kind in KINDS])
def test_the_three_forms_agree(kind, record_property):
    largest, where, ran = 0.0, None, 0
    for position, norm in itertools.product(POSITIONS, NORMS):
        keys = dict(SIZES, **kind, **position, norm=norm)
        if not supported(kind, position):
            with pytest.raises(ValueError, match="rotary"):
                models.LanguageModel(**keys)
            continue
        model = models.LanguageModel(**keys)
        ran += 1
        found = difference(model.eval())
        assert found <= bound(kind), (kind, position, norm)
        if found >= largest:
            largest, where = found, (position, norm)
    print(f"{kind}: {ran} configurations, largest difference {largest:.3g} at {where}")
    record_property("configurations", ran)
    record_property("largest_difference", largest)
