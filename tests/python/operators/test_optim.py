"""tarn.optim and its operators against formulas in float64 and torch's AdamW."""

import subprocess
import sys

import pytest
import torch

import tarn

KINDS = [tarn.optim.AdamW, tarn.optim.RAdam]


def leaves(dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    shapes = [(3, 4), (4, 5), (7,), (33, 21)]
    made = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    return [x.to(dtype).requires_grad_() for x in made]


def loss(p):
    return (p[0] @ p[1]).tanh().sub(0.3).square().sum() + p[2].square().sum() + p[3].cos().sum()


def train(params, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss(params).backward()
        optimizer.step()
    return params


def close(a, b, bound):
    assert (a.double() - b.double()).abs().max() <= bound


def test_adamw_agrees_with_torch():
    options = dict(lr=0.02, weight_decay=0.05)
    ours, theirs = leaves(), leaves()
    train(ours, tarn.optim.AdamW(ours, **options), 40)
    train(theirs, torch.optim.AdamW(theirs, **options), 40)
    for a, b in zip(ours, theirs):
        close(a, b, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_kernel_equals_composed_double(kind, clip):
    given = train(p := leaves(), kind(p, lr=0.02, clip=clip), 12)
    if clip:
        wanted = clipped_double(kind, clip, 12)
    else:
        wanted = train(p := leaves(torch.float64), kind(p, lr=0.02), 12)
    for a, b in zip(given, wanted):
        close(a, b, 3e-6)


def clipped_double(kind, clip, steps):
    """Clipping by torch's own function before a step without it."""
    params = leaves(torch.float64)
    optimizer = kind(params, lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(params).backward()
        groups = [params] if kind is tarn.optim.AdamW else [[p] for p in params]
        for group in groups:
            norm = torch.stack([p.grad.norm() for p in group]).norm()
            for p in group:
                p.grad.mul_(min(1.0, clip / norm))
        optimizer.step()
    return params


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_continues_to_the_bit(kind):
    straight = train(p := leaves(), kind(p, lr=0.03, clip=1.0), 11)
    resumed = leaves()
    first = kind(resumed, lr=0.03, clip=1.0)
    train(resumed, first, 4)
    second = kind(resumed, lr=0.9)
    second.load_state_dict(first.state_dict())
    train(resumed, second, 7)
    for a, b in zip(straight, resumed):
        assert torch.equal(a, b)


def test_threads_give_the_same_bits():
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        p = torch.linspace(-1, 1, 100_000).requires_grad_()
        optimizer = tarn.optim.RAdam([p], clip=1.0)
        for _ in range(8):
            p.grad = p.detach().sin()
            optimizer.step()
        results.append(p.detach())
    assert all(torch.equal(r, results[0]) for r in results)


def test_parameters_without_gradient_stay():
    p = leaves()
    optimizer = tarn.optim.AdamW(p)
    before = p[1].detach().clone()
    p[0].grad = torch.ones_like(p[0])
    optimizer.step()
    assert torch.equal(p[1].detach(), before) and p[0].detach().ne(leaves()[0]).any()


def test_refuses_before_work():
    step = torch.ops.tarn.adam_step_.default
    p, g, m, v = (torch.ones(3) for _ in range(4))
    with pytest.raises(ValueError, match="kind: want one of adamw, radam, got sgd"):
        step([p], [g], [m], [v], [], "sgd", 1, 0.1)
    with pytest.raises(ValueError, match="gradients: want 1 entries, got 0"):
        step([p], [], [m], [v], [], "adamw", 1, 0.1)
    with pytest.raises(ValueError, match=r"m: want \[3\], got \[2\]"):
        step([p], [g], [m[:2]], [v], [], "adamw", 1, 0.1)
    with pytest.raises(ValueError, match="update: want at least 1"):
        step([p], [g], [m], [v], [], "adamw", 0, 0.1)
    with pytest.raises(TypeError, match="gradients: want Float, got Double"):
        step([p], [g.double()], [m], [v], [], "adamw", 1, 0.1)
    with pytest.raises(ValueError, match="dense tensors, got a strided one"):
        step([torch.ones(6)[::2]], [g], [m], [v], [], "adamw", 1, 0.1)
    assert torch.equal(p, torch.ones(3))
    with pytest.raises(ValueError, match="RAdam: clip: want a number >= 0"):
        tarn.optim.RAdam([p], clip=-1)


def test_it_needs_no_other_part_of_the_package():
    """It runs in a separate process, where nothing else has loaded the operators."""
    program = (
        "import torch, tarn.optim\n"
        "p = torch.ones(3, requires_grad=True)\n"
        "p.grad = torch.ones(3)\n"
        "tarn.optim.AdamW([p]).step()\n"
        "assert (p < 1).all()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
