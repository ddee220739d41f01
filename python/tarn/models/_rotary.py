"""Rotary positions (Su et al. 2021, arXiv 2104.09864) in the self attentions of a
model, for whole sequences and steps.

rotary_place "before" rotates queries and keys before they are compared. "after"
rotates the features of linear attention, and those of the numerator alone: rotated
features may be negative, so that the denominator has to see the plain ones.

    out_i = sum_j (R_i phi(q_i)) . (R_j phi(k_j)) v_j / sum_j phi(q_i) . phi(k_j)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from tarn import ops
from tarn._rotary_rows import scaling_of
from tarn.attention import AttentionLayer, CausalLinearAttention, ConditionalFullAttention
from tarn.attention._linear import LinearAttentionBase
from tarn.attention._masks import causal_offset_of, key_arguments, want_no_attention_mask
from tarn.attention._steps import CausalSteps
from tarn.attention._steps.linear import LinearSums
from tarn.recurrent._inputs import State, begin, lengths_of, steps_of

Tables = tuple[torch.Tensor, torch.Tensor]


class Rotation(NamedTuple):
    """What the tables depend on; scaling: options of rotary_rows that scale frequencies."""

    d_key: int
    base: float
    scaling: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of(cls, view: Mapping[str, Any]) -> Rotation:
        """That of a configuration."""
        return cls(view["d_key"], view["rotary_base"], scaling_of(view))


def tables_of(places: torch.Tensor, rotation: Rotation, like: torch.Tensor) -> Tables:
    """Cosines and sines [..., 1, d_key / 2] of places [...], on the device and in
    the dtype of `like`."""
    d_key, base, scaling = rotation
    cos, sin = torch.ops.tarn.rotary_rows(places, d_key, base, **scaling)
    return cos.to(like).unsqueeze(-2), sin.to(like).unsqueeze(-2)


def _first_tables(x: torch.Tensor, rotation: Rotation) -> Tables:
    """The tables of rows x [B, T, H, K] at places 0 to T - 1."""
    return tables_of(torch.arange(x.shape[1], device="cpu"), rotation, x)


def rotate(x: torch.Tensor, tables: Tables) -> torch.Tensor:
    """x [B, T, H, K], each row rotated by its position."""
    return torch.ops.tarn.rotate(x, *tables)


def turned_attention(
    owner: LinearAttentionBase,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tables: tuple[Tables, Tables],
    state: ops.LinearState | None = None,
    **options: Any,
) -> tuple[torch.Tensor, ops.LinearState]:
    """Linear attention of features rotated in the numerator: two calls of the
    operator, each of which keeps one half of the state. tables: of queries and
    of keys. options: causal, masks."""
    denominator = owner.arguments()["denominator"]
    feature_map = owner.feature_map

    def query_features(x: torch.Tensor) -> torch.Tensor:
        phi = feature_map.forward_queries(x)
        if denominator != "exact":
            return phi
        # The ratio does not depend on the scale of phi(q); with each row's largest
        # entry at 1 the denominator does not underflow too early.
        largest = phi.detach().abs().amax(-1, keepdim=True)
        return phi / largest.clamp_min(torch.finfo(torch.float32).tiny)

    def turned_queries(x: torch.Tensor) -> torch.Tensor:
        return rotate(query_features(x), tables[0])

    def turned_keys(x: torch.Tensor) -> torch.Tensor:
        return rotate(feature_map.forward_keys(x), tables[1])

    shared: dict[str, Any] = dict(options, denominator="none", return_state=True)
    numerators, summed = ops.mapped_linear_attention(
        queries,
        keys,
        values,
        feature_map=(turned_queries, turned_keys),
        initial_state=state,
        **shared,
    )
    # With values that are all 1, S of this call is the sum of features, z.
    features = None if state is None else ops.LinearState(state.z.unsqueeze(-1), state.z)
    denominators, counted = ops.mapped_linear_attention(
        queries,
        keys,
        values.new_ones(*values.shape[:3], 1),
        feature_map=(query_features, feature_map.forward_keys),
        initial_state=features,
        **shared,
    )
    new_state = ops.LinearState(summed.S, counted.S.squeeze(-1))
    if denominator == "none":
        return numerators, new_state
    if denominator == "compat":
        return numerators / (denominators + owner.eps), new_state
    # A row that reads nothing is 0, and so is its gradient.
    positive = denominators > 0
    ratio = numerators / torch.where(positive, denominators, 1.0)
    return torch.where(positive, ratio, 0.0), new_state


class TurnedLinearAttention(LinearSums, CausalSteps, LinearAttentionBase):
    """A LinearAttention or CausalLinearAttention with rotary positions after its
    feature map. It shares the map, which keeps its name in the model. The state of
    the causal one is that of linear attention: S of rotated features, z of plain
    ones."""

    kind = "linear"

    def __init__(self, plain: LinearAttentionBase, rotation: Rotation) -> None:
        super().__init__(rotation.d_key, plain.feature_map, **_settings(plain))
        self.causal = isinstance(plain, CausalLinearAttention)
        self.rotation = rotation

    def forward(
        self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None
    ) -> torch.Tensor:
        """Takes and returns what the replaced attention's forward does; row i has position i."""
        kind = "TurnedLinearAttention"
        options: dict[str, Any] = {"causal": self.causal}
        if self.causal:
            options["causal_offset"] = causal_offset_of(kind, attn_mask, queries, keys)
        else:
            want_no_attention_mask(kind, attn_mask, queries, keys)
        options.update(key_arguments(kind, key_lengths, keys.shape[0], keys.shape[1]))
        self.feature_map.new_feature_map(queries.device)

        tables = _first_tables(queries, self.rotation), _first_tables(keys, self.rotation)
        return turned_attention(self, queries, keys, values, tables, **options)[0]

    def facts(self, keys: torch.Tensor, values: torch.Tensor) -> dict[str, Any]:
        turn = {"rotary_place": "after", "rotary_base": self.rotation.base}
        turn.update(self.rotation.scaling)
        return {**super().facts(keys, values), **turn}

    def prefill(self, queries, keys, values, lengths=None, state=None):
        """Does what CausalSteps.prefill does."""
        if not self.causal:
            raise ValueError("attention: want a causal one for prefill and step, got another")
        batch, seq_len = queries.shape[:2]
        new = lengths_of(lengths, batch, seq_len)
        if state is None:
            self.feature_map.new_feature_map(queries.device)
        facts = self.facts(keys, values)
        state = begin(state, self.kind, batch, facts, ("S", "z"))
        tables = tables_of(places_after(state, batch, seq_len), self.rotation, queries)
        out, held = turned_attention(
            self,
            queries,
            keys,
            values,
            (tables, tables),
            self.held(state),
            causal=True,
            key_lengths=None if lengths is None else new.to(keys.device),
        )
        steps = new if state is None else state.steps + new
        return out, self.new_state(held, steps, facts)


def _settings(attention: LinearAttentionBase) -> dict[str, Any]:
    names = ("eps", "event_dispatcher", "denominator", "compat")
    return {name: getattr(attention, name) for name in names}


def places_after(state: Any, batch: int, seq_len: int) -> torch.Tensor:
    """Places [B, T] of seq_len tokens that follow a state's."""
    steps = steps_of(state, batch)
    return steps[:, None] + torch.arange(seq_len, device="cpu")


class RotaryAttentionLayer(AttentionLayer):
    """An AttentionLayer that rotates queries and keys by their positions before they
    are compared."""

    def __init__(self, inner: torch.nn.Module, view: dict[str, Any]) -> None:
        super().__init__(inner, *(view[name] for name in _SIZES))
        self.rotation = Rotation.of(view)

    def _placed(
        self, queries: torch.Tensor, keys: torch.Tensor, state: State
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if queries.dim() == 3:  # a step
            queries, keys = self._placed(queries[:, None], keys[:, None], state)
            return queries[:, 0], keys[:, 0]
        if state is None:
            first, second = (rotate(x, _first_tables(x, self.rotation)) for x in (queries, keys))
            return first, second
        places = places_after(state, *queries.shape[:2])
        tables = tables_of(places, self.rotation, queries)
        return rotate(queries, tables), rotate(keys, tables)


class TurnedConditionalAttention(ConditionalFullAttention):
    """A ConditionalFullAttention with rotary positions: it rotates queries and keys for
    its full_attention, whichever that is, and its other_attention rotates features."""

    def __init__(self, plain: ConditionalFullAttention, rotation: Rotation) -> None:
        other = TurnedLinearAttention(plain.other_attention, rotation)
        full = plain.full_attention
        settings = full.softmax_temp, full.dropout.p, plain.event_dispatcher
        super().__init__(other, plain.length_limit, *settings)
        self.rotation = rotation

    def forward(
        self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None
    ) -> torch.Tensor:
        """Takes and returns what the replaced attention's forward does; row i has position i."""
        if self._short(queries, keys):
            tables = (_first_tables(x, self.rotation) for x in (queries, keys))
            queries, keys = map(rotate, (queries, keys), tables)
        return super().forward(queries, keys, values, attn_mask, query_lengths, key_lengths)


# Keys of the sizes of an AttentionLayer, in its order.
_SIZES = ("d_model", "n_heads", "d_key", "d_value")


def make_attention_layer(
    inner: torch.nn.Module, view: dict[str, Any], rotary: bool
) -> AttentionLayer:
    """The layer around an inner attention, with rotary positions or without."""
    sizes = [view[name] for name in _SIZES]
    if not rotary:
        return AttentionLayer(inner, *sizes)
    rotation = Rotation.of(view)
    if view["rotary_place"] == "before":
        return RotaryAttentionLayer(inner, view)
    # Kinds that compare queries and keys themselves have no features to turn.
    if isinstance(inner, LinearAttentionBase):
        return AttentionLayer(TurnedLinearAttention(inner, rotation), *sizes)
    if isinstance(inner, ConditionalFullAttention):
        return AttentionLayer(TurnedConditionalAttention(inner, rotation), *sizes)
    return RotaryAttentionLayer(inner, view)
