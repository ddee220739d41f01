"""A device other than the CPU that every machine has: tensors of torch's
"privateuseone" backend whose data is in CPU memory, so that what runs on "any
device" can be run, not only traced. Whatever reads such a tensor as if it were on
the CPU, or mixes the two devices, fails as it would on a GPU."""

import functools

import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_map

NAME = "elsewhere:0"
# Operators that may take tensors of both devices: copies.
_COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class DeviceTensor(torch.Tensor):
    """A tensor elsewhere; its values are those of `inner`, on the CPU."""

    @staticmethod
    def __new__(cls, inner):
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=NAME
        )
        tensor.inner = inner
        return tensor

    def __repr__(self):
        return f"DeviceTensor({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


def _run(func, args, kwargs):
    plain, out_on_cpu = [], False

    def unwrap(x):
        if isinstance(x, DeviceTensor):
            return x.inner
        if isinstance(x, torch.Tensor) and x.dim() > 0:
            plain.append(x)  # numbers may come from the CPU, as on a GPU
        return x

    args = tree_map(unwrap, args)
    kwargs = tree_map(unwrap, kwargs)
    if plain and func not in _COPIES:
        raise RuntimeError(f"{func}: tensors on cpu and on {NAME}")
    device = kwargs.get("device")
    if device is not None:
        out_on_cpu = torch.device(device).type == "cpu"
        kwargs["device"] = torch.device("cpu")
    result = func(*args, **kwargs)
    if func is torch.ops.aten.copy_.default and plain:
        return plain[0] if plain[0] is args[0] else result
    if out_on_cpu:
        return result
    return tree_map(lambda x: DeviceTensor(x) if isinstance(x, torch.Tensor) else x, result)


def _inplace_safe(func):
    return lambda *args, **kwargs: _run(func, args, kwargs)


class _Module(backend_registration._DummyBackendModule):
    """torch.elsewhere; tools that ask every device for its generator get that of the
    CPU, so that other tests of the process run as before."""

    def get_rng_state(self, device=None):
        return torch.get_rng_state()

    def set_rng_state(self, state, device=None):
        torch.set_rng_state(state)


@functools.cache
def install():
    """Registers the device and what makes tensors on it; once per process."""
    backend_registration._setup_privateuseone_for_python_backend("elsewhere", _Module())
    library = torch.library.Library("aten", "IMPL")
    for name in (
        "empty.memory_format",
        "empty_strided",
        "arange",
        "arange.start",
        "arange.start_step",
        "zeros",
        "ones",
        "full",
        "scalar_tensor",
    ):
        overload = name.split(".")
        func = getattr(
            getattr(torch.ops.aten, overload[0]), overload[1] if len(overload) > 1 else "default"
        )
        library.impl(name, _inplace_safe(func), "PrivateUse1")
    return library


def on_device(x):
    """The same values there; a leaf that requires what x requires."""
    if not isinstance(x, torch.Tensor):
        return x
    return DeviceTensor(x.detach().clone()).requires_grad_(x.requires_grad)


def on_cpu(x):
    return x.detach().inner if isinstance(x.detach(), DeviceTensor) else x.detach()
