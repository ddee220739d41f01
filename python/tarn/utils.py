"""What fits no other module."""

from __future__ import annotations

import torch

__all__ = ["make_mirror"]


def make_mirror(src_module: torch.nn.Module, dst_module: torch.nn.Module) -> None:
    """Makes dst_module use the very parameters and buffers of src_module: a
    recurrent model becomes the twin of a batch model, random feature maps
    included.

    Both are changed together afterwards, except for buffers that a module sets
    anew (random maps that draw in training): mirror again then.
    Raises ValueError where dst_module lacks a name or a shape differs, before
    anything is set.
    """
    tensors = [*src_module.named_parameters(), *src_module.named_buffers()]
    places = []
    for name, tensor in tensors:
        owner_name, _, leaf = name.rpartition(".")
        try:
            owner = dst_module.get_submodule(owner_name)
            shape = getattr(owner, leaf).shape
        except AttributeError:
            raise ValueError(f"make_mirror: dst_module: want {name}, got none") from None
        if shape != tensor.shape:
            raise ValueError(
                f"make_mirror: dst_module: {name}: want {list(tensor.shape)}, got {list(shape)}"
            )
        places.append((owner, leaf, tensor))
    for owner, leaf, tensor in places:
        setattr(owner, leaf, tensor)
