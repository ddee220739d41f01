"""Custom mixers: a module and its row of the registry, which every stack of
`tarn.models` and `tarn.nn` then takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tarn import _tables as tables
from tarn._configurations import layer_facts
from tarn._fused import Branch, whole
from tarn._hooks import hooked
from tarn._passed_rows import PassedRows
from tarn.masking import BaseMask, MaskError
from tarn.recurrent._inputs import Lengths, State, begin, lengths_of
from tarn.recurrent._state import AttentionState

# A size of a weight or state: a number, or keys of the configuration with "*"
# between them.
Size = int | str
View = dict[str, Any]
Tensors = dict[str, torch.Tensor]


def want_no_masks(kind: str, masks: Sequence[BaseMask | None]) -> None:
    """Raises ValueError for a mask of `tarn.masking` next to a key_mask."""
    if any(mask is not None for mask in masks):
        raise ValueError(f"{kind}: key_mask: want None with other masks, got a tensor")


def want_same_rows(
    kind: str, x: torch.Tensor, keys: torch.Tensor | None, values: torch.Tensor | None
) -> None:
    """Raises ValueError for keys or values that are not x."""
    if any(other is not None and other is not x for other in (keys, values)):
        raise ValueError(f"{kind}: keys, values: want x itself, got another tensor")


class Mixer(torch.nn.Module):
    """The base of custom causal mixers. A derived class defines `mix`, from which it
    has forward, prefill and step.

    Args:
        view: a finished configuration as this layer sees it
            (`tarn.models.layer_view`): d_model, n_heads, ..., and the family's own
            keys.

    Parameters have the names and shapes that are given to `register_mixer`.
    """

    state_rows: list[tables.Row]
    passes: bool = False  # whether it makes or reads rows that layers pass on

    def __init__(self, view: View):
        super().__init__()
        self.view = view
        self.kind: str = view["attention"]
        self.state_rows = layer_facts(view).states
        # Kept here because every step asks for it.
        row = tables.mixer(self.kind)
        self._recurrent = row is not None and row["recurrent"]
        self._facts = {
            "initial": {row["name"]: row["initial"] for row in self.state_rows},
            "shapes": {row["name"]: row["shape"] for row in self.state_rows},
        }

    def mix(
        self, x: torch.Tensor, kept: torch.Tensor, state: Tensors
    ) -> tuple[torch.Tensor, Tensors]:
        """Rows x [B, T, d_model] after those of a state -> (rows [B, T, d_model], the
        new state). kept [B, T] bool: a token that is False has no influence, and its
        row is unspecified. state: tensors [B, *shape] by the names of the spec,
        [B, tokens, *shape] for those that grow; the given ones are not changed."""
        raise NotImplementedError(f"{type(self).__name__}: mix is not defined")

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
        """x [B, T, d_model] -> the same shape; the other arguments are those with which
        the layers of `tarn.transformers` call an attention, and key_mask [B, T] bool (True =
        keep) that of the layers of `tarn.nn`, without other masks. Raises MaskError for an
        attention mask that is not causal, ValueError for keys other than x."""
        masks = (attn_mask, query_lengths, key_lengths)
        if key_mask is None:
            return whole(self.masked(x, keys, values, *masks, passed))
        want_no_masks(self.kind, masks)
        return whole(self.unbiased(x, key_mask, **PassedRows.given(passed)))

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
        """forward, as the layers call it."""
        want_same_rows(self.kind, x, keys, values)
        if attn_mask is not None and attn_mask.causal_offset != 0 and x.shape[1] > 1:
            raise MaskError(f"{self.kind}: attn_mask: want a lower triangular mask, got another")
        if key_lengths is None or key_lengths._all_ones:  # known without reading a matrix
            return self.unbiased(x, **PassedRows.given(passed))
        return self.unbiased(x, key_lengths.bool_matrix, **PassedRows.given(passed))

    def unbiased(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> Branch:
        """forward under key_mask [B, T] bool; nothing is left to be applied."""
        if key_mask is None:
            key_mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        kept = key_mask.to(x.device).expand(x.shape[:2])
        return Branch(self.mix(x, kept, self._first(x))[0])

    @hooked
    def prefill(
        self,
        x: torch.Tensor,
        state: State = None,
        lengths: Lengths | None = None,
        passed: PassedRows | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """x [B, T, d_model], the tokens after those of a state (None: from the
        first) -> ([B, T, d_model], new state), equal to T calls of step. lengths
        [B]: tokens of each row. Raises ValueError for another module's state, or
        where the mixer has no recurrent form."""
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
        if not self._recurrent:
            raise ValueError(f"attention: want one with a recurrent form, got {self.kind!r}")
        batch, seq_len = x.shape[:2]
        new = lengths_of(lengths, batch, seq_len)
        facts = self._facts
        held = begin(state, self.kind, batch, facts, [row["name"] for row in self.state_rows])
        tensors = self._first(x) if held is None else self._own(held.tensors)
        before = torch.zeros_like(new) if held is None else held.steps
        given = None if lengths is None else new
        branch, tensors = self._continue(x, given, tensors, before, **PassedRows.given(passed))
        return branch, AttentionState(self.kind, tensors, before + new, facts)

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
        branch, new_state = self.unbiased_prefill(x[:, None], None, state, passed)
        branch = Branch(*branch)
        return branch._replace(rows=branch.rows[:, 0]), new_state

    def _continue(
        self, x: torch.Tensor, lengths: torch.Tensor | None, state: Tensors, steps: torch.Tensor
    ) -> tuple[Branch, Tensors]:
        """x after the tensors of a state, lengths [B] of it (None: all of T) after steps [B]
        other tokens."""
        batch, seq_len = x.shape[:2]
        new = torch.full((batch,), seq_len, device="cpu") if lengths is None else lengths
        kept = (torch.arange(seq_len, device="cpu") < new[:, None]).to(x.device)
        out, tensors = self.mix(x, kept, state)
        return Branch(out), tensors

    def _own(self, tensors: Tensors) -> Tensors:
        """The mixer's own tensors among those of a layer's state."""
        return {name: tensor for name, tensor in tensors.items() if name in self._facts["shapes"]}

    def _first(self, x: torch.Tensor) -> Tensors:
        """The state before the first token, by the spec."""
        return {
            row["name"]: x.new_full(
                (x.shape[0], *([0] if row["grows"] else []), *row["shape"]), row["initial"]
            )
            for row in self.state_rows
        }


_MODULES: dict[str, Callable[[View, int], Mixer]] = {}
_WHEN: dict[str, Callable[[View], bool]] = {}


def register_mixer(
    name: str,
    module: Callable[..., Mixer],
    *,
    by_layer: bool = False,
    when: Callable[[View], bool] | None = None,
    weights: Mapping[str, Sequence[Size]] | None = None,
    state: Sequence[Mapping[str, Any]] | None = None,
    keys: Sequence[Mapping[str, Any]] = (),
    family: str | None = None,
) -> None:
    """Registers a mixer under a name: `attention` and `layers` of configurations
    then take it, in `tarn.models` and in `tarn.nn`.

    Args:
        name: its name in config.json.
        module: makes the Mixer of a layer from its view.
        by_layer: whether it takes the number of the layer as a second argument.
        when: whether it makes the layer of a view; the builders of attentions make the
            others. None: it makes all.
        weights: name -> sizes of the parameters, in the order of the weight file;
            a size is a number or keys such as "d_model" or "n_heads*d_key". None:
            the row exists already, registered by a library that is loaded.
        state: tensors of a sequence, {"name", "shape", "initial": 0, "grows":
            False} each; None: no recurrent form.
        keys: the family's own keys, members of the section of config.json that is named
            after the family, by `key` there and by `name` elsewhere:
            {"name", "help", "min", "max", "default", "key", "integer": False} for a
            number, a default of True or False for a flag, "words" and a default
            among them for a choice.
        family: name of the family; None: name.

    Raises ValueError for a name, also of a key, that is taken, and for invalid sizes.
    """
    if name in _MODULES:
        raise ValueError(f"register_mixer: name: want a unique name, got {name!r}")
    if weights is None:
        if tables.mixer(name) is None:
            raise ValueError(f"register_mixer: weights: want them for the new {name!r}, got None")
    else:
        row = {
            "name": name,
            "family": family or name,
            "weights": [[weight, list(sizes)] for weight, sizes in weights.items()],
            "state": None if state is None else [dict(tensor) for tensor in state],
            "keys": [dict(key) for key in keys],
        }
        torch.ops.tarn.register_mixer(json.dumps(row))
        tables.config_fields.cache_clear()
    _MODULES[name] = module if by_layer else lambda view, _: module(view)
    if when is not None:
        _WHEN[name] = when


def is_mixer(kind: str, view: View | None = None) -> bool:
    """Whether a kind has a module of `register_mixer`, as the built-in ones have that are
    whole mixers rather than inner attentions of the builders. view: of a layer, for kinds
    that are mixers only in some; None: whether it always is one."""
    when = _WHEN.get(kind)
    return kind in _MODULES and (when is None or (view is not None and when(view)))


def may_be_mixer(kind: str) -> bool:
    """Whether a kind is a mixer in some layers."""
    return kind in _WHEN


def make_mixer(view: View, layer: int = 0) -> Mixer:
    """The mixer of a layer's view. layer: its number in the model, from which first values
    follow where the papers say so."""
    return _MODULES[view["attention"]](view, layer)
