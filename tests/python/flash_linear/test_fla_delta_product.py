"""chunk_gated_delta_product against its recurrence in float64: values, states, gradients,
packed sequences, dtypes, gates of any size, refusals."""

import math

import pytest
import torch
from fla_reference import unit

from tarn import fla

HEADS, K, V = 2, 5, 3
BOUND = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-12}
GRADIENT = 1e-5


def loop(q, k, v, g, beta, steps, state=None, scale=K**-0.5):
    """Token by token, step by step; Siems et al. 2025, the products of section 3, and their
    decay in front of them."""
    S = v.new_zeros(q.shape[0], HEADS, K, V) if state is None else state
    rows = []
    for t in range(q.shape[1]):
        S = S if g is None else S * g[:, t].exp()[..., None, None]
        for j in range(t * steps, (t + 1) * steps):
            missing = v[:, j] - (S * k[:, j].unsqueeze(-1)).sum(2)
            S = S + k[:, j].unsqueeze(-1) * (beta[:, j].unsqueeze(-1) * missing).unsqueeze(2)
        rows.append((S * scale * q[:, t].unsqueeze(-1)).sum(2))
    return (torch.stack(rows, 1) if rows else v.new_zeros(*q.shape[:3], V)), S


def draw(tokens, steps, batch=2, gated=True, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    many = (batch, tokens * steps, HEADS)
    x = dict(q=normal(batch, tokens, HEADS, K), k=unit(normal(*many, K)), v=normal(*many, V))
    x["g"] = -normal(batch, tokens, HEADS).abs() if gated else None
    x["beta"] = 2 * normal(*many).sigmoid()
    return x, normal(batch, HEADS, K, V)


def cast(x, dtype):
    """As the function takes them, and as the loop does."""
    narrow = ("q", "k", "v")
    ours = {
        n: one
        if one is None
        else one.to(dtype if n in narrow or dtype == torch.float64 else torch.float32)
        for n, one in x.items()
    }
    return ours, {n: one if one is None else one.double() for n, one in ours.items()}


def error(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert ours.shape == theirs.shape
    return float((ours - theirs).norm() / max(float(theirs.norm()), 1e-30))


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(("tokens", "steps"), [(0, 2), (1, 3), (17, 1), (23, 2), (41, 3)])
@pytest.mark.parametrize("dtype", BOUND)
def test_values_and_states(dtype, tokens, steps, gated):
    x, S = draw(tokens, steps, gated=gated)
    ours, theirs = cast(x, dtype)
    S = S if dtype == torch.float64 else S.float()
    out, last = fla.chunk_gated_delta_product(
        **ours, num_householder=steps, initial_state=S, output_final_state=True
    )
    o, wanted = loop(**theirs, steps=steps, state=S.double())
    assert out.dtype == dtype and out.is_contiguous() and last.dtype == S.dtype
    assert error(out, o) <= BOUND[dtype]
    assert error(last, wanted) <= (1e-12 if dtype == torch.float64 else 2e-6)
    out, nothing = fla.chunk_gated_delta_product(**ours, num_householder=steps, scale=0.3)
    assert nothing is None
    assert error(out, loop(**theirs, steps=steps, scale=0.3)[0]) <= BOUND[dtype]


def test_lengths():
    x, _ = draw(20, 2)
    x["k"] = 3 * x["k"]
    ours, theirs = cast(x, torch.float32)
    out, _ = fla.chunk_gated_delta_product(**ours, num_householder=2, use_qk_l2norm_in_kernel=True)
    theirs["q"], theirs["k"] = unit(theirs["q"]), unit(theirs["k"])
    assert error(out, loop(**theirs, steps=2)[0]) <= 2e-6


@pytest.mark.parametrize("gates", ["none", "small", "of any size"])
def test_gradients_reach_every_tensor(gates):
    x, S = draw(19, 3, gated=gates != "none")
    if gates == "of any size":
        x["g"][:, 3], x["g"][:, 8, 0], x["g"][:, 9] = -math.inf, -1e4, -104.0
    x["initial_state"] = S
    ours, theirs = (
        {n: one if one is None else one.to(dtype).requires_grad_() for n, one in x.items()}
        for dtype in (torch.float32, torch.float64)
    )
    out, last = fla.chunk_gated_delta_product(**ours, num_householder=3, output_final_state=True)
    state = theirs.pop("initial_state")
    o, wanted = loop(**theirs, steps=3, state=state)
    theirs["initial_state"] = state
    found = torch.autograd.grad(
        out.double().square().sum() + last.double().sin().sum(),
        [one for one in ours.values() if one is not None],
    )
    expected = torch.autograd.grad(
        o.square().sum() + wanted.sin().sum(),
        [theirs[n] for n, one in ours.items() if one is not None],
    )
    for one, other in zip(found, expected, strict=True):
        assert one.isfinite().all() and error(one, other) <= GRADIENT


def test_gradients_of_gradients():
    x, S = draw(4, 2, batch=1)
    tensors = [one.requires_grad_() for one in (*x.values(), S)]
    assert torch.autograd.gradgradcheck(
        lambda *one: fla.chunk_gated_delta_product(*one[:5], 2, initial_state=one[5])[0], tensors
    )


@pytest.mark.parametrize("steps", [1, 3])
def test_packed_sequences(steps):
    x, _ = draw(26, steps, batch=1)
    ours, theirs = cast(x, torch.float32)
    S = torch.randn(3, HEADS, K, V, generator=torch.Generator().manual_seed(1))
    bounds = [0, 7, 7, 26]
    out, last = fla.chunk_gated_delta_product(
        **ours,
        num_householder=steps,
        cu_seqlens=torch.tensor(bounds),
        initial_state=S,
        output_final_state=True,
    )
    for i, (begin, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        own = {
            n: one[
                :,
                begin * (steps if n in ("k", "v", "beta") else 1) : end
                * (steps if n in ("k", "v", "beta") else 1),
            ]
            for n, one in theirs.items()
        }
        o, wanted = loop(**own, steps=steps, state=S[i : i + 1].double())
        assert error(last[i : i + 1], wanted) <= 2e-6
        assert begin == end or error(out[:, begin:end], o) <= 2e-6


def test_one_step_is_the_gated_delta_rule():
    x, _ = draw(30, 1)
    ours, _ = cast(x, torch.float32)
    out, last = fla.chunk_gated_delta_product(**ours, num_householder=1, output_final_state=True)
    same, same_last = fla.chunk_gated_delta_rule(**ours, output_final_state=True)
    assert torch.equal(out, same) and torch.equal(last, same_last)


def test_refusals():
    x, _ = draw(6, 2)
    call = fla.chunk_gated_delta_product
    for change, error_type, message in (
        (dict(num_householder=3), ValueError, r"k: want \[2, 18, 2, 5\], got \[2, 12, 2, 5\]"),
        (dict(num_householder=0), ValueError, "num_householder: want 1 or more, got 0"),
        (dict(num_householder=2.0), TypeError, "num_householder: want an int, got float"),
        (dict(beta=x["beta"][:, :6]), ValueError, r"beta: want \[2, 12, 2\], got \[2, 6, 2\]"),
        (dict(g=x["beta"]), ValueError, r"g: want \[2, 6, 2\], got \[2, 12, 2\]"),
        (dict(q=x["q"][0]), ValueError, "q: want "),
        (dict(cp_context=object()), ValueError, "cp_context: want None"),
        (dict(cu_seqlens=torch.tensor([0, 6])), ValueError, "a batch of 1, got 2"),
    ):
        with pytest.raises(error_type, match="chunk_gated_delta_product: .*" + message):
            call(**{**x, "num_householder": 2, **change})


def test_refusals_of_comba():
    x = {n: torch.randn(2, 6, 2, K) for n in ("q", "k", "p")}
    x |= dict(v=torch.randn(2, 6, 4, V), g=torch.zeros(2, 6, 4))
    for change, message in (
        (dict(p=x["p"][:, 1:]), r"p: want \[2, 6, 2, 5\], got \[2, 5, 2, 5\]"),
        (dict(v=x["v"][:, :, :3]), r"v: want \[2, 6, 2, 3\], got \[2, 6, 3, 3\]"),
        (dict(g=x["g"][..., :2]), r"g: want \[2, 6, 4\], got \[2, 6, 2\]"),
        (dict(beta=x["g"][..., :2]), r"beta: want \[2, 6, 4\], got \[2, 6, 2\]"),
        (dict(initial_state=x["q"]), r"initial_state: want \[2, 4, 5, 3\]"),
    ):
        with pytest.raises(ValueError, match="chunk_comba: " + message):
            fla.chunk_comba(**{**x, **change})
