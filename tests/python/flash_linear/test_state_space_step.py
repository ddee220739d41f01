"""torch.ops.tarn.state_space_step_, the token of Mamba-2 in place, by its definition in
float64 and by the function that calls it."""

import pytest
import torch

import tarn
from tarn import fla


def problem(rows, heads=6, groups=2, width=5, states=7):
    draw = torch.Generator().manual_seed(rows + heads)

    def normal(*sizes):
        return torch.randn(*sizes, generator=draw)

    return {
        "state": normal(rows, heads, width, states),
        "x": normal(rows, heads, width),
        "dt": normal(rows, heads),
        "A": -normal(heads).abs(),
        "B": normal(rows, groups, states),
        "C": normal(rows, groups, states),
        "D": normal(heads),
        "dt_bias": normal(heads),
    }


def reference(state, x, dt, A, B, C, D=None, dt_bias=None, dt_softplus=True):
    heads = x.shape[1] // max(B.shape[1], 1)
    B, C = (one.repeat_interleave(heads, 1) for one in (B, C))
    step = dt if dt_bias is None else dt + dt_bias
    step = torch.log1p(step.exp()) if dt_softplus else step
    new = state * (step * A).exp()[..., None, None]
    new = new + (step[..., None] * x)[..., None] * B[:, :, None]
    out = (new * C[:, :, None]).sum(-1)
    return new, out if D is None else out + D[:, None] * x


def step(given, softplus=True):
    words = ("state", "x", "dt", "A", "B", "C", "D", "dt_bias")
    return torch.ops.tarn.state_space_step_(*(given.get(word) for word in words), softplus)


def error(ours, theirs):
    return float((ours.double() - theirs).norm() / theirs.norm().clamp_min(1e-30))


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("less", [(), ("D",), ("D", "dt_bias")])
@pytest.mark.parametrize(
    ("rows", "shape"),
    [
        (0, {}),
        (1, {}),
        (1, dict(groups=1)),
        (3, {}),
        (9, {}),
        (2, dict(heads=0, groups=1)),
        (1, dict(heads=24, groups=1, width=64, states=128)),
        (1, dict(width=1, states=1)),
    ],
)
def test_is_its_definition(rows, shape, less, softplus, composed):
    x = {name: one for name, one in problem(rows, **shape).items() if name not in less}
    new, wanted = reference(**{name: one.double() for name, one in x.items()}, dt_softplus=softplus)
    if composed:
        with tarn.ops.composed_forms():
            out = step(x, softplus)
    else:
        out = step(x, softplus)
    assert out.shape == wanted.shape and error(out, wanted) <= 2e-6
    assert error(x["state"], new) <= 2e-6


def test_autocast_and_threads_change_no_bit():
    x = problem(3, heads=24, groups=2, width=64, states=128)
    found, before = [], torch.get_num_threads()
    for threads, autocast in ((1, False), (2, False), (1, True)):
        given = {name: one.clone() for name, one in x.items()}
        torch.set_num_threads(threads)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            found.append((step(given), given["state"]))
    torch.set_num_threads(before)
    for out, state in found[1:]:
        assert torch.equal(out, found[0][0]) and torch.equal(state, found[0][1])


REFUSED = {
    "x": (lambda one: one[:, :4], r"x: want \[2, 6, 5\], got \[2, 4, 5\]"),
    "A": (lambda one: one.double(), "A: want"),
    "B": (lambda one: one.repeat(1, 2, 1), "B: want groups that divide 6"),
    "C": (lambda one: one[..., :3], "C: want"),
    "D": (lambda one: one[:2], "D: want"),
    "state": (lambda one: one.mT, "state: want 4 axes, contiguous"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_change_nothing(name):
    change, message = REFUSED[name]
    x = problem(2)
    before = x["state"].clone()
    with pytest.raises((ValueError, TypeError), match="state_space_step_: " + message):
        step(x | {name: change(x[name])})
    assert torch.equal(x["state"], before)


def called(calls):
    with torch.profiler.profile() as profile:
        calls()
    return "tarn::state_space_step_" in [event.name for event in profile.events()]


@pytest.mark.parametrize("gate", [False, True])
def test_state_updates_take_it_outside_of_autograd(gate):
    x = problem(2)
    expanded = {
        "A": x["A"][:, None, None].expand(6, 5, 7),
        "dt": x["dt"][..., None].expand(2, 6, 5),
        "x": x["x"],
        "B": x["B"],
        "C": x["C"],
        **{name: x[name][:, None].expand(6, 5) for name in ("D", "dt_bias")},
    }
    if gate:
        expanded["z"] = torch.randn(2, 6, 5)
    ours, theirs = x["state"].clone(), x["state"].clone()
    found = []
    with torch.no_grad():
        assert called(
            lambda: found.append(fla.selective_state_update(ours, dt_softplus=True, **expanded))
        )
    assert not called(
        lambda: found.append(fla.selective_state_update(theirs, dt_softplus=True, **expanded))
    )
    assert error(found[0], found[1].double()) <= 2e-6 and error(ours, theirs.double()) <= 2e-6
