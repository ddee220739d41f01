"""How modules are made: on the meta device and filled later, under torch's default dtype
and device, and called under other defaults than those they were made under."""

import inspect

import pytest
import torch
from module_cases import CASES

from tarn import attention, feature_maps, models, nn

KINDS = pytest.mark.parametrize("name", CASES)
ABSTRACT = {"FeatureMap", "Mixer"}


def made(name):
    """A module with other numbers than a new one has, its inputs and its result."""
    case = CASES[name]
    module = case.make().eval()
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.mul_(1.1)
    inputs = case.inputs(2, 9)
    with torch.no_grad():
        return module, inputs, module(*inputs)


def on_meta(name):
    with torch.device("meta"):
        module = CASES[name].make().eval()
    tensors = module.state_dict()
    assert all(tensor.is_meta for tensor in tensors.values()), "every tensor is on meta"
    return module


def test_every_public_module_has_a_case():
    wanted = {
        value
        for package in (attention, feature_maps, models, nn)
        for name, value in vars(package).items()
        if name in package.__all__ and inspect.isclass(value)
        if issubclass(value, torch.nn.Module) and name not in ABSTRACT
    }
    found = {type(module) for case in CASES.values() for module in case.make().modules()}
    assert wanted <= found


@KINDS
def test_filled_after_meta(name):
    twin, inputs, wanted = made(name)
    assigned, copied = on_meta(name), on_meta(name).to_empty(device="cpu")
    copied.load_state_dict(twin.state_dict())
    assigned.load_state_dict(twin.state_dict(), assign=True)
    with torch.no_grad():
        assert torch.equal(assigned(*inputs), wanted)
        assert torch.equal(copied(*inputs), wanted)


@KINDS
def test_a_call_does_not_read_torchs_defaults(name):
    module, inputs, wanted = made(name)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), torch.no_grad():
            out = module(*inputs)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(out, wanted)


@KINDS
def test_made_in_float64(name):
    """Under the default dtype float64 a module is what .double() makes of another."""
    twin, inputs, _ = made(name)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        module = CASES[name].make().eval()
    finally:
        torch.set_default_dtype(before)
    assert all(p.dtype == torch.float64 for p in module.parameters())
    module.load_state_dict(twin.state_dict())
    inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    with torch.no_grad():
        out = module(*inputs)
        assert out.dtype == torch.float64
        assert torch.equal(out, twin.double()(*inputs))


def with_states(module, x, memory):
    """Results of pieces of rows x, the last of them of two lengths; an error where the module
    has no recurrent form."""
    try:
        state = module.initial_state(*memory) if memory else None
        first, state = module.prefill(x[:, :5], state=state)
        second, state = module.step(x[:, 5], state)
        lengths = {} if memory else {"lengths": [3, 2]}
        third, state = module.prefill(x[:, 6:], state=state, **lengths)
    except ValueError as error:
        return str(error)
    return torch.cat([first, second[:, None], third[:, :2]], 1)


@pytest.mark.parametrize("name", [name for name in CASES if hasattr(CASES[name].make(), "prefill")])
def test_states_do_not_read_torchs_defaults(name):
    """The steps of a state are on the CPU, whatever torch's default device is."""
    module, (x, *memory), _ = made(name)
    with torch.no_grad():
        wanted = with_states(module, x, memory)
        with torch.device("meta"):
            given = with_states(module, x, memory)
    assert given == wanted if isinstance(wanted, str) else torch.equal(given, wanted)
