"""Parallel mixers of one layer: all read the same rows, and their results are added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tarn._passed_rows import PassedRows, handed
from tarn._fused import Branch, unbiased, whole
from tarn._hooks import heard, hooked
from tarn.attention.attention_layer import AttentionLayer, advanced, branch_of
from tarn.masking import BaseMask
from tarn.nn._mixer import want_no_masks, want_same_rows
from tarn.recurrent._inputs import Lengths, State
from tarn.recurrent._state import AttentionState


_MOST = 3  # mixers of a layer, as in configurations


class ParallelMixer(torch.nn.Module):
    """The sum of what several mixers give for the same rows, `branch_factor` times each.

    Args:
        kind: their names with "+" between, as "mamba2+full".
        branches: a Mixer, an Attention or an AttentionLayer each.
        factors: of what each gives; None: 1 each.

    Its state has the tensors of theirs under their numbers: "0.S", "1.keys". The layers
    of `tarn.nn` and `tarn.models` call it as they call a Mixer; beyond the sum it
    computes nothing. Raises ValueError for other numbers of branches or factors than kind names.
    """

    def __init__(
        self,
        kind: str,
        branches: Sequence[torch.nn.Module],
        factors: Sequence[float] | None = None,
    ):
        super().__init__()
        count = len(kind.split("+"))
        if not 2 <= count <= _MOST:
            raise ValueError(f"ParallelMixer: kind: want 2 or {_MOST} names, got {kind!r}")
        for name, given in (("branches", branches), ("factors", factors)):
            if given is not None and len(given) != count:
                raise ValueError(f"ParallelMixer: {name}: want {count}, got {len(given)}")
        self.kind = kind
        self.branches: torch.nn.ModuleList = torch.nn.ModuleList(branches)
        self.factors: tuple[float, ...] = tuple((1.0,) * count if factors is None else factors)
        self.passes: bool = any(getattr(branch, "passes", False) for branch in branches)

    def forward(
        self,
        x: torch.Tensor,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
        passed: PassedRows | None = None,
        *,
        key_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x [B, T, d_model] -> the same shape; the other arguments are those of the
        branches. Raises what they raise, ValueError for keys other than x."""
        masks = (attn_mask, query_lengths, key_lengths)
        if key_mask is not None:
            want_no_masks(self.kind, masks)
        if keys is None and all(mask is None for mask in masks):
            return whole(self.unbiased(x, key_mask, passed))
        return whole(self.masked(x, keys, values, *masks, passed))

    def masked(
        self,
        x: torch.Tensor,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
        passed: PassedRows | None = None,
    ) -> Branch:
        """forward, as the layers of `tarn.models` call it."""
        want_same_rows(self.kind, x, keys, values)
        masks: dict[str, Any] = {
            "attn_mask": attn_mask,
            "query_lengths": query_lengths,
            "key_lengths": key_lengths,
        }

        def read(branch: Any) -> Branch:
            own = {} if passed is None else handed(branch, passed)
            return branch_of(branch, x, x, **masks, **own)

        return self._added(read)

    def unbiased(
        self,
        x: torch.Tensor,
        key_mask: torch.Tensor | None = None,
        passed: PassedRows | None = None,
    ) -> Branch:
        """forward under key_mask [B, T] bool, as the layers of `tarn.nn` call it. Raises
        ValueError where a branch is an AttentionLayer, which takes other masks."""
        if any(isinstance(branch, AttentionLayer) for branch in self.branches):
            raise ValueError(f"{self.kind}: attn_mask: want one for its AttentionLayer, got None")

        def read(branch: Any) -> Branch:
            own = {} if passed is None else handed(branch, passed)
            if heard(branch):
                return Branch(branch(x, key_mask=key_mask, **own))
            return branch.unbiased(x, key_mask, **own)

        return self._added(read)

    @hooked
    def prefill(
        self,
        x: torch.Tensor,
        state: State = None,
        lengths: Lengths | None = None,
        passed: PassedRows | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """x [B, T, d_model], the tokens after those of a state (None: from the
        first) -> ([B, T, d_model], new state), as the branches do."""
        branch, new_state = self.unbiased_prefill(x, lengths, state, passed)
        return whole(branch), new_state

    def unbiased_prefill(
        self,
        x: torch.Tensor,
        lengths: Lengths | None = None,
        state: State = None,
        passed: PassedRows | None = None,
    ) -> tuple[Branch, AttentionState]:
        """prefill, as the layers call it."""
        return self._advanced("prefill", x, state, passed, lengths=lengths)

    @hooked
    def step(
        self, x: torch.Tensor, state: State = None, passed: PassedRows | None = None
    ) -> tuple[torch.Tensor, AttentionState]:
        """One token of each row, x [B, d_model] -> ([B, d_model], new state)."""
        branch, new_state = self.unbiased_step(x, state, passed)
        return whole(branch), new_state

    def unbiased_step(
        self, x: torch.Tensor, state: State = None, passed: PassedRows | None = None
    ) -> tuple[Branch, AttentionState]:
        """step, as the layers call it."""
        return self._advanced("step", x, state, passed)

    def _advanced(
        self,
        method: str,
        x: torch.Tensor,
        state: State,
        passed: PassedRows | None,
        **options: Any,
    ) -> tuple[Branch, AttentionState]:
        before = self._split(state, x.shape[0])
        after: list[AttentionState] = []

        def advance(branch: Any) -> Branch:
            own = {"state": before[len(after)], **options}
            own.update({} if passed is None else handed(branch, passed))
            out, new_state = advanced(branch, method, x, **own)
            after.append(new_state)
            return out

        return self._added(advance), self._joined(after)

    def _added(self, rows_of: Callable[[Any], Branch]) -> Branch:
        """The sum of what rows_of gives for each branch; biases are left to be added."""
        rows: torch.Tensor | None = None
        bias: torch.Tensor | None = None
        for branch, factor in zip(self.branches, self.factors, strict=True):
            own, own_bias = unbiased(rows_of(branch))
            own = own if factor == 1.0 else own * factor
            rows = own if rows is None else rows + own
            if own_bias is not None:
                own_bias = own_bias if factor == 1.0 else own_bias * factor
                bias = own_bias if bias is None else bias + own_bias
        assert rows is not None
        return Branch(rows, bias)

    def _joined(self, states: Sequence[AttentionState]) -> AttentionState:
        """One state of the branches' states."""
        tensors: dict[str, torch.Tensor] = {}
        initial: dict[str, float] = {}
        parts = []
        for number, state in enumerate(states):
            first = state.facts.get("initial", {})
            tensors.update({f"{number}.{name}": held for name, held in state.tensors.items()})
            initial.update({f"{number}.{name}": value for name, value in first.items()})
            parts.append({"kind": state.kind, "facts": state.facts})
        return AttentionState(
            self.kind, tensors, states[0].steps, {"initial": initial, "branches": parts}
        )

    def _split(self, state: State, batch: int) -> list[AttentionState | None]:
        """The branches' states; None before the first token."""
        if state is None:
            return [None] * len(self.branches)
        if not isinstance(state, AttentionState):
            given = type(state).__name__
            raise TypeError(f"state: want None or a state this module returned, got {given}")
        state.check(self.kind, batch, {})
        parts = state.facts.get("branches")
        if not isinstance(parts, list) or len(parts) != len(self.branches):
            raise ValueError(
                f"state: branches: want facts of {len(self.branches)} mixers, got {parts!r:.80}"
            )
        states: list[AttentionState | None] = []
        for number, part in enumerate(parts):
            if not isinstance(part, dict) or part.keys() != {"kind", "facts"}:
                raise ValueError(f"state: branches: want kind and facts, got {part!r:.80}")
            own = f"{number}."
            held = {
                name.removeprefix(own): tensor
                for name, tensor in state.tensors.items()
                if name.startswith(own)
            }
            states.append(AttentionState(part["kind"], held, state.steps, part["facts"]))
        return states
