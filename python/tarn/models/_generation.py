"""Tokens from a model: sampling, greedy and beam search over states that are
values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tarn import recurrent
from tarn.models._language_step import language_text
from tarn.models._tokens import positions_of, want_axes
from tarn.ops._checks import value_error


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
    each: [B, max_tokens]. temperature 0 takes the best. O(1) per token for linear
    attention. `tarn.runtime` is faster; this function is for training loops.
    Raises ValueError where the largest logit is not finite, and before any work where
    prompt and tokens need more than the model's learned positions."""
    want_axes("generate", "prompt", prompt, "BT")
    if prompt.shape[1] == 0:
        raise value_error("generate", "prompt", "at least one token", "[B, 0]")
    rows = positions_of(model)
    if rows is not None:
        limit = f"the model has {rows} learned positions (max_positions)"
        if prompt.shape[1] > rows:
            wanted = f"at most {rows} tokens: {limit}"
            raise value_error("generate", "prompt", wanted, prompt.shape[1])
        most = rows - prompt.shape[1] + 1  # the last token is not read
        if max_tokens > most:
            raise value_error("generate", "max_tokens", f"at most {most}: {limit}", max_tokens)
    if prompt.shape[1] == 1:  # a step is the cheaper call
        logits, state = model.step(prompt[:, 0])  # type: ignore[operator]
    else:
        logits, state = model.prefill(prompt)  # type: ignore[operator]
        logits = logits[:, -1]
    noise = _Noise(logits, temperature, generator)
    out: list[torch.Tensor] = []
    best: list[torch.Tensor] = []
    while len(out) < max_tokens:
        drawn = noise.take(1)
        most, token = (logits if drawn is None else logits + drawn[0]).max(dim=-1)
        best.append(most)
        out.append(token)
        left = max_tokens - len(out)
        # The tokens that one call can write with the noise at hand.
        count = min(left, noise.left + 1)
        text = None
        if count > 1:
            drawn = noise.take(count - 1)
            text = language_text(model, token, state, count, drawn)
            if text is None:
                noise.give_back(count - 1)
        if text is not None:
            logits, state = text.logits, text.states
            best.extend(text.best)
            out.extend(text.tokens)
        elif left > 0:
            logits, state = model.step(token, state)  # type: ignore[operator]
    if not out:
        return prompt[:, :0]
    if not torch.isfinite(torch.stack(best)).all():
        raise ValueError("generate: logits: want finite numbers, got NaN or infinite ones")
    return torch.stack(out, dim=1)


# The most numbers drawn at once, and the most tokens that they are drawn for: drawing for
# each token alone would cost more than the rest of choosing it.
_DRAWN, _TOKENS = 1 << 18, 64


class _Noise:
    """Noise [B, vocab_size] for every token's logits, with which the largest logit is
    a draw from softmax(logits / temperature): Gumbel variables times temperature
    (Gumbel 1954); none at temperature 0. The draws do not depend on how many tokens
    are requested at once."""

    def __init__(
        self, logits: torch.Tensor, temperature: float, generator: torch.Generator | None
    ) -> None:
        self._like, self._temperature, self._generator = logits, temperature, generator
        self._block = max(1, min(_TOKENS, _DRAWN // max(1, logits.numel())))
        self._rows: torch.Tensor | None = None
        self.left = self._block if temperature <= 0 else 0

    def take(self, count: int) -> torch.Tensor | None:
        """Rows [count, B, vocab_size] for the next tokens, where count is at most
        `left` unless that is 0; None at temperature 0."""
        if self._temperature <= 0:
            return None
        if self.left == 0:
            shape, device = (self._block, *self._like.shape), self._like.device
            rows = torch.empty(shape, device=device, dtype=torch.float32)
            rows.exponential_(generator=self._generator)
            self._rows, self.left = rows.log_().mul_(-self._temperature), self._block
        assert self._rows is not None
        begin = self._block - self.left
        self.left -= count
        return self._rows[begin : begin + count]

    def give_back(self, count: int) -> None:
        """Returns the last rows taken, which were not used."""
        if self._temperature > 0:
            self.left += count


def _want_end(op: str, model: Any, end: int) -> None:
    count = getattr(model, "config", {}).get("vocab_size")  # other models may have none
    if count is not None and not 0 <= end < count:
        raise value_error(op, "end", f"0 to {count - 1}", end)


def _most_tokens(model: Any, max_tokens: int) -> int:
    """Steps of a Seq2Seq: each reads a token at its own position."""
    rows = positions_of(model, "target_pos_embedding")
    return max_tokens if rows is None else min(max_tokens, rows)


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
    """The most probable token at each position, for every row of sources [B, T] of
    a Seq2Seq, up to `end` (not part of the result; it is also the first input), to
    max_tokens or to the last of the model's learned positions."""
    want_axes("greedy", "tokens", tokens, "BT")
    _want_end("greedy", model, end)
    state = model.initial_state(tokens, lengths)  # type: ignore[operator]
    batch = tokens.shape[0]
    token = tokens.new_full((batch,), end)
    done = torch.zeros(batch, dtype=torch.bool, device=tokens.device)
    out: list[list[int]] = [[] for _ in range(batch)]
    for _ in range(_most_tokens(model, max_tokens)):
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
    to the earlier beam, then the lower id. A beam that reaches max_tokens, or the last of
    the model's learned positions, ends without `end`. Raises ValueError."""
    if beam < 1 or max_tokens < 1:
        raise ValueError(f"beam, max_tokens: want at least 1, got {beam} and {max_tokens}")
    want_axes("beam_search", "tokens", tokens, "T")
    _want_end("beam_search", model, end)
    state = model.initial_state(tokens[None])  # type: ignore[operator]
    alive: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Beam] = []

    def finish(total: float, written: list[int], places: int) -> None:
        finished.append(Beam(written, total / max(places, 1) ** length_penalty))

    for place in range(_most_tokens(model, max_tokens)):
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
