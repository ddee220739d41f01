"""The functions and methods that tarn.accelerate_transformers() replaces, one by one, against
those that it replaces: states that go on, positions, smaller types."""

import subprocess
import sys
import types

import pytest
import torch

pytest.importorskip("transformers")
from tarn import _transformers_methods as methods  # noqa: E402
from transformers_method_checks import TOLERANCE, agree, both, config, drawn, file, rows  # noqa: E402


@pytest.fixture(autouse=True)
def originals():
    methods.restore()
    yield
    methods.restore()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("seq_len", [1, 5, 70])
def test_convolution(dtype, seq_len):
    module = file("lfm3")

    def call(dtype):
        x = rows(2, 6, seq_len, dtype=dtype)
        weight, kept = rows(6, 7, dtype=dtype), rows(2, 6, 7, dtype=dtype)
        with torch.no_grad():
            return (
                module.causal_conv1d_fn(x, weight, seq_idx=None),
                module.causal_conv1d_update(x[..., :1], kept, weight),
                kept,
            )

    agree(*both(call, dtype), dtype)


def test_convolution_of_other_widths_and_activations():
    module = file("lfm3")
    x = rows(2, 6, 12)

    def call():
        wide, narrow = rows(6, 9), rows(6, 3)
        return module.causal_conv1d_fn(x, wide), module.causal_conv1d_fn(x, narrow, None, "gelu")

    theirs, ours = both(call)
    assert all(torch.equal(one, other) for one, other in zip(theirs, ours))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("lengths", [(40,), (33, 1), (7, 20, 1)])
def test_lightning(dtype, lengths):
    module = file("minimax")
    words = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 3}
    words |= {"head_dim": 16, "block_size": 16, "layer_types": ["linear_attention"] * 3}
    layer = drawn(module.MiniMaxLightningAttention(config("minimax", "MiniMax", **words), 1))
    mask = torch.ones(2, sum(lengths), dtype=torch.bool)
    mask[1, :4] = False

    def call(dtype):
        x, cache = rows(2, sum(lengths), 32, dtype=dtype), module.MiniMaxCache()
        layer.to(dtype)
        with torch.no_grad():
            return [
                layer(part, None, keep, past_key_values=cache)
                for part, keep in zip(x.split(lengths, 1), mask.split(lengths, 1))
            ]

    agree(*both(call, dtype), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("lengths", [(30,), (20, 1, 1), (1, 9)])
def test_rg_lru(dtype, lengths):
    module = file("recurrent_gemma")
    words = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 3}
    layer = drawn(module.RecurrentGemmaRglru(config("recurrent_gemma", "RecurrentGemma", **words)))
    # The second row holds two sequences; the first goes on after the state.
    positions = torch.arange(sum(lengths)) + torch.tensor([[3], [0]])
    positions[1, 4:] -= 4

    def call(dtype):
        x = rows(2, sum(lengths), 32, dtype=dtype)
        layer.to(dtype)
        layer.recurrent_states = rows(2, 32, seed=2)
        with torch.no_grad():
            found = [
                layer(*parts) for parts in zip(x.split(lengths, 1), positions.split(lengths, 1))
            ]
        return found, layer.recurrent_states

    agree(*both(call, dtype), dtype)


def test_rg_lru_gradients_at_the_bound_of_the_root():
    """Gates next to 1, where the root's slope is beyond the bound of 1000. Their form in
    float32 loses the digits of 1 - a^2, so the other side is theirs in float64."""
    module = file("recurrent_gemma")
    words = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3}
    layer = drawn(module.RecurrentGemmaRglru(config("recurrent_gemma", "RecurrentGemma", **words)))
    layer.recurrent_param.data.fill_(-17.0)

    def call(dtype):
        layer.to(dtype).zero_grad()
        layer.recurrent_states = None
        x = rows(1, 9, 8, dtype=dtype).requires_grad_()
        layer(x, torch.arange(9)[None]).square().sum().backward()
        return [x.grad, *(weight.grad.clone() for weight in layer.parameters())]

    theirs = [one.float() for one in call(torch.float64)]
    methods.install()
    agree(theirs, call(torch.float32))


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("seq_len", [1, 2, 65])
def test_wkv(given, seq_len):
    module = file("rwkv")
    decay, first = rows(8, seed=1), rows(8, seed=2)
    keys, values = 4 * rows(2, seq_len, 8, seed=3), rows(2, seq_len, 8, seed=4)
    state = [rows(2, 8, seed=5), rows(2, 8, seed=6).abs(), rows(2, 8, seed=7)] if given else None

    def call():
        inputs = [one.clone().requires_grad_() for one in (decay, first, keys, values)]
        out, after = module.rwkv_linear_attention(*inputs, state=state, return_state=given)
        out.square().sum().backward()
        return out.detach(), after and [one.detach() for one in after], [i.grad for i in inputs]

    agree(*both(call))


def test_autocast_does_not_round_sums():
    module = file("rwkv")
    inputs = [rows(8, seed=1), rows(8, seed=2), rows(2, 40, 8, seed=3), rows(2, 40, 8, seed=4)]
    methods.install()
    out = module.rwkv_linear_attention(*inputs)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module.rwkv_linear_attention(*inputs)[0], out)


def test_convolution_and_rg_lru_under_autocast():
    convolution = file("lfm3").causal_conv1d_fn
    module = file("recurrent_gemma")
    words = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 3}
    layer = drawn(module.RecurrentGemmaRglru(config("recurrent_gemma", "RecurrentGemma", **words)))
    x, weight = rows(2, 6, 20, dtype=torch.bfloat16), rows(6, 7)

    def call():
        layer.recurrent_states = None
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            out = layer(rows(2, 20, 32, dtype=torch.bfloat16), torch.arange(20)[None])
            return file("lfm3").causal_conv1d_fn(x, weight), out

    theirs, ours = both(call)
    assert [one.dtype for one in ours] == [one.dtype for one in theirs]
    agree(theirs, ours, torch.bfloat16)
    assert file("lfm3").causal_conv1d_fn is not convolution


def test_wkv_of_long_sequences_and_large_keys():
    module = file("rwkv")
    decay, first = torch.linspace(-6, 3, 8), rows(8)
    keys, values = 40 * rows(1, 400, 8, seed=3), rows(1, 400, 8, seed=4)
    agree(*both(lambda: module.rwkv_linear_attention(decay, first, keys, values)[0]))


def test_every_entry_is_replaced_and_put_back():
    def functions():
        found = {}
        for folder, paths in methods.TABLE.items():
            for path in paths:
                holder, name = methods._holder(file(folder), path)
                found[folder, path] = getattr(holder, name)
        return found

    before = functions()
    methods.install()
    methods.install()
    for entry, function in functions().items():
        assert function is not before[entry] and isinstance(function, types.FunctionType)
        assert function.__wrapped__ is before[entry]
    methods.restore()
    methods.restore()
    assert functions() == before


def test_export_and_float64_take_theirs():
    module = file("rwkv")
    inputs = [rows(4), rows(4), rows(1, 5, 4), rows(1, 5, 4)]
    wide = [one.double() for one in inputs]
    theirs, ours = both(lambda: module.rwkv_linear_attention(*wide)[0])
    assert torch.equal(ours, theirs)

    class Attention(torch.nn.Module):
        def forward(self, *inputs):
            return module.rwkv_linear_attention(*inputs)[0]

    program = torch.export.export(Attention(), tuple(inputs))
    assert not any("tarn" in str(node.target) for node in program.graph.nodes)


def test_files_are_changed_at_import():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import tarn, inspect, sys; tarn.accelerate_transformers(linear=False)\n"
            "name = 'transformers.models.lfm3.modeling_lfm3'\n"
            "assert name not in sys.modules\n"
            "from transformers.models.lfm3 import modeling_lfm3 as file\n"
            "assert file.causal_conv1d_fn.__tarn__\n"
            "assert 'Lfm3' in inspect.getsource(file.Lfm3ShortConv)\n"
            "tarn.restore_transformers()\n"
            "assert not hasattr(file.causal_conv1d_fn, '__tarn__')\n"
            "from transformers.models.rwkv import modeling_rwkv as other\n"
            "assert not hasattr(other.rwkv_linear_attention, '__tarn__')\n",
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
