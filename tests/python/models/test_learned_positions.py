"""A table of learned positions has an end: what would pass it is refused by name, before
any work, with the state as it was."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tarn
from tarn import models, runtime

ROWS = 6
SIZES = dict(vocab_size=19, d_model=8, n_layers=2, n_heads=2, d_ff=12)
SIZES |= dict(positions="learned", max_positions=ROWS)


def make(cls: Callable[..., Any] = models.LanguageModel, **keys: Any) -> Any:
    torch.manual_seed(2)
    return cls(**SIZES, **keys).eval()


def tokens(*shape):
    return torch.randint(19, shape)


def refused(name, call, given):
    wanted = f"{name}: want at most max_positions = 6 positions, those before included"
    with pytest.raises(ValueError, match=f"^{wanted}, got {given}$"):
        call()


def copies(state):
    return [{name: tensor.clone() for name, tensor in one.tensors.items()} for one in state]


def same(state, before):
    for one, tensors in zip(state, before, strict=True):
        assert all(torch.equal(one.tensors[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("gradients", (True, False))
@pytest.mark.parametrize("attention", ("linear", "full"))
def test_language_model(attention, gradients):
    model = make(attention=attention)
    with torch.set_grad_enabled(gradients):
        assert model(tokens(2, ROWS)).shape == (2, ROWS, 19)
        refused("LanguageModel: tokens", lambda: model(tokens(2, ROWS + 1)), 7)
        refused("LanguageModel: tokens", lambda: model.prefill(tokens(2, 8)), 8)
        _, state = model.prefill(tokens(2, 4))
        refused("LanguageModel: tokens", lambda: model.prefill(tokens(2, 3), state=state), 7)
        for _ in range(2):
            _, state = model.step(tokens(2), state)
        before, steps = copies(state), [one.steps.clone() for one in state]
        refused("LanguageModel: tokens", lambda: model.step(tokens(2), state), 7)
        same(state, before)
        assert all(torch.equal(one.steps, was) for one, was in zip(state, steps, strict=True))


@torch.no_grad()
def test_one_sequence_of_a_batch_is_enough():
    model = make()
    _, state = model.prefill(tokens(2, 6), lengths=torch.tensor([2, 6]))
    before = copies(state)
    refused("LanguageModel: tokens", lambda: model.step(tokens(2), state), 7)
    same(state, before)


@torch.no_grad()
def test_classifiers():
    model = make(models.Classifier, n_classes=3)
    assert model(tokens(2, ROWS)).shape == (2, 3)
    # The padding has positions, too.
    lengths = torch.tensor([1, 2])
    refused("Classifier: tokens", lambda: model(tokens(2, 7), lengths), 7)
    model = make(models.FrameClassifier, n_classes=3, input_dim=5)
    assert model(torch.randn(2, ROWS, 5)).shape == (2, ROWS, 3)
    refused("FrameClassifier: tokens", lambda: model(torch.randn(2, 7, 5)), 7)


@torch.no_grad()
def test_both_sides_of_pairs():
    model = make(models.Seq2Seq)
    assert model(tokens(2, ROWS), tokens(2, ROWS)).shape == (2, ROWS, 19)
    refused("Seq2Seq: tokens", lambda: model(tokens(2, 7), tokens(2, 3)), 7)
    refused("Seq2Seq: target_in", lambda: model(tokens(2, 3), tokens(2, 7)), 7)
    refused("Seq2Seq: tokens", lambda: model.initial_state(tokens(2, 9)), 9)
    state = model.initial_state(tokens(2, ROWS))
    refused("Seq2Seq: tokens", lambda: model.prefill(tokens(2, 7), state), 7)
    _, state = model.prefill(tokens(2, ROWS), state)
    refused("Seq2Seq: tokens", lambda: model.step(tokens(2), state), 7)


@torch.no_grad()
def test_searches_end_with_the_positions():
    torch.manual_seed(3)
    model, source = make(models.Seq2Seq), tokens(1, 4)
    model.predictor.bias[7] = -1e9  # the end is never written
    written = models.greedy(model, source, end=7, max_tokens=100)
    assert written == models.greedy(model, source, end=7, max_tokens=ROWS)
    assert len(written[0]) == ROWS
    found = models.beam_search(model, source[0], end=7, beam=3, max_tokens=100)
    assert found == models.beam_search(model, source[0], end=7, beam=3, max_tokens=ROWS)
    assert all(len(one.tokens) == ROWS for one in found)


def test_generation_is_refused_at_its_start():
    model, calls = make(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    for name in ("prefill", "step"):
        inner = getattr(model, name)
        setattr(model, name, lambda *a, inner=inner, **k: calls.append(1) or inner(*a, **k))
    with pytest.raises(ValueError, match="generate: max_tokens: want at most 4: the model has 6"):
        models.generate(model, tokens(2, 3), 5)
    with pytest.raises(ValueError, match="generate: prompt: want at most 6 tokens.*got 7"):
        models.generate(model, tokens(2, 7), 0)
    assert not calls
    for start, count in ((3, 4), (1, 6), (6, 1), (6, 0)):
        assert models.generate(model, tokens(2, start), count).shape == (2, count)


@pytest.mark.parametrize("keys", (
    dict(positions="sinusoidal"), dict(positions="rotary"), dict(positions="none"),
), ids=str)  # fmt: skip
@torch.no_grad()
def test_other_positions_have_no_end(keys):
    model = models.LanguageModel(**SIZES | keys).eval()
    assert model(tokens(1, 3 * ROWS)).isfinite().all()
    assert models.generate(model, tokens(1, 3 * ROWS), 3 * ROWS).shape == (1, 3 * ROWS)


def test_compiled():
    model = make()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (3, 4, ROWS):
        given = tokens(2, length)
        torch.testing.assert_close(compiled(given), model(given))
    with pytest.raises(Exception, match="max_positions = 6"):
        compiled(tokens(2, ROWS + 1))


@torch.no_grad()
def test_exported():
    """The length stays free up to the table's end, and the program refuses what is longer."""
    model = make()
    length = torch.export.Dim("length", max=ROWS)
    program = torch.export.export(
        model, (tokens(2, 4),), dynamic_shapes=({0: torch.export.Dim("batch"), 1: length},)
    ).module()
    for count in (2, 3, ROWS):
        given = tokens(3, count)
        torch.testing.assert_close(program(given), model(given))
    with pytest.raises(Exception, match="6"):
        program(tokens(3, ROWS + 1))


def test_runtime(tmp_path):
    torch.manual_seed(2)
    sizes = {**SIZES, "vocab_size": 256}
    tarn.save_model(models.LanguageModel(**sizes), tmp_path / "text")
    model = runtime.Model(tmp_path / "text")
    state, limit = model.state(), "the model has 6 learned positions"
    with pytest.raises(ValueError, match=f"tokens: want at most 6: {limit}.*got 7"):
        model.prefill(state, [1] * 7)
    with pytest.raises(ValueError, match=f"max_tokens: want at most 4: {limit}.*got 5"):
        model.generate("ab", max_tokens=5, state=state)
    assert state.position == 0
    model.generate("ab", state=state)  # as many as there are positions for
    assert state.position == 6
    before = state.clone()
    for call in (lambda: model.step(state, 1), lambda: model.score(state, [1]),
                 lambda: model.step_batch([model.state(), state], [1, 1])):  # fmt: skip
        with pytest.raises(ValueError, match="want at most 0 more"):
            call()
    assert state == before
    tarn.save_model(models.Seq2Seq(**sizes), tmp_path / "pairs")
    pairs = runtime.Model(tmp_path / "pairs")
    with pytest.raises(ValueError, match=f"want at most 6: {limit}"):
        pairs.translate("abcdefg")
    assert all(len(one.tokens) <= 6 for one in pairs.beam_search(["abcdef"], beam=3)[0])
