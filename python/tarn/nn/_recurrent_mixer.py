"""What mixers around a recurrence have in common: one function for whole sequences and for
pieces, which leaves the last product to be applied."""

from __future__ import annotations

import torch

from tarn._passed_rows import PassedRows
from tarn._fused import Branch, whole
from tarn.nn._gated_parts import wide
from tarn.nn._mixer import Mixer, Tensors


class RecurrentMixer(Mixer):
    """The base of mixers that define `_run` and end in out_projection. Their states are
    float32, float64 under float64 weights."""

    def unbiased(
        self,
        x: torch.Tensor,
        key_mask: torch.Tensor | None = None,
        passed: PassedRows | None = None,
    ) -> Branch:
        """Does what Mixer.unbiased does; out_projection is left to be applied."""
        if key_mask is not None:
            key_mask = key_mask.to(x.device).expand(x.shape[:2])
        return self._run(x, key_mask, None, None, None, **PassedRows.given(passed))[0]

    def mix(
        self, x: torch.Tensor, kept: torch.Tensor, state: Tensors
    ) -> tuple[torch.Tensor, Tensors]:
        """Does what Mixer.mix does, where all kept tokens come before those that are not and
        places are counted from the first."""
        branch, new_state = self._run(x, None, kept.sum(1), state, None)
        return whole(branch), new_state

    def _continue(
        self,
        x: torch.Tensor,
        lengths: torch.Tensor | None,
        state: Tensors,
        steps: torch.Tensor,
        passed: PassedRows | None = None,
    ) -> tuple[Branch, Tensors]:
        own = None if lengths is None else lengths.to(x.device)
        return self._run(x, None, own, state, steps, **PassedRows.given(passed))

    def _first(self, x: torch.Tensor) -> Tensors:
        return super()._first(wide(x))

    def _run(
        self,
        x: torch.Tensor,
        kept: torch.Tensor | None,
        lengths: torch.Tensor | None,
        state: Tensors | None,
        steps: torch.Tensor | None,
    ) -> tuple[Branch, Tensors]:
        """Rows [B, T, D] after a state, None: from the first. kept [B, T] bool, lengths [B]:
        which count. steps [B]: tokens before these, None: none."""
        raise NotImplementedError(f"{type(self).__name__}: _run is not defined")
