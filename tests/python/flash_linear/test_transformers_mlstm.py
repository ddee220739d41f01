"""The mLSTM cell of transformers' xLSTM after tarn.accelerate_transformers() against its own:
states that go on, the modes of training, smaller types."""

import pytest
import torch

pytest.importorskip("transformers")
from tarn import _transformers_methods as methods  # noqa: E402
from transformers_method_checks import TOLERANCE, agree, both, config, file, rows  # noqa: E402


@pytest.fixture(autouse=True)
def originals():
    methods.restore()
    yield
    methods.restore()


def backend(**options):
    module = file("xlstm")
    words = {"hidden_size": 128, "num_heads": 2, "num_hidden_layers": 2, "chunk_size": 16}
    return module.xLSTMBackend(config("xlstm", "xLSTM", **words, **options))


def cell(seq_len, dtype=torch.float32):
    inputs = [rows(2, 2, seq_len, width, dtype=dtype, seed=width) for width in (32, 33, 64)]
    query, key, value = inputs[0], inputs[1][..., :32], inputs[2]
    igate, fgate = 3 * rows(2, 2, seq_len, seed=1), 3 + 3 * rows(2, 2, seq_len, seed=2)
    return query, key, value, *(gate.bfloat16().to(dtype) for gate in (igate, fgate))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("lengths", [(48,), (40, 1, 1), (1, 17)])
def test_mlstm(dtype, lengths, gradient):
    layer = backend()

    def call(dtype):
        states, found = (None, None, None), []
        for part in zip(*(one.split(lengths, 2) for one in cell(sum(lengths), dtype))):
            out, states = layer(*part, *states)
            found.append((out, *states))
        return found

    with torch.set_grad_enabled(gradient):
        agree(*both(call, dtype), dtype)


@pytest.mark.parametrize(
    ("mode", "last", "seq_len"),
    [("train", True, 48), ("train", False, 48), ("train_with_padding", False, 41)],
)
def test_mlstm_modes_of_training(mode, last, seq_len):
    layer = backend(mode=mode, return_last_states=last)

    def call():
        inputs = [one.clone().requires_grad_() for one in cell(seq_len)]
        found = layer(*inputs)
        out, states = found if last else (found, None)
        loss = out.square().sum()
        for state in states or ():
            loss = loss + state.square().sum()
        loss.backward()
        return out.detach(), [one.grad for one in inputs]

    agree(*both(call))


def test_mlstm_under_autocast():
    methods.install()
    layer, inputs = backend(), cell(40)
    out, states = layer(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again, others = layer(*inputs)
    assert torch.equal(again, out)
    assert all(torch.equal(one, other) for one, other in zip(states, others))


def test_mlstm_refuses_what_its_class_refuses():
    def call():
        refusals = []
        for options, seq_len in (
            ({"mode": "train"}, 41),
            ({"mode": "train_with_padding", "return_last_states": True}, 41),
            ({}, 0),
        ):
            with pytest.raises(ValueError) as refusal:
                backend(**options)(*cell(seq_len))
            refusals.append(str(refusal.value))
        return refusals

    theirs, ours = both(call)
    assert ours == theirs
