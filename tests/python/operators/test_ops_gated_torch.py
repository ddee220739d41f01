"""How decay_, delta_ and dplr_attention behave inside torch: operator checks,
compilation, strides, halves, saved states, sizes of 0, numbers that do not fit."""

import pytest
import torch
from test_ops_gated import BOUND, KINDS, TOKENS, call, doubles, error, problem, reference
from torch.library import opcheck

from tarn import ops

TARN = torch.ops.tarn
STARTS = torch.tensor([0, 3, 3, 19])


def flat(x, lengths=None, cu_seqlens=None):
    """The operator's overload and its first arguments, up to the initial state."""
    if "reads" in x:
        names = ("queries", "keys", "values", "reads", "writes", "gates")
        rest = (lengths, cu_seqlens, x.get("initial_state"))
        return TARN.dplr_attention.default, (*(x.get(name) for name in names), *rest)
    delta = "betas" in x
    op = TARN.delta_attention.default if delta else TARN.decay_attention.default
    extra = x.get("betas") if delta else x.get("bonus")
    return op, (
        x["queries"],
        x["keys"],
        x["values"],
        x.get("gates"),
        extra,
        lengths,
        cu_seqlens,
        x.get("initial_state"),
    )


def backward_of(op):
    return getattr(TARN, op._schema.name.split("::")[1] + "_backward").default


def one_row(x, states=3):
    """The first row of a problem, with that many initial states."""
    row = {name: one[:1] if name in TOKENS and one.dim() > 1 else one for name, one in x.items()}
    row["initial_state"] = x["initial_state"][:1].expand(states, -1, -1, -1).clone()
    return row


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gates", ["none", "head", "channel"])
def test_opcheck_forward(kind, gates):
    x = {name: one.requires_grad_() for name, one in problem(kind, gates, 19).items()}
    op, arguments = flat(x, lengths=torch.tensor([4, 17]))
    opcheck(op, arguments, dict(return_state=True))


@pytest.mark.parametrize("kind", KINDS)
def test_opcheck_packed_halves_and_float64(kind):
    x = one_row(problem(kind, "token", 19))
    op, arguments = flat(x, cu_seqlens=STARTS)
    opcheck(op, arguments, dict(return_state=True))
    for dtype in (torch.bfloat16, torch.float64):
        op, arguments = flat(problem(kind, "token", 3, dtype))
        opcheck(op, arguments, dict(scale=0.5))


@pytest.mark.parametrize("kind", KINDS)
def test_opcheck_backward(kind):
    x = problem(kind, "token", 300)
    op, arguments = flat(x)
    out, state, saved = op(*arguments, return_state=True, checkpoints=True)
    assert saved.shape == (2, *state.shape[1:])  # one for each 256 whole tokens of a row
    backward = backward_of(op)
    rest = (saved, torch.randn_like(out), torch.randn_like(state), 1.0)
    opcheck(backward, (*arguments, *rest))


@pytest.mark.parametrize("kind", KINDS)
def test_saved_states_change_no_bit_of_a_gradient(kind):
    x = problem(kind, "channel", 600)
    op, arguments = flat(x)
    out, state, saved = op(*arguments, return_state=True, checkpoints=True)
    backward = backward_of(op)
    flow = (torch.randn_like(out), torch.randn_like(state), 1.0)
    kept = backward(*arguments, saved, *flow)
    again = backward(*arguments, saved.new_empty(0), *flow)
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gates", ["head", "token", "channel"])
def test_gradients_over_saved_states(kind, gates):
    """600 tokens: two saved states, three groups of the gradient."""
    x = {n: one.requires_grad_() for n, one in problem(kind, gates, 600, resets=True).items()}
    y = {name: one.requires_grad_() for name, one in doubles(x).items()}

    def gradients(pair, of):
        loss = pair[0].double().square().sum() + pair[1].double().sum()
        return torch.autograd.grad(loss, list(of.values()))

    ours = gradients(call(x, scale=0.3, return_state=True), x)
    theirs = gradients(reference(y, 0.3), y)
    for name, one, wanted in zip(x, ours, theirs, strict=True):
        assert error(one, wanted) <= 5e-6, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_halves_are_those_of_the_composed_form(kind, dtype):
    x = {n: one.requires_grad_() for n, one in problem(kind, "token", 40, dtype).items()}
    y = {name: one.requires_grad_() for name, one in doubles(x).items()}
    ours = torch.autograd.grad(call(x).float().sum(), list(x.values()))
    theirs = torch.autograd.grad(call(y).sum(), list(y.values()))
    for name, one, wanted in zip(x, ours, theirs, strict=True):
        assert one.dtype == x[name].dtype
        assert error(one, wanted) <= BOUND[dtype], name


def test_halves_of_gates_and_betas():
    x = problem("delta", "token", 20, torch.bfloat16)
    half = x | {name: x[name].bfloat16().requires_grad_() for name in ("gates", "betas")}
    wanted, _ = reference(doubles(half), 1.0)
    out = call(half, scale=1.0)
    assert error(out, wanted) <= BOUND[torch.bfloat16]
    for one in torch.autograd.grad(out.float().sum(), [half["gates"], half["betas"]]):
        assert one.dtype == torch.bfloat16 and one.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_strided_and_misaligned_input(kind):
    x = problem(kind, "channel", 21)
    wanted = call(x, return_state=True)

    def between(one):
        """The same numbers, one float off any boundary, with NaN between rows."""
        sizes = list(one.shape)
        sizes[-2] = 2 * sizes[-2]
        flat_buffer = torch.full((one.numel() * 2 + 1,), torch.nan, dtype=one.dtype)
        view = flat_buffer[1:].view(sizes)[..., ::2, :]
        view.copy_(one)
        return view

    strided = {
        name: between(one) if name != "betas" else one.mT.contiguous().mT for name, one in x.items()
    }
    assert not strided["queries"].is_contiguous()
    got = call(strided, return_state=True)
    assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))
    # Keys first in memory, as a projection split by columns gives them.
    turned = x | {"keys": x["keys"].transpose(-1, -2).contiguous().transpose(-1, -2)}
    assert torch.equal(call(turned), wanted[0])


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gates", ["head", "token", "channel"])
def test_nan_in_pads_reaches_no_gradient(kind, gates, composed):
    x = problem(kind, gates, 20)
    short = {
        name: one[1:, :7] if name in TOKENS and one.dim() > 1 else one for name, one in x.items()
    } | {"initial_state": x["initial_state"][1:]}
    for name in TOKENS:
        if name in x and x[name].dim() > 1:
            x[name] = x[name].clone()
            x[name][1, 7:] = torch.nan
    for one in (*x.values(), *short.values()):
        one.requires_grad_()
    before = TARN.force_composed(composed)
    try:
        out, state = call(x, lengths=torch.tensor([0, 7]), return_state=True)
        wanted, last = call(short, return_state=True)
        ours = torch.autograd.grad(out.square().sum() + state[1].sum(), list(x.values()))
        theirs = torch.autograd.grad(wanted.square().sum() + last.sum(), list(short.values()))
    finally:
        TARN.force_composed(before)
    assert torch.equal(state[0], x["initial_state"][0])
    for name, one, other in zip(x, ours, theirs, strict=True):
        if name in TOKENS and x[name].dim() > 1:
            assert not one[0].any() and not one[1, 7:].any(), name
            one, other = one[1, :7], other[0]
        elif name == "initial_state":
            one, other = one[1], other[0]
        assert error(one, other) <= 1e-6, name


def test_float64_gates_of_float32_queries():
    """They are no more exact than the state; their gradient has their dtype."""
    x = problem("delta", "channel", 20)
    y = x | {name: x[name].double().requires_grad_() for name in ("gates", "betas")}
    before = TARN.force_composed(False)
    for composed in (False, True):
        TARN.force_composed(composed)
        out, state = call(y, return_state=True)
        (slope,) = torch.autograd.grad(out.sum(), y["gates"])
        assert out.dtype == state.dtype == torch.float32 and slope.dtype == torch.float64
        assert error(out, call(x)) <= 1e-6
    TARN.force_composed(before)


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_0(kind):
    x = problem(kind, "token", 5)
    empty = {name: one if name == "bonus" else one[:0] for name, one in x.items()}
    out, state = call(empty, return_state=True)
    assert out.shape == (0, 5, 4, 3) and state.shape == (0, 4, 5, 3)
    rows = one_row({name: one[:, :0] if name in TOKENS else one for name, one in x.items()}, 2)
    out, state = call(rows, cu_seqlens=torch.tensor([0, 0, 0]), return_state=True)
    assert out.shape == (1, 0, 4, 3) and torch.equal(state, rows["initial_state"])
    no_rows = one_row(rows, 0)
    assert call(no_rows, cu_seqlens=torch.tensor([0]), return_state=True)[1].shape == (0, 4, 5, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_gradcheck_and_compilation(kind, dtype):
    """float64 composes: followed by a compiler, bounds stay unread, and give the same."""
    x = one_row(problem(kind, "token", 19, dtype))
    names = list(x)

    def function(bounds, *tensors):
        return call(dict(zip(names, tensors, strict=True)), cu_seqlens=bounds, return_state=True)

    tensors = [one.requires_grad_() for one in x.values()]
    wanted = function(STARTS, *tensors)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    got = compiled(STARTS, *tensors)
    moved = compiled(torch.tensor([0, 0, 11, 19]), *tensors)
    for ours, theirs in zip(
        (*got, *moved), (*wanted, *function(torch.tensor([0, 0, 11, 19]), *tensors)), strict=True
    ):
        assert error(ours, theirs) <= BOUND[dtype]
    given = torch.autograd.grad(sum(one.sum() for one in got), tensors)
    for name, one, other in zip(
        names, given, torch.autograd.grad(sum(one.sum() for one in wanted), tensors), strict=True
    ):
        assert error(one, other) <= 3 * BOUND[dtype], name


@pytest.mark.parametrize("kind", KINDS)
def test_second_order_of_the_kernels(kind):
    x = {name: one.requires_grad_() for name, one in problem(kind, "token", 9).items()}
    y = {name: one.requires_grad_() for name, one in doubles(x).items()}

    def slopes(of):
        first = torch.autograd.grad(call(of).square().sum(), list(of.values()), create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), list(of.values()))

    for name, one, wanted in zip(x, slopes(x), slopes(y), strict=True):
        assert error(one, wanted) <= 1e-5, name


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lengths": torch.tensor([4, 5])}, r"lengths\[1\]: want 0 to 4, got 5"),
        ({"lengths": torch.tensor([-1, 4])}, r"lengths\[0\]: want 0 to 4, got -1"),
        ({"cu_seqlens": torch.tensor([0, 3])}, r"cu_seqlens: want 0, ..., 4, got 0, ..., 3"),
        ({"cu_seqlens": torch.tensor([0, 3, 2, 4])}, r"cu_seqlens\[2\]: want at least 3, got 2"),
    ],
)
def test_numbers_that_do_not_fit(composed, options, words):
    x = problem("decay", "token", 4)
    if "cu_seqlens" in options:
        x = one_row(x, options["cu_seqlens"].shape[0] - 1)
    before = TARN.force_composed(composed)
    try:
        with pytest.raises(ValueError, match=words):
            call(x, **options)
    finally:
        TARN.force_composed(before)


def test_autocast_casts_operands_alone():
    x = problem("delta", "token", 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, state = call(x, return_state=True)
    assert out.dtype == torch.bfloat16 and state.dtype == torch.float32
    halves = x | {name: x[name].bfloat16() for name in ("queries", "keys", "values")}
    assert torch.equal(out, call(halves))


def test_the_same_operator_for_every_order_of_heads():
    """Value head h reads the queries and keys of head h // group."""
    x = problem("delta", "token", 33)
    group = x["values"].shape[2] // x["queries"].shape[2]
    wide = x | {name: x[name].repeat_interleave(group, 2) for name in ("queries", "keys")}
    assert error(call(x), call(wide)) <= 1e-6
    with ops.composed_forms():
        assert error(call(x), call(wide)) <= 1e-6
