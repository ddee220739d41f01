"""Every operator on CUDA, by kernels or composed, gives what the CPU gives."""

import operator_cases
import pytest
import torch
from operator_cases import CASES, first

MASKS = ("KEPT", "LENGTHS", "STARTS")


def with_gradient(call, x):
    out = first(call(x))
    out.square().sum().backward()
    return out.detach().cpu(), x.grad.cpu()


# Dropout draws where it runs, with another generator than the CPU's.
DRAWS = {name for name in CASES if "dropout" in name} | {"layer rest post"}


@pytest.mark.parametrize("name", sorted(CASES.keys() - DRAWS))
def test_gives_what_the_cpu_gives(name, monkeypatch):
    _, call = CASES[name]
    x = torch.randn(2, 6, 2, 4, requires_grad=True)
    wanted = with_gradient(call, x)
    for mask in MASKS:
        monkeypatch.setattr(operator_cases, mask, getattr(operator_cases, mask).cuda())
    there = x.detach().cuda().requires_grad_()
    with torch.device("cuda"):
        found = with_gradient(call, there)
    for ours, theirs in zip(found, wanted, strict=True):
        # Sums in another order differ by parts of the largest numbers.
        assert (ours - theirs).abs().max() <= 2e-5 * theirs.abs().max().clamp_min(1)


@pytest.mark.parametrize("name", sorted(CASES))
def test_runs_in_bfloat16(name, monkeypatch):
    _, call = CASES[name]
    for mask in MASKS:
        monkeypatch.setattr(operator_cases, mask, getattr(operator_cases, mask).cuda())
    x = torch.randn(2, 6, 2, 4, device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16), torch.device("cuda"):
        out = first(call(x))
    out.float().square().sum().backward()
    assert out.is_cuda and bool(torch.isfinite(x.grad).all())
