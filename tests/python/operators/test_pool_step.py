"""decay_attention_step_ and delta_attention_step_: tokens on states in a pool, against the
same tokens as a sequence after a state."""

import pytest
import torch

from tarn import ops

ROWS, TOKENS, HEADS, VALUE_HEADS, K, V, SLOTS = 3, 2, 2, 4, 5, 3, 6
USED = [4, -1, 0]


def problem(gates, dtype=torch.float32):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x = {
        "queries": torch.randn(ROWS, TOKENS, HEADS, K, dtype=dtype),
        "keys": torch.nn.functional.normalize(torch.randn(ROWS, TOKENS, HEADS, K), dim=-1),
        "values": torch.randn(ROWS, TOKENS, VALUE_HEADS, V, dtype=dtype),
        "betas": torch.rand(ROWS, TOKENS, VALUE_HEADS, dtype=wide),
        "bonus": torch.randn(VALUE_HEADS, K, dtype=wide),
    }
    x["keys"] = x["keys"].to(dtype)
    if gates != "none":
        shape = (ROWS, TOKENS, VALUE_HEADS) + ((K,) if gates == "channel" else ())
        x["gates"] = -torch.rand(shape, dtype=wide)
    return x, torch.randn(SLOTS, VALUE_HEADS, K, V, dtype=wide)


def run(kind, x, states, slots):
    first = states, x["queries"], x["keys"], x["values"], x.get("gates")
    if kind == "delta":
        return torch.ops.tarn.delta_attention_step_(*first, x["betas"], slots, 0.5)
    bonus = x["bonus"] if kind == "bonus" else None
    return torch.ops.tarn.decay_attention_step_(*first, bonus, slots, 0.5)


def sequence(kind, x, state):
    options = dict(gates=x.get("gates"), initial_state=state, scale=0.5, return_state=True)
    main = x["queries"], x["keys"], x["values"]
    if kind == "delta":
        return ops.delta_attention(*main, x["betas"], **options)
    return ops.decay_attention(*main, bonus=x["bonus"] if kind == "bonus" else None, **options)


@pytest.mark.parametrize("composed", [False, True], ids=["kernels", "composed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("gates", ["none", "token", "channel"])
@pytest.mark.parametrize("kind", ["decay", "bonus", "delta"])
def test_slots(kind, gates, dtype, composed):
    x, states = problem(gates, dtype)
    before = states.clone()
    forced = torch.ops.tarn.force_composed(composed)
    try:
        out = run(kind, x, states, torch.tensor(USED))
    finally:
        torch.ops.tarn.force_composed(forced)
    for row, slot in enumerate(USED):
        if slot < 0:
            assert not out[row].any()
            continue
        one = {name: t if name == "bonus" else t[row : row + 1].double() for name, t in x.items()}
        one["bonus"] = one["bonus"].double()
        wanted, state = sequence(kind, one, before[slot : slot + 1].double())
        loose = dict(rtol=2e-2, atol=2e-2) if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(
            out[row : row + 1].double(),
            wanted,
            check_dtype=False,
            **(loose or dict(rtol=1e-5, atol=1e-5)),
        )
        torch.testing.assert_close(states[slot : slot + 1].double(), state, rtol=1e-5, atol=1e-5)
    untouched = [slot for slot in range(SLOTS) if slot not in USED]
    assert torch.equal(states[untouched], before[untouched])


@pytest.mark.parametrize("kind", ["decay", "delta"])
def test_without_slots_each_row_has_its_own(kind):
    x, states = problem("token")
    states = states[:ROWS].contiguous()
    wanted, last = sequence(kind, x, states.clone())
    out = run(kind, x, states, None)
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(states, last, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slots": torch.tensor([0, 1, SLOTS])}, r"slots\[2\]: want below 6, got 6"),
        ({"slots": torch.tensor([0, 1])}, "slots"),
        ({"slots": torch.tensor([0.0, 1.0, 2.0])}, "slots"),
        ({"slots": None}, "states"),
        ({"states": torch.zeros(SLOTS, VALUE_HEADS, V, K)}, "states"),
        ({"states": torch.zeros(SLOTS, VALUE_HEADS, V, K).transpose(2, 3)}, "states"),
        ({"states": torch.zeros(SLOTS, VALUE_HEADS, K, V).double()}, "states"),
    ],
)
def test_errors(change, message):
    x, states = problem("token")
    before = states.clone()
    given = {"states": states, "slots": torch.tensor(USED), **change}
    with pytest.raises((ValueError, TypeError), match=message):
        run("delta", x, given["states"], given["slots"])
    assert torch.equal(states, before)
