"""Modules as exported programs of any batch and any length: one program gives what the
module gives, on either side of 256 tokens and for one token."""

import pytest
import torch
from module_cases import FRAME, LAYERS, MIXERS, MODELS, STACKS, D, WORDS
from torch.export import Dim, export

from tarn import models, nn, ops

CASES = {**LAYERS, **MODELS, **STACKS}
EXAMPLE, SIZES = (3, 11), ((1, 1), (2, 16), (2, 255), (1, 256), (3, 257))
# The largest length of a program where there is one: conditional-full attends in another way
# past its limit, and aft-full has a table of positions.
MOST = {"conditional-full": 16, "aft-full": 300}
# torch unrolls these over the length of the example.
UNROLLED = [name for name in MODELS if "Recurrent" in name]
# Every layer and model with trained weights, every mixer with frozen ones too; a model of one
# mixer adds nothing to its layer.
TRAINED = [
    name
    for name in CASES
    if name not in UNROLLED and name.removeprefix("LanguageModel ") not in MIXERS or name in MIXERS
]


def most_of(name):
    return next((most for part, most in MOST.items() if part in name), 4096)


def exported(name, module):
    """The program of a module for any batch and, for each length among its inputs, any."""
    inputs, batch, lengths = CASES[name].inputs(*EXAMPLE), Dim("batch", max=64), {}
    for x in inputs:
        lengths.setdefault(x.shape[1], Dim(f"length_{len(lengths)}", max=most_of(name)))
    shapes = tuple({0: batch, 1: lengths[x.shape[1]]} for x in inputs)
    return export(module, inputs, dynamic_shapes=(shapes,) if name in STACKS else shapes).module()


@pytest.mark.parametrize(
    "name, trained", [(name, True) for name in TRAINED] + [(name, False) for name in MIXERS]
)
def test_one_program_for_all_sizes(name, trained):
    module = CASES[name].make().eval().requires_grad_(trained)
    program = exported(name, module)
    for batch, seq_len in SIZES:
        if seq_len <= most_of(name):
            inputs = CASES[name].inputs(batch, seq_len)
            with torch.no_grad():
                torch.testing.assert_close(program(*inputs), module(*inputs), rtol=1e-5, atol=1e-5)


class Scan(torch.nn.Module):
    """One of the scans that keep states for a gradient every few tokens."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.rates = torch.nn.Parameter(-torch.rand(D, 4))

    def forward(self, x):
        if self.kind == "elementwise":
            return ops.elementwise_recurrence(x, -x.square() * self.rates.square().sum(1))
        keys = x[..., :4]
        return ops.selective_scan(x, x.square(), self.rates, keys, keys)


@pytest.mark.parametrize("kind", ["elementwise", "selective"])
def test_a_trained_scan_has_one_program_for_all_sizes(kind):
    module = Scan(kind)
    shapes = ({0: Dim("batch", max=64), 1: Dim("length", max=4096)},)
    program = export(module, (torch.randn(*EXAMPLE, D),), dynamic_shapes=shapes).module()
    for batch, seq_len in SIZES:
        x = torch.randn(batch, seq_len, D)
        torch.testing.assert_close(program(x), module(x), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("name", UNROLLED)
def test_recurrent_models_for_any_batch(name):
    module = CASES[name].make().eval()
    example = CASES[name].inputs(*EXAMPLE)
    program = export(module, example, dynamic_shapes=({0: Dim("batch")},)).module()
    for batch in (1, 2, 5):
        inputs = CASES[name].inputs(batch, EXAMPLE[1])
        torch.testing.assert_close(program(*inputs), module(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["exact-topk", "gdn", "rwkv7"])
def test_an_exported_program_trains(kind):
    module = CASES[kind].make()
    program = exported(kind, module)
    (x,) = CASES[kind].inputs(2, 300)
    for each in (module, program):
        each(x).square().mean().backward()
    found = dict(program.named_parameters())
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(found[name].grad, parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["linear", "gdn"])
def test_masks_are_inputs_too(kind):
    stack = nn.Encoder(1, D, 2, mixer=kind).eval()
    shapes = ({0: Dim("batch"), 1: Dim("length")},) * 2
    example = torch.randn(*EXAMPLE, D), torch.ones(EXAMPLE, dtype=torch.bool)
    program = export(stack, example, dynamic_shapes=shapes).module()
    x, kept = torch.randn(2, 257, D), torch.arange(257) < torch.tensor([[257], [40]])
    torch.testing.assert_close(program(x, kept), stack(x, kept), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cls", [models.Classifier, models.FrameClassifier, models.CnnModel])
def test_lengths_are_inputs_too(cls):
    frames = cls is models.FrameClassifier
    task = {"task": "ctc", "input_dim": FRAME} if frames else {"task": "classify"}
    sizes = {"vocab_size": WORDS, "d_model": D, "n_heads": 2, "n_layers": 1, "n_classes": 3}
    model = cls(**sizes, **task).eval()

    def inputs(batch, seq_len):
        x = torch.randn(batch, seq_len, FRAME) if frames else torch.randint(WORDS, (batch, seq_len))
        return x, torch.randint(seq_len + 1, (batch,))

    batch = Dim("batch")
    shapes = {0: batch, 1: Dim("length", max=1024)}, {0: batch}  # of the table of positions
    program = export(model, inputs(*EXAMPLE), dynamic_shapes=shapes).module()
    for size in SIZES:
        x, lengths = inputs(*size)
        torch.testing.assert_close(program(x, lengths), model(x, lengths), rtol=1e-5, atol=1e-5)
