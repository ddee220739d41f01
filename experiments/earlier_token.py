"""What one more token costs: the models before transformers and both kinds of
attention, after contexts of different lengths, by the Python package."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tarn.models import make_model

JsonDict = dict[str, Any]
Step = Callable[[], object]
_VOCABULARY = 65  # characters of the text; any size would do
_STEPS = 40  # timed in a row


def _step_after(model: Any, context: torch.Tensor) -> Step:
    """A call that reads one token more, and leaves the state as it was."""
    arch = model.config["arch"]
    token = context[:, -1]
    if arch == "decoder":
        _, state = model.prefill(context)
        return lambda: model.step(token, state)
    if arch == "cnn":
        # All that it sees of the context, read again: it keeps no state.
        seen = 1 + model.config["n_layers"] * (model.config["kernel_size"] - 1)
        window = context[:, -seen:]
        return lambda: model(window)[:, -1]
    _, state = model.rnn(model.value_embedding(context))

    def step() -> object:
        out, _ = model.rnn(model.value_embedding(token[:, None]), state)
        return model.predictor(out, model.value_embedding.weight)

    return step


def _microseconds(step: Step) -> float:
    """The median of some calls."""
    for _ in range(3):
        step()
    times = []
    for _ in range(_STEPS):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


def token_times(
    models: Mapping[str, JsonDict],
    contexts: Sequence[int],
    rounds: int,
    threads: int,
    seed: int,
    told: Callable[[float], None],
) -> list[JsonDict]:
    """A row a kind and context: the median over the rounds, in each of which all
    are timed in turn, and its range. `models` are keys of config.json by kind;
    weights are random, which changes no time."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    rows = []
    with torch.inference_mode():
        steps = {}
        for kind, keys in models.items():
            model = make_model(vocab_size=_VOCABULARY, **keys).eval()
            for context in contexts:
                tokens = torch.randint(_VOCABULARY, (1, context))
                steps[kind, context] = _step_after(model, tokens)
        times: dict[tuple[str, int], list[float]] = {key: [] for key in steps}
        for index in range(rounds):
            for key, step in steps.items():
                times[key].append(_microseconds(step))
            told((index + 1) / rounds)
    for (kind, context), found in times.items():
        rows.append(
            {
                "kind": kind,
                "context": context,
                "us": statistics.median(found),
                "least_us": min(found),
                "most_us": max(found),
            }
        )
    return rows
