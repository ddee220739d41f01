"""torch.ops.tarn.language_step: one call against the operators that it replaces, in
float64, and what it refuses."""

import contextlib

import pytest
import torch
from torch.library import opcheck

from tarn import ops

operator = torch.ops.tarn.language_step.default
VOCAB, HEADS, WIDTH, HIDDEN, PLACES, LAYERS = 11, 2, 8, 13, 9, 2


def step(**call):
    """The results for one token: (logits, S, z)."""
    *results, later, chosen = operator(**call)
    places = call["places"]
    assert torch.equal(later, torch.ones(1, dtype=torch.int64) if places is None else places + 1)
    assert chosen == []
    return tuple(results)


def make(batch, dtype=torch.float32, attention="linear", past=3):
    """Arguments by name, without those of the table, random. past: tokens of a
    state; 0: none."""
    generator = torch.Generator().manual_seed(batch + past)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    one = [(WIDTH, WIDTH), (WIDTH,)] * 4 + [(WIDTH,), (WIDTH,), (HIDDEN, WIDTH), (HIDDEN,)]
    one += [(WIDTH, HIDDEN), (WIDTH,), None, (WIDTH,), (WIDTH,)]
    each = WIDTH // HEADS
    shapes = [(batch, HEADS, each, each), (batch, HEADS, each)]
    if attention == "full":
        shapes = [(batch, past, HEADS, each)] * 2
    first, second = [[random(*shape).abs() for _ in range(LAYERS)] for shape in shapes]
    return dict(
        tokens=torch.randint(VOCAB, (batch,), generator=generator),
        places=torch.full((batch,), past) if past else None,
        embedding=random(VOCAB, WIDTH),
        positions=None,
        sinusoidal=True,
        head=random(7, WIDTH),
        head_bias=random(7),
        S=first if past else [],
        z=second if past else [],
        weights=[None if shape is None else random(*shape) for shape in one * LAYERS],
        gamma=random(WIDTH),
        beta=random(WIDTH),
        n_heads=HEADS,
        attention=attention,
    )


def widened(value):
    if isinstance(value, list):
        return [widened(part) for part in value]
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if floating else value


def by_operators(call):
    """The same by other operators of torch and this package."""
    call = dict(call)
    x = torch.nn.functional.embedding(call.pop("tokens"), call.pop("embedding"))
    places, table = call.pop("places"), call.pop("positions")
    places = torch.zeros(1, dtype=torch.int64) if places is None else places
    if call.pop("sinusoidal"):
        x = x + torch.ops.tarn.sinusoidal_rows(places, WIDTH).to(x)
    elif table is not None:
        x = x + table[places]
    head, bias = call.pop("head"), call.pop("head_bias")
    if call.pop("attention") == "full":
        call["keys"], call["values"] = call.pop("S"), call.pop("z")
        out, S, z = torch.ops.tarn.full_layers_step(x, **call)
    else:
        out, S, z = torch.ops.tarn.linear_layers_step(x, **call)
    return torch.nn.functional.linear(out, head, bias), S, z


def same(got, want, near):
    torch.testing.assert_close(got[0], want[0].to(got[0]), atol=near, rtol=near)
    for some, others in zip(got[1:], want[1:], strict=True):
        assert len(some) == len(others) == LAYERS
        for a, b in zip(some, others, strict=True):
            torch.testing.assert_close(a, b.to(a), atol=near, rtol=near)


POSITIONS = {
    "sinusoidal": {},
    "none": dict(sinusoidal=False),
    "learned": dict(sinusoidal=False, positions=torch.randn(PLACES, WIDTH)),
}


@pytest.mark.parametrize("batch", (0, 1, 3, 9))
@pytest.mark.parametrize("attention", ("linear", "full"))
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("past", (0, 3))
def test_equals_the_operators_in_float64(batch, attention, positions, past):
    call = make(batch, attention=attention, past=past) | POSITIONS[positions]
    got = step(**call)
    want = by_operators({name: widened(value) for name, value in call.items()})
    assert got[0].dtype == torch.float32 and got[0].shape == (batch, 7)
    same(got, want, 2e-5)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("change", ({}, dict(head_bias=None), dict(pre_norm=True)))
def test_equals_its_composed_form(positions, change):
    call = make(3) | POSITIONS[positions] | change
    got = step(**call)
    with ops.composed_forms():
        want = step(**call)
    same(got, want, 4e-5)


def test_places_of_each_row():
    call = make(3) | POSITIONS["learned"] | dict(places=torch.tensor([0, 4, PLACES - 1]))
    same(step(**call), by_operators(call), 1e-5)
    call |= dict(sinusoidal=True, positions=None, places=torch.tensor([0, 4, 1000]))
    same(step(**call), by_operators(call), 1e-5)
    one = call | dict(places=torch.tensor([4]))
    same(step(**one), step(**one | dict(places=torch.tensor([4, 4, 4]))), 0.0)


@pytest.mark.parametrize("composed", (False, True))
@pytest.mark.parametrize(("places", "count", "most"), (
    (torch.tensor([0, PLACES, 1]), 1, PLACES - 1),
    (torch.tensor([PLACES]), 1, PLACES - 1),
    (torch.tensor([0, 1, PLACES - 1]), 2, PLACES - 2),
    (None, PLACES + 1, -1),
))  # fmt: skip
def test_places_past_the_table_are_refused(composed, places, count, most):
    call = make(3, past=0 if places is None else 3) | POSITIONS["learned"] | dict(places=places)
    call |= dict(head=torch.randn(VOCAB, WIDTH), head_bias=None, count=count)
    with contextlib.ExitStack() as stack:
        if composed:
            stack.enter_context(ops.composed_forms())
        with pytest.raises(ValueError, match=f"language_step: places: want at most {most}, for"):
            operator(**call)


@pytest.mark.parametrize("composed", (False, True))
@pytest.mark.parametrize("attention", ("linear", "full"))
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("noisy", (False, True))
@pytest.mark.parametrize("past", (0, 3))
def test_tokens_that_follow(composed, attention, positions, noisy, past):
    """Each is the one that the logits before it choose, with noise if there is any."""
    count, call = 4, make(3, attention=attention, past=past) | POSITIONS[positions]
    # A model may read what it chooses: it has as many outputs as there are tokens.
    call |= dict(head=torch.randn(VOCAB, WIDTH), head_bias=torch.randn(VOCAB))
    noise = 3 * torch.randn(count - 1, 3, VOCAB) if noisy else None
    with contextlib.ExitStack() as stack:
        if composed:
            stack.enter_context(ops.composed_forms())
        logits, S, z, later, (tokens, best) = operator(**call, count=count, noise=noise)
        one = dict(call)
        for i in range(count):
            want, one["S"], one["z"] = step(**one)
            if i + 1 == count:
                break
            most, token = (want if noise is None else want + noise[i]).max(dim=1)
            assert torch.equal(tokens[i], token) and torch.equal(best[i], most)
            one["tokens"], one["places"] = token, torch.tensor([past + i + 1])
    same((logits, S, z), (want, one["S"], one["z"]), 0.0)
    assert (later == past + count).all()


def test_strided_tensors():
    call = make(3) | POSITIONS["learned"]
    strided = dict(call)
    for name in ("embedding", "positions", "head"):
        strided[name] = call[name].t().contiguous().t()
    strided["tokens"] = call["tokens"].repeat_interleave(2)[::2]
    strided["places"] = call["places"].repeat_interleave(2)[::2]
    same(step(**strided), step(**call), 0.0)


@pytest.mark.parametrize("positions", ("sinusoidal", "learned"))
def test_gradients(positions):
    call = make(2, torch.float64) | POSITIONS[positions]
    call["positions"] = widened(call["positions"])
    names = ["embedding", "head", "head_bias", "gamma"]
    names += ["positions"] if positions == "learned" else []

    def of(*tensors):
        return step(**call | dict(zip(names, tensors, strict=True)))[0]

    assert torch.autograd.gradcheck(of, [call[name].requires_grad_() for name in names])
    narrow = make(2) | POSITIONS[positions]
    narrow["embedding"].requires_grad_()
    step(**narrow)[0].sum().backward()
    assert narrow["embedding"].grad is not None


def test_opcheck_and_meta():
    call = make(2)
    more = call | dict(count=3, noise=torch.randn(2, 2, 7))
    opcheck(operator, (), more, test_utils=("test_schema", "test_faketensor"))
    opcheck(operator, (), call, test_utils=("test_schema", "test_faketensor"))

    def to_meta(value):
        if isinstance(value, list):
            return [to_meta(part) for part in value]
        return value.to("meta") if isinstance(value, torch.Tensor) else value

    logits, S, *_ = operator(**{name: to_meta(value) for name, value in call.items()})
    assert logits.shape == (2, 7) and S[0].shape == call["S"][0].shape


@pytest.mark.parametrize("composed", (False, True))
@pytest.mark.parametrize(
    "change, error, named",
    [
        (dict(tokens=torch.zeros(2)), TypeError, "tokens: want Long"),
        (dict(tokens=torch.zeros(1, 2, dtype=torch.int64)), ValueError, r"tokens: want \[B\]"),
        (dict(places=torch.zeros(2)), TypeError, "places: want Long"),
        (dict(places=torch.zeros(3, dtype=torch.int64)), ValueError, r"places: want \[B\]"),
        (dict(embedding=torch.zeros(4)), ValueError, r"embedding: want \[vocabulary, D\]"),
        (dict(positions=torch.zeros(4, WIDTH)), ValueError, "positions: want none where"),
        (
            dict(positions=torch.zeros(4, 3), sinusoidal=False),
            ValueError,
            "positions: want",
        ),
        (dict(head=torch.zeros(7, 5)), ValueError, "head: want"),
        (dict(head=torch.zeros(0, WIDTH)), ValueError, "head: want at least one row"),
        (dict(head_bias=torch.zeros(6)), ValueError, "head_bias: want"),
        (dict(attention="local"), ValueError, "attention: want 'linear' or 'full'"),
        (dict(gamma=torch.zeros(3)), ValueError, "gamma: want"),
        (dict(S=[]), ValueError, "S, z: want none, or 2 of each"),
        (dict(count=0), ValueError, "count: want at least 1, got 0"),
        (dict(count=2, noise=torch.zeros(2, 2, 7)), ValueError, "noise: want"),
    ],
)
def test_arguments_are_checked(composed, change, error, named):
    with contextlib.ExitStack() as stack:
        if composed:
            stack.enter_context(ops.composed_forms())
        with pytest.raises(error, match=named):
            step(**make(2) | change)


def test_tokens_and_places_are_checked():
    with pytest.raises(ValueError, match="tokens: want 0 to 10, got 11"):
        step(**make(2) | dict(tokens=torch.tensor([1, 11])))
    with pytest.raises(ValueError, match="tokens: want 0 to 10, got -1"):
        step(**make(2) | dict(tokens=torch.tensor([-1, 1])))
    with pytest.raises(ValueError, match="places: want 0 to .*, got -1"):
        step(**make(2) | dict(places=torch.tensor([-1, 1])))
