"""Functions that fit no other module."""

from __future__ import annotations

import torch

from tarn.feature_maps import FeatureMap

__all__ = ["make_mirror"]


def make_mirror(src_module: torch.nn.Module, dst_module: torch.nn.Module) -> None:
    """Makes dst_module use the very parameters and buffers of src_module: a
    recurrent model becomes the twin of a batch model, random feature maps
    included.

    Both are changed together afterwards. Random feature maps are shared as
    modules, so that what one draws in training the other uses. Other buffers are
    shared where dst_module has one of the same name and shape: a table of
    positions need not exist, nor be as long.
    Raises ValueError where dst_module lacks a parameter or a feature map's
    buffer, or its shape differs, before anything is set.
    """
    maps = {
        name: module
        for name, module in src_module.named_modules()
        if isinstance(module, FeatureMap) and next(module.buffers(), None) is not None
    }
    tensors: list[tuple[str, torch.Tensor, bool]] = [
        (name, tensor, True) for name, tensor in src_module.named_parameters()
    ]
    for name, tensor in src_module.named_buffers():
        tensors.append((name, tensor, name.rpartition(".")[0] in maps))
    places = []
    for name, tensor, wanted in tensors:
        owner_name, _, leaf = name.rpartition(".")
        try:
            owner = dst_module.get_submodule(owner_name)
            shape = getattr(owner, leaf).shape
        except AttributeError:
            if not wanted:
                continue
            raise ValueError(f"make_mirror: dst_module: want {name}, got none") from None
        if shape != tensor.shape:
            if not wanted:
                continue
            raise ValueError(
                f"make_mirror: dst_module: {name}: want {list(tensor.shape)}, got {list(shape)}"
            )
        places.append((owner, leaf, tensor))
    for owner, leaf, tensor in places:
        setattr(owner, leaf, tensor)
    for name, module in maps.items():
        owner_name, _, leaf = name.rpartition(".")
        setattr(dst_module.get_submodule(owner_name), leaf, module)
