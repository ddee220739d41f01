"""The row before each row of a sequence, which RWKV's mixers and its feed-forward part
read in addition to the row itself. What a state carries is the row before the next
token's."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tarn import _fused as fused
from tarn import ops
from tarn.recurrent._inputs import Lengths, State, lengths_of
from tarn.recurrent._state import AttentionState

# The name of the feed-forward part's row in the state of a layer.
CHANNEL_SHIFT = "channel_shift"


def last_row(x: torch.Tensor, before: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
    """The last of `lengths` [B] rows of x (None: all) after `before` [B, D], or that row
    itself: [B, D] in the dtype of `before`."""
    rows = torch.cat([before.unsqueeze(1), x.to(before.dtype)], 1)
    if lengths is None:
        return rows[:, -1]
    at = lengths.to(x.device).long().view(-1, 1, 1)
    return rows.gather(1, at.expand(-1, 1, x.shape[2]))[:, 0]


class RowPlaces(NamedTuple):
    """Where the rows [B, T, D] of a call are in their sequences: from the first on,
    those that kept [B, T] bool does not keep as zeros; or the first `lengths` [B] of
    each after the row `held` [B, D] of a state (with `follows`; None: after no
    token)."""

    kept: torch.Tensor | None = None
    follows: bool = False
    held: torch.Tensor | None = None
    lengths: torch.Tensor | None = None


def places_after(x: torch.Tensor, state: State, lengths: Lengths | None) -> RowPlaces:
    """The places of rows x [B, T, D], or [B, D] for one each, that follow a layer's state.
    Raises ValueError for a state without the row, TypeError for a plain pair."""
    new = None if lengths is None else lengths_of(lengths, x.shape[0], x.shape[1])
    if state is None:
        return RowPlaces(None, True, None, new)
    if not isinstance(state, AttentionState):
        given = type(state).__name__
        raise TypeError(f"state: want a state that this layer returned, got {given}")
    held = state.tensors.get(CHANNEL_SHIFT)
    if held is None or held.shape != (x.shape[0], x.shape[-1]):
        given = "none" if held is None else str(list(held.shape))
        raise ValueError(f"state: {CHANNEL_SHIFT}: want [{x.shape[0]}, {x.shape[-1]}], got {given}")
    return RowPlaces(None, True, held, new)


def channel_mix(
    x: torch.Tensor,
    token_shift: torch.Tensor,
    maps: tuple[torch.Tensor, torch.Tensor] | tuple[torch.nn.Module, torch.nn.Module],
    places: RowPlaces,
    *,
    dropout: torch.nn.Module | float = 0.0,
    gate: tuple[torch.Tensor, torch.Tensor | torch.nn.Module] | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """W_2 drop(relu(W_1 (x + token_shift * (x' - x)))^2), x' the row before each (Peng et
    al. 2025, arXiv 2503.14456). x [B, T, D], or [B, D] for one row each -> the same
    shape; and the row before the next one, [B, D], where the rows follow a state. maps:
    W_1 and W_2, or modules that are called where they are no plain affine maps. dropout:
    a probability, or a module in the same way. gate: the shift and the map of what
    multiplies the result, sigmoid(W_g (x + gate_shift * (x' - x))) (Peng et al. 2024,
    arXiv 2404.05892)."""
    rows = x[:, None] if x.dim() == 2 else x
    if places.kept is not None:
        rows = torch.where(places.kept.unsqueeze(-1), rows, rows.new_zeros(()))
    last = None
    before = places.held if places.follows else None
    if places.follows:
        held = before
        if held is None:
            kind = torch.float64 if rows.dtype == torch.float64 else torch.float32
            held = torch.zeros(rows.shape[0], rows.shape[2], dtype=kind, device=rows.device)
        last = last_row(rows, held, places.lengths)
    plain = [_plain_weight(one, rows) for one in maps]
    share = _share_of(dropout, rows)
    if share is not None and plain[0] is not None and plain[1] is not None:
        seed = ops.draw_seed(share)
        weights = plain[0], plain[1]
        out = ops.channel_mix(rows, token_shift, *weights, before=before, dropout=share, seed=seed)
    else:  # its parts around what a caller can see
        mixed = ops.token_shift(rows, token_shift, before=before)
        square_relu = torch.ops.tarn.entry_form.default
        hidden = square_relu(_product(maps[0], mixed), None, None, "square_relu")
        out = _product(maps[1], _dropped(hidden, dropout))
    if gate is not None:
        shifted = ops.token_shift(rows, gate[0], before=before)
        out = torch.sigmoid(_product(gate[1], shifted)) * out
    return (out[:, 0] if x.dim() == 2 else out), last


def _plain_weight(one: torch.Tensor | torch.nn.Module, x: torch.Tensor) -> torch.Tensor | None:
    """The weight of a plain affine map; None for a module that has to be called."""
    if isinstance(one, torch.Tensor):
        return one
    plain = fused.linears(one, bias=False) if fused.serves(x) else []
    return plain[0].weight if plain else None


def _share_of(dropout: torch.nn.Module | float, x: torch.Tensor) -> float | None:
    """The probability of a dropout; None for a module that has to be called."""
    if isinstance(dropout, (int, float)):
        return dropout
    return fused.dropout_of(dropout) if fused.serves(x) else None


def _product(one: torch.Tensor | torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    weight = _plain_weight(one, x)
    if weight is not None:
        return ops.affine(x, weight)
    assert not isinstance(one, torch.Tensor)
    return one(x)


def _dropped(x: torch.Tensor, dropout: torch.nn.Module | float) -> torch.Tensor:
    share = _share_of(dropout, x)
    if share is None:
        assert not isinstance(dropout, (int, float))
        return dropout(x)
    return ops.residual_norm(x, dropout=share, seed=ops.draw_seed(share))[1] if share else x


@torch.no_grad()
def begin_shifts(part: Any, layer: int = 0, layers: int = 1) -> None:
    """Sets the trainer's initial values of a layer's feed-forward part, which are those of
    RWKV-7's authors: the first channels look back, those of later layers less."""
    for shift in (part.token_shift, part.gate_shift):
        if shift is not None:
            channel = torch.arange(shift.shape[0]) / shift.shape[0]
            shift.copy_(1 - channel ** ((1 - layer / layers) ** 4))
