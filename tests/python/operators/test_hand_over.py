"""The hand-over to flash-linear-attention, tested with a kernel of its signature in
torch: calls that are handed over give tarn's results, and all others stay."""

import pytest
import torch

from tarn import ops
from tarn.ops import _fla


def chunk_linear_attn(
    q, k, v, scale=None, initial_state=None, output_final_state=False, normalize=True
):
    """The sums alone, as the kernel of flash-linear-attention returns them:
    [B, T, H, V] and the state [B, H, K, V]."""
    assert scale == 1.0 and normalize is False and output_final_state
    products = torch.einsum("bthk,bthv->bthkv", k, v).cumsum(1)
    if initial_state is not None:
        products = products + initial_state[:, None].to(products)
    return torch.einsum("bthk,bthkv->bthv", q, products), products[:, -1].float()


@pytest.fixture
def calls(monkeypatch):
    """The hand-over, as if on CUDA; counts the calls that went through it."""
    count = []

    def chunk(*args, **kwargs):
        count.append(1)
        return chunk_linear_attn(*args, **kwargs)

    monkeypatch.setattr(_fla, "_chunk", lambda: chunk)
    serves = _fla.serves

    class OnCuda(torch.Tensor):
        is_cuda = True

    def pretend(queries, *rest):
        return serves(queries.as_subclass(OnCuda), *rest)

    monkeypatch.setattr(_fla, "serves", pretend)
    return count


def arguments(value_heads=2):
    torch.manual_seed(0)
    shapes = [(2, 7, 2, 3), (2, 7, 2, 3), (2, 7, value_heads, 5)]
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


KEPT = torch.rand(2, 7) > 0.3


@pytest.mark.parametrize("value_heads", [2, 4])
# identity is tested with undivided sums only: sums of both signs may divide by zero.
@pytest.mark.parametrize(
    ("feature_map", "denominator"),
    [(m, d) for m in ("elu1", "relu2") for d in ("exact", "compat", "none")]
    + [("identity", "none")],
)
@pytest.mark.parametrize("call", [ops.linear_attention, ops.mapped_linear_attention])
def test_gives_what_tarn_gives(call, feature_map, denominator, value_heads, calls, monkeypatch):
    options = dict(
        feature_map=feature_map, denominator=denominator, key_mask=KEPT, scale=0.5,
        initial_state=ops.LinearState(
            torch.rand(2, value_heads, 3, 5), torch.rand(2, value_heads, 3)
        ),
        return_state=True,
    )  # fmt: skip
    results = []
    for handed in (True, False):
        if not handed:
            monkeypatch.setattr(_fla, "serves", lambda *rest: False)
        leaves = arguments(value_heads)
        out, state = call(*leaves, **options)
        loss = out.square().sum() + state.S.square().sum() + state.z.square().sum()
        results.append([out, *state[:2], *torch.autograd.grad(loss, leaves)])
    assert len(calls) == 1
    for got, wanted in zip(*results):
        # A query of relu2 features may be tiny: its quotient magnifies rounding.
        assert (got - wanted).abs().max() <= 1e-4 * (1 + wanted.abs().max())


@pytest.mark.parametrize(
    "options",
    [
        dict(causal=False),
        dict(causal_offset=1),
        dict(chunk_size=16),
        dict(denominator="signed", feature_map="identity"),
    ],
    ids=str,
)
def test_the_rest_stays(options, calls):
    ops.linear_attention(*arguments(), **options)
    assert not calls


def test_float64_and_forced_forms_stay(calls):
    ops.linear_attention(*[x.double() for x in arguments()])
    with ops.composed_forms():
        ops.linear_attention(*arguments())
    torch.func.grad(lambda x: ops.linear_attention(x, x, x).sum())(arguments()[0].detach())
    assert not calls


def test_nothing_is_handed_over_on_the_cpu():
    assert not _fla.serves(*arguments()[:2], True, 0, None, None)
