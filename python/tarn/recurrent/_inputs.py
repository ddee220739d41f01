"""What the recurrent modules check and arrange before they call an operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tarn.masking import BaseMask
from tarn.recurrent._state import AttentionState


# Tokens of each sequence: [N] integers, a sequence of them, or a mask of
# tarn.masking that has `lengths` (for a memory also any key mask).
Lengths = torch.Tensor | Sequence[int] | BaseMask
# What a module continues from: a state, the plain pair that fast-transformers uses
# for it, or None before the first token.
State = AttentionState | Sequence[torch.Tensor] | None


def check_state(state: Any, memory: Any) -> Any:
    """Accepts the state under its deprecated name `memory`, as fast-transformers
    does."""
    if memory is not None:
        warnings.warn(
            "the argument 'memory' of recurrent modules is deprecated, use 'state'",
            DeprecationWarning,
            stacklevel=3,
        )
        return memory if state is None else state
    return state


def lengths_of(
    lengths: Lengths | None, batch_size: int, seq_len: int, name: str = "lengths"
) -> torch.Tensor:
    """Tokens of each sequence, [N] int64 on the CPU. lengths: a mask with
    `lengths`, [N] integers, or None (all are seq_len long)."""
    if lengths is None:
        return torch.full((batch_size,), seq_len, dtype=torch.int64, device="cpu")
    given = torch.as_tensor(getattr(lengths, "lengths", lengths), dtype=torch.int64, device="cpu")
    if given.shape != (batch_size,):
        raise ValueError(f"{name}: want [{batch_size}], got {list(given.shape)}")
    if given.numel() and not (0 <= int(given.min()) and int(given.max()) <= seq_len):
        raise ValueError(
            f"{name}: want 0 to {seq_len}, got {int(given.min())} to {int(given.max())}"
        )
    return given


def steps_of(state: AttentionState | None, batch_size: int) -> torch.Tensor:
    """Tokens that each sequence of a state has consumed, [N] int64 on the CPU; 0 without
    a state."""
    if state is None:
        return torch.zeros(batch_size, dtype=torch.int64, device="cpu")
    return state.steps


def append_rows(
    past: torch.Tensor, steps: torch.Tensor, new: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Each sequence's new rows after its past ones, left-aligned.

    past [N, P, ...], of which the first steps[n] rows are valid; new [N, L, ...], of
    which lengths[n] are. Returns [N, max(steps + lengths), ...]; rows past a
    sequence's end are unspecified numbers, to be masked by length.
    """
    if int(steps.min()) == past.shape[1]:  # the common case: no gaps to close
        return torch.cat([past, new], dim=1)
    total = int((steps + lengths).max())
    rows = torch.arange(total, device="cpu").unsqueeze(0)
    # Where row r of the result comes from in [past, new].
    source = torch.where(rows < steps[:, None], rows, past.shape[1] + rows - steps[:, None])
    source = source.clamp(max=past.shape[1] + new.shape[1] - 1).to(past.device)
    joined = torch.cat([past, new], dim=1)
    index = source.view(*source.shape, *[1] * (past.dim() - 2)).expand(-1, -1, *past.shape[2:])
    return joined.gather(1, index)


def begin(
    state: State,
    kind: str,
    batch_size: int,
    facts: Mapping[str, Any],
    names: Sequence[str],
    adopt: Callable[[torch.Tensor, torch.Tensor], AttentionState] | None = None,
) -> AttentionState | None:
    """The state to continue from, checked; None before the first token. adopt:
    makes a state of the plain pair that fast-transformers uses for it."""
    if state is None:
        return None
    if adopt is not None and isinstance(state, (list, tuple)):
        state = adopt(*want_pair(state, names))
    if not isinstance(state, AttentionState):
        wanted = "None or a state this module returned"
        raise TypeError(
            f"state: want {wanted}{'' if adopt is None else ' or a pair'} ({', '.join(names)}; "
            "its rows move by tarn.recurrent.reorder, fork and reset), got "
            f"{type(state).__name__}"
        )
    state.check(kind, batch_size, facts)
    return state


def want_pair(
    state: Sequence[torch.Tensor], names: Sequence[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The two tensors of a plain state. Raises TypeError."""
    if not isinstance(state, (list, tuple)):
        wanted = f"an AttentionState or a list [{', '.join(names)}]"
        raise TypeError(f"state: want {wanted}, got {type(state).__name__}")
    if len(state) != 2 or not all(isinstance(part, torch.Tensor) for part in state):
        given = ", ".join(type(part).__name__ for part in state)
        raise TypeError(f"state: want two tensors [{', '.join(names)}], got [{given}]")
    return state[0], state[1]


def want_part(name: str, tensor: torch.Tensor, wanted: Sequence[int | None]) -> None:
    """Raises ValueError unless a plain state's tensor has these sizes; None allows
    any."""
    shape = list(tensor.shape)
    fits = len(shape) == len(wanted)
    if not fits or any(w is not None and w != s for w, s in zip(wanted, shape)):
        sizes = ", ".join("any" if size is None else str(size) for size in wanted)
        raise ValueError(f"state: {name}: want [{sizes}], got {shape}")


def same_length(steps: torch.Tensor) -> int | None:
    """The one number of tokens all sequences have consumed, or None."""
    if steps.numel() == 0:
        return 0
    first = int(steps[0])
    return first if bool((steps == first).all()) else None


def states_of(state: Any, n_layers: int) -> Any:
    """A stack's states, one per layer; None: none yet. Raises ValueError."""
    if state is None:
        return [None] * n_layers
    if not isinstance(state, (list, tuple)) or len(state) != n_layers:
        given = len(state) if isinstance(state, (list, tuple)) else type(state).__name__
        raise ValueError(f"state: want a list of {n_layers} states, one a layer, got {given}")
    return state
