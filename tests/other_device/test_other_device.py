"""Every operator runs on a device without kernels, forward and backward, with the
results of the CPU; nothing is fetched but what its docstring says."""

import operator_cases
import other_device
import pytest
import torch
from operator_cases import CASES, first
from torch._subclasses.fake_tensor import FakeTensorMode

LIBRARY = other_device.install()
DEVICE = torch.device(other_device.NAME)


@pytest.fixture
def masks_there(monkeypatch):
    for name in ("KEPT", "LENGTHS", "STARTS"):
        moved = other_device.on_device(getattr(operator_cases, name))
        monkeypatch.setattr(operator_cases, name, moved)


def random_x(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.randn(2, 6, 2, 4, dtype=dtype, requires_grad=True)


def with_gradient(call, x):
    out = first(call(x))
    out.square().sum().backward()
    return out.detach(), x.grad


# Dropout draws where it runs, with another generator than the CPU's.
@pytest.mark.parametrize("name", sorted(name for name in CASES if "dropout" not in name))
def test_gives_what_the_cpu_gives(name, masks_there):
    _, call = CASES[name]
    operator_on_cpu = _with_masks_on_cpu(call)
    out, gradient = with_gradient(operator_on_cpu, random_x())
    x = other_device.on_device(random_x())
    with torch.device(DEVICE):
        there, there_gradient = with_gradient(call, x)
    assert there.device == DEVICE and there_gradient.device == DEVICE
    for got, wanted in ((there, out), (there_gradient, gradient)):
        assert torch.allclose(other_device.on_cpu(got), wanted, rtol=1e-4, atol=1e-5)


def _with_masks_on_cpu(call):
    def run(x):
        names = ("KEPT", "LENGTHS", "STARTS")
        there = {name: getattr(operator_cases, name) for name in names}
        try:
            for name, tensor in there.items():
                setattr(operator_cases, name, other_device.on_cpu(tensor))
            return call(x)
        finally:
            for name, tensor in there.items():
                setattr(operator_cases, name, tensor)

    return run


@pytest.mark.parametrize("name", CASES)
def test_fake_tensors_stay_there(name, masks_there):
    """They are what a compiler traces: shapes and devices alone."""
    _, call = CASES[name]
    wanted = first(_with_masks_on_cpu(call)(random_x()))
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device(DEVICE):
        for name in ("KEPT", "LENGTHS", "STARTS"):
            mask = getattr(operator_cases, name)
            setattr(operator_cases, name, torch.empty(mask.shape, dtype=mask.dtype))
        out = first(call(torch.empty(2, 6, 2, 4)))
    assert out.device == DEVICE and out.shape == wanted.shape and out.dtype == wanted.dtype


def move(module):
    """Moves parameters and buffers of the module there, in place."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                moved = other_device.on_device(parameter)
                part._parameters[name] = torch.nn.Parameter(moved, parameter.requires_grad)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None:
                part._buffers[name] = other_device.on_device(buffer)
    return module


SMALL = dict(vocab_size=32, d_model=24, n_layers=2, n_heads=3, d_ff=40, max_positions=32)
STACKS = [
    dict(),
    dict(layers=["linear", "full"], norm_kind="rms", feed_forward="swiglu"),
    dict(positions="rotary"),
    dict(layers=["linear", "aft-simple"]),
    dict(layers=["rwkv7", "full"], feed_forward="channel-mix"),
    dict(layers=["linear", {"mixer": "local", "local_context": 5}], positions="sinusoidal"),
    dict(layers=[{"mixer": "linear", "feature_map": "favor"}, "exact-topk"], norm="post"),
    dict(layers=["aft-full", "linear"], activation="relu"),
    dict(layers=["gdn", "mamba2"], norm_kind="rms", feed_forward="swiglu"),
    dict(layers=["kda", "gated-full"], key_heads=1, positions="rotary", rotary_width=4),
    dict(layers=["rwkv7", "retnet"], positions="rotary"),
    dict(layers=["hgrn2", "rwkv6"]),
    dict(layers=["gla", "deltanet"]),
    dict(layers=["mamba1", "full"]),
    dict(layers=["short-conv", "rg-lru"]),
    dict(layers=["mlstm"]),
    dict(layers=["mamba2+full"]),
]


@pytest.mark.parametrize("keys", STACKS, ids=str)
def test_a_model_trains_and_generates_there(keys):
    from tarn import models

    torch.manual_seed(0)
    # Evaluation: no directions are redrawn, and nothing is dropped.
    model = models.LanguageModel(**SMALL, **keys).eval()
    tokens = torch.randint(32, (2, 9))
    out = model(tokens)
    out.square().mean().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    move(model)
    there = other_device.on_device(tokens)
    got = model(there)
    got.square().mean().backward()
    torch.testing.assert_close(other_device.on_cpu(got), out.detach(), rtol=1e-4, atol=1e-5)
    for name, parameter in model.named_parameters():
        assert parameter.grad.device == DEVICE
        got = other_device.on_cpu(parameter.grad)
        torch.testing.assert_close(got, gradients[name], rtol=1e-3, atol=1e-6)
    with torch.no_grad():
        first, state = model.prefill(there[:, :5])
        row, state = model.step(there[:, 5], state)
    torch.testing.assert_close(other_device.on_cpu(row), out[:, 5].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["AdamW", "RAdam"])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_the_optimiser_steps_there(kind, clip):
    """Parameters and their state stay there and become what they become on the CPU."""
    from tarn import optim

    torch.manual_seed(0)
    here = [torch.nn.Parameter(torch.randn(shape)) for shape in [(5, 3), (7,)]]
    there = [torch.nn.Parameter(other_device.on_device(p.detach())) for p in here]
    for parameters in (here, there):
        steps = getattr(optim, kind)(parameters, lr=0.02, clip=clip)
        for _ in range(4):
            steps.zero_grad()
            sum(p.square().sum() / 2 for p in parameters).backward()
            steps.step()
    for a, b in zip(there, here):
        assert a.device == steps.state[a]["m"].device == DEVICE
        assert torch.allclose(other_device.on_cpu(a), b.detach(), rtol=1e-5, atol=1e-6)


def test_what_mixes_devices_fails():
    x = other_device.on_device(torch.randn(2, 4))
    with pytest.raises((RuntimeError, ValueError), match="cpu"):
        torch.ops.tarn.affine(x, torch.randn(3, 4))


@torch.no_grad()
def test_a_step_of_a_layer_gives_what_the_cpu_gives():
    width, heads, hidden = 8, 2, 12
    shapes = [(width, width), (width,)] * 4 + [(width,)] * 2
    shapes += [(hidden, width), (hidden,), (width, hidden), (width,), None, (width,), (width,)]
    torch.manual_seed(0)
    weights = [None if shape is None else torch.randn(shape) for shape in shapes]
    tensors = torch.randn(3, width), torch.randn(3, heads, 4, 4), torch.rand(3, heads, 4)

    def step(x, S, z, weights):
        out, S, z = torch.ops.tarn.linear_layers_step.default(
            x, [S], [z], weights, None, None, heads
        )
        return out, S[0], z[0]

    wanted = step(*tensors, weights)
    there = [None if weight is None else other_device.on_device(weight) for weight in weights]
    with torch.device(DEVICE):
        got = step(*map(other_device.on_device, tensors), there)
    for a, b in zip(got, wanted, strict=True):
        assert a.device == DEVICE
        assert torch.allclose(other_device.on_cpu(a), b, rtol=1e-4, atol=1e-5)
