"""How tests compare functions that tarn.accelerate_transformers() replaces with tarn's."""

import importlib

import torch
from tarn import _transformers_methods as methods

# Of norms. A smaller type is compared with their form in float32, of the same numbers.
TOLERANCE = {torch.float32: 5e-5, torch.bfloat16: 2e-2}


def file(folder):
    return importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")


def config(folder, stem, **options):
    found = importlib.import_module(f"transformers.models.{folder}.configuration_{folder}")
    return getattr(found, stem + "Config")(**options)


def both(call, dtype=None):
    """The results of a call by their form, and by tarn's in this dtype."""
    if dtype is None:
        theirs = call()
        methods.install()
        return theirs, call()
    theirs = call(torch.float32)
    methods.install()
    return theirs, call(dtype)


def agree(theirs, ours, dtype=torch.float32):
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        assert ours.shape == theirs.shape
        assert dtype != torch.float32 or ours.dtype == theirs.dtype
        distance = (ours.float() - theirs.float()).norm()
        assert distance <= TOLERANCE[dtype] * theirs.float().norm() + 1e-7
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(theirs, ours):
            agree(one, other, dtype)
    else:
        assert ours == theirs


def drawn(module):
    draw = torch.Generator().manual_seed(1)
    for weight in module.parameters():
        weight.data = (0.3 * torch.randn(weight.shape, generator=draw)).bfloat16().float()
    return module


def rows(*shape, dtype=torch.float32, seed=0):
    """Numbers that every type holds."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw).bfloat16().to(dtype)
