"""Attention free transformers as recurrences."""

from __future__ import annotations

import math
from typing import Any

import torch

from tarn import ops
from tarn.attention._steps.base import CausalSteps
from tarn.attention._steps.cached import CachedSteps
from tarn.recurrent._inputs import Lengths, State, begin, lengths_of, steps_of
from tarn.recurrent._state import AttentionState


class AftFullSteps(CachedSteps):
    """Every key and value is kept; the state grows with the tokens. A sequence
    longer than max_sequence_length raises ValueError."""

    kind = "aft-full"
    max_sequence_length: int
    u: torch.nn.Parameter
    v: torch.nn.Parameter

    def attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        masks: dict[str, Any],
        first: int | None,
    ) -> torch.Tensor:
        seq_len, total = queries.shape[1], keys.shape[1]
        if total > self.max_sequence_length:
            raise ValueError(
                f"{type(self).__name__}: sequence: want at most "
                f"max_sequence_length = {self.max_sequence_length} tokens, got {total}"
            )
        if first is None:
            return self._ragged(queries, keys, values, masks)
        bias = self.u[first : first + seq_len] @ self.v[:total].T
        return ops.aft_full_attention(queries, keys, values, bias, **masks)

    def _ragged(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        masks: dict[str, Any],
    ) -> torch.Tensor:
        """Sequences at different positions read different rows of the bias: each
        takes its own call."""
        seq_len, total = queries.shape[1], keys.shape[1]
        allowed = masks["attention_mask"]
        rows = []
        for n in range(queries.shape[0]):
            # The first query may read steps[n] + 1 keys: their number gives its position.
            first = int(allowed[n, 0, 0].sum()) - 1
            index = torch.arange(first, first + seq_len, device=self.u.device)
            bias = self.u[index.clamp(max=self.max_sequence_length - 1)] @ self.v[:total].T
            rows.append(
                ops.aft_full_attention(
                    queries[n : n + 1],
                    keys[n : n + 1],
                    values[n : n + 1],
                    bias,
                    attention_mask=allowed[n : n + 1],
                    key_lengths=masks["key_lengths"][n : n + 1],
                )
            )
        return torch.cat(rows)


class AftSimpleSteps(CausalSteps):
    """State, of a fixed size, [N, H, E] each: m, the largest key of a channel so
    far; a = sum exp(k - m) v; b = sum exp(k - m)."""

    kind = "aft-simple"

    def prefill(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: Lengths | None = None,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """[N, L, H, E] -> ([N, L, H, E], state), equal to L calls of step."""
        batch, seq_len = queries.shape[:2]
        new = lengths_of(lengths, batch, seq_len)
        facts = {
            "heads": keys.shape[-2],
            "d_key": keys.shape[-1],
            "dtype": str(values.dtype),
            "initial": {"m": -math.inf},
        }
        state = begin(state, self.kind, batch, facts, ("m", "a", "b"))
        steps = steps_of(state, batch)
        out, held = ops.aft_simple_attention(
            queries,
            keys,
            values,
            causal=True,
            key_lengths=None if lengths is None else new.to(keys.device),
            initial_state=None if state is None else (state["m"], state["a"], state["b"]),
            return_state=True,
        )
        m, a, b = held
        tensors = {"m": m, "a": a, "b": b}
        return out, AttentionState(self.kind, tensors, steps + new, facts)
