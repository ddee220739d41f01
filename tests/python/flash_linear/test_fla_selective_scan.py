"""tarn.fla.selective_scan_fn against transformers' loop over tokens."""

import pytest
import torch

from tarn import fla

mamba = pytest.importorskip("transformers.models.mamba.modeling_mamba")


def tensors(dtype=torch.float32):
    torch.manual_seed(4)
    batch, channels, tokens, states = 2, 24, 19, 8
    return {
        "u": torch.randn(batch, channels, tokens).to(dtype),
        "delta": torch.randn(batch, channels, tokens).to(dtype),
        "A": -torch.rand(channels, states) * 2,
        "B": torch.randn(batch, states, tokens).to(dtype),
        "C": torch.randn(batch, states, tokens).to(dtype),
        "D": torch.randn(channels),
        "z": torch.randn(batch, channels, tokens).to(dtype),
        "delta_bias": torch.randn(channels),
    }


def theirs(x, **options):
    x = dict(x, hidden_states=x["u"], dt=x["delta"])
    del x["u"], x["delta"]
    return mamba.mamba_selective_scan(**x, **options)


@pytest.mark.parametrize(
    "left_out", [(), ("D",), ("z",), ("delta_bias",), ("D", "z", "delta_bias")]
)
@pytest.mark.parametrize("softplus", [False, True])
def test_outputs_states_and_gradients(left_out, softplus):
    x = {name: one for name, one in tensors().items() if name not in left_out}
    if not softplus:  # steps are positive
        x["delta"] = x["delta"].abs() + 3
    leaves = {name: one.requires_grad_() for name, one in x.items()}
    options = dict(delta_softplus=softplus, return_last_state=True)
    out, state = fla.selective_scan_fn(**leaves, **options)
    wanted, last = theirs(leaves, **options)
    torch.testing.assert_close(out, wanted, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(state, last, atol=2e-5, rtol=2e-5)
    weights = torch.randn_like(out), torch.randn_like(state)

    def loss(a, b):
        return (a * weights[0]).sum() + (b * weights[1]).sum()

    given = torch.autograd.grad(loss(out, state), list(leaves.values()))
    right = torch.autograd.grad(loss(wanted, last), list(leaves.values()))
    for name, a, b in zip(leaves, given, right, strict=True):
        size = b.abs().max()
        torch.testing.assert_close(a / size, b / size, atol=2e-5, rtol=0, msg=name)


def test_half_types_and_one_group():
    x = tensors(torch.bfloat16)
    out = fla.selective_scan_fn(**x, delta_softplus=True)
    assert out.dtype == torch.bfloat16
    wide = {name: one.float() for name, one in x.items()}
    wanted = fla.selective_scan_fn(**wide, delta_softplus=True)
    assert (out.float() - wanted).norm() < 1e-2 * wanted.norm()
    grouped = dict(wide, B=wide["B"].unsqueeze(1), C=wide["C"].unsqueeze(1))
    assert torch.equal(fla.selective_scan_fn(**grouped, delta_softplus=True), wanted)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("delta", torch.zeros(2, 24, 18)),
        ("B", torch.zeros(24, 8)),
        ("C", torch.zeros(2, 2, 8, 19)),
    ],
)
def test_refusals(name, given):
    with pytest.raises(ValueError, match=rf"selective_scan_fn: {name}: want \[2, "):
        fla.selective_scan_fn(**dict(tensors(), **{name: given}))
