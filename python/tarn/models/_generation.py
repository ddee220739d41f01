"""Tokens from a model: sampling, greedy and beam search over states that are
values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tarn import recurrent


@torch.no_grad()
def generate(
    model: torch.nn.Module,
    prompt: torch.Tensor,
    max_tokens: int,
    *,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Continues prompts [B, T] (T >= 1) of a LanguageModel by max_tokens tokens
    each: [B, max_tokens]. temperature 0 takes the best. O(1) a token for linear
    attention. `tarn.runtime` is the fast way; this one is for training loops.
    Raises ValueError where logits to draw from are not finite."""
    if prompt.dim() == 2 and prompt.shape[1] == 1:  # a step is the lighter call
        logits, state = model.step(prompt[:, 0])  # type: ignore[operator]
    else:
        logits, state = model.prefill(prompt)  # type: ignore[operator]
        logits = logits[:, -1]
    out: list[torch.Tensor] = []
    for left in reversed(range(max_tokens)):
        token = _sample(logits, temperature, generator) if temperature > 0 else logits.argmax(-1)
        out.append(token)
        if left > 0:
            logits, state = model.step(token, state)  # type: ignore[operator]
    return torch.stack(out, dim=1) if out else prompt[:, :0]


def _sample(
    logits: torch.Tensor, temperature: float, generator: torch.Generator | None
) -> torch.Tensor:
    """One token of each row [B, vocab_size], the same that torch.multinomial draws
    from the softmax, by its method without its passes over the weights: weight i
    over an exponential variable is the largest with probability w_i / sum(w)."""
    logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    weights = torch.softmax(logits, dim=-1)
    if not math.isfinite(weights.sum().item()):
        raise ValueError("generate: logits: want finite numbers, got NaN or infinite ones")
    return weights.div_(torch.empty_like(weights).exponential_(generator=generator)).argmax(-1)


@dataclass(frozen=True)
class Beam:
    """A target and its score: the sum of log-probabilities, the end's included,
    over (number of tokens)^length_penalty."""

    tokens: list[int]
    score: float


@torch.no_grad()
def greedy(
    model: torch.nn.Module,
    tokens: torch.Tensor,
    lengths: torch.Tensor | None = None,
    *,
    end: int,
    max_tokens: int = 256,
) -> list[list[int]]:
    """The best token at each place, for every row of sources [B, T] of a
    Seq2Seq, up to `end` (not part of the result; it is also the first input)."""
    state = model.initial_state(tokens, lengths)  # type: ignore[operator]
    batch = tokens.shape[0]
    token = tokens.new_full((batch,), end)
    done = torch.zeros(batch, dtype=torch.bool, device=tokens.device)
    out: list[list[int]] = [[] for _ in range(batch)]
    for _ in range(max_tokens):
        logits, state = model.step(token, state)  # type: ignore[operator]
        token = logits.argmax(dim=-1)
        done = done | (token == end)
        if bool(done.all()):
            break
        for row, (value, over) in enumerate(zip(token.tolist(), done.tolist(), strict=True)):
            if not over:
                out[row].append(value)
    return out


@torch.no_grad()
def beam_search(
    model: torch.nn.Module,
    tokens: torch.Tensor,
    *,
    end: int,
    beam: int = 4,
    max_tokens: int = 256,
    length_penalty: float = 1.0,
) -> list[Beam]:
    """The best targets of ONE source [T] of a Seq2Seq, at most `beam`, best
    first. Each survivor's state is a reordered copy. beam 1 is greedy. Ties go
    to the earlier beam, then the lower id. Raises ValueError."""
    if beam < 1 or max_tokens < 1:
        raise ValueError(f"beam, max_tokens: want at least 1, got {beam} and {max_tokens}")
    state = model.initial_state(tokens[None])  # type: ignore[operator]
    alive: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Beam] = []

    def finish(total: float, written: list[int], places: int) -> None:
        finished.append(Beam(written, total / max(places, 1) ** length_penalty))

    for place in range(max_tokens):
        last = [written[-1] if written else end for _, written in alive]
        logits, state = model.step(tokens.new_tensor(last), state)  # type: ignore[operator]
        chances = torch.log_softmax(logits.double(), dim=-1)
        totals = chances + chances.new_tensor([total for total, _ in alive])[:, None]
        count = min(2 * beam, totals.numel())
        # A stable sort keeps ties in order; topk does not promise it.
        order = torch.sort(totals.flatten(), descending=True, stable=True)
        survivors, rows = [], []
        for value, index in zip(
            order.values[:count].tolist(), order.indices[:count].tolist(), strict=True
        ):
            row, token = divmod(index, totals.shape[1])
            if token == end:
                if len(survivors) < beam:
                    finish(value, alive[row][1], place + 1)
            elif len(survivors) < beam:
                survivors.append((value, [*alive[row][1], token]))
                rows.append(row)
        alive = survivors
        if len(finished) >= beam or not alive:
            break
        state = recurrent.reorder(state, rows)
    else:
        for total, written in alive:
            finish(total, written, len(written))
    return sorted(finished, key=lambda found: -found.score)[:beam]
