"""The encoder layer and the stack of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tarn import _tables as tables
from tarn import ops
from tarn._fused import Branch, unbiased
from tarn._stacks import with_carried
from tarn._token_shift import RowPlaces, begin_token_shift, channel_mix, places_after
from tarn.nn._attention import make_attention
from tarn.recurrent._inputs import Lengths, State, states_of
from tarn.recurrent._state import AttentionState

_NORMS = tables.words_of("norm")
_ACTIVATIONS = tables.words_of("activation")
_FEED_FORWARDS = tables.words_of("feed_forward")


def _want(argument, value, choices):
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"EncoderLayer: {argument}: want one of {names}, got {value!r}")


class EncoderLayer(torch.nn.Module):
    """Attention and a feed-forward network with residuals and norms.

        post: x1 = norm1(x + drop(Att(x)));  y = norm2(x1 + drop(FFN(x1)))
        pre:  x1 = x + drop(Att(norm1(x)));  y = x1 + drop(FFN(norm2(x1)))

    with FFN(u) = linear2(drop(act(linear1(u)))), or what feed_forward says.

    Args:
        d_model, heads: width D and number of heads H.
        d_ff: hidden width F; None: 4 d_model.
        dropout: probability in [0, 1), in training mode only; masks come from
            torch's default generator, one seed for each dropout.
        activation: "relu" or "gelu" (the exact form). norm: "post" or "pre".
        norm_eps: inside the root of the norms.
        feed_forward: "mlp", "swiglu" or "channel-mix", as in
            `tarn.transformers.TransformerEncoderLayer`; for a causal mixer alone the
            last one, as it reads the row before each.
        mixer, **attention: arguments of make_attention.

    Children: attention, linear1, linear2, norm1, norm2, and linear3 or token_shift of
    the other two feed-forward parts. Raises ValueError.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int | None = None,
        dropout: float = 0.0,
        activation: str = "relu",
        norm: str = "post",
        norm_eps: float = 1e-5,
        *,
        feed_forward: str = "mlp",
        mixer: str = "linear",
        **attention: Any,
    ):
        super().__init__()
        _want("activation", activation, _ACTIVATIONS)
        _want("norm", norm, _NORMS)
        _want("feed_forward", feed_forward, _FEED_FORWARDS)
        mixes = feed_forward == "channel-mix"
        if mixes and not attention.get("causal", True):
            raise ValueError(
                "EncoderLayer: feed_forward: want 'mlp' or 'swiglu' where a token reads later "
                "ones, got 'channel-mix'"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"EncoderLayer: dropout: want a number in [0, 1), got {dropout}")
        d_ff = 4 * d_model if d_ff is None else d_ff
        self.dropout = dropout
        self.activation = activation
        self.norm = norm
        self.attention = make_attention(d_model, heads, mixer, **attention)
        self.token_shift = torch.nn.Parameter(torch.empty(d_model)) if mixes else None
        if self.token_shift is not None:
            begin_token_shift(self.token_shift)
        bias = feed_forward == "mlp"
        self.linear1 = torch.nn.Linear(d_model, d_ff, bias=bias)
        self.linear2 = torch.nn.Linear(d_ff, d_model, bias=bias)
        gated = feed_forward == "swiglu"
        self.linear3 = torch.nn.Linear(d_model, d_ff, bias=False) if gated else None
        self.norm1 = torch.nn.LayerNorm(d_model, eps=norm_eps)
        self.norm2 = torch.nn.LayerNorm(d_model, eps=norm_eps)

    def forward(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> torch.Tensor:
        """x [B, T, D], key_mask [B, T] bool (True = keep) or None -> [B, T, D]."""
        kept = None if key_mask is None else key_mask.to(x.device).expand(x.shape[:2])
        return self._run(x, lambda y: self.attention.unbiased(y, key_mask), RowPlaces(kept))[0]

    def prefill(
        self, x: torch.Tensor, state: State = None, lengths: Lengths | None = None
    ) -> tuple[torch.Tensor, AttentionState]:
        """x [B, T, D], the tokens after a state's -> ([B, T, D], new state), equal
        to T calls of step. lengths, errors, cost: as Attention.prefill."""
        return self._advance(
            x, state, lambda y: self.attention.unbiased_prefill(y, lengths, state), lengths
        )

    def step(self, x: torch.Tensor, state: State = None) -> tuple[torch.Tensor, AttentionState]:
        """One token of each row, x [B, D] -> ([B, D], new state)."""
        return self._advance(x, state, lambda y: self.attention.unbiased_step(y, state))

    def _advance(
        self,
        x: torch.Tensor,
        state: State,
        attend: Callable[[torch.Tensor], tuple[Branch, AttentionState]],
        lengths: Lengths | None = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        held: list[AttentionState] = []

        def part(y: torch.Tensor) -> Branch:
            branch, state = attend(y)
            held.append(state)
            return branch

        places = RowPlaces()
        if self.token_shift is not None:
            places = places_after(x, state, lengths)
        out, carried = self._run(x, part, places)
        return out, with_carried(held[0], carried)

    def _run(
        self,
        x: torch.Tensor,
        attend: Callable[[torch.Tensor], Branch],
        places: RowPlaces,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The layer around an attention, whose bias is added by the pass after it; and
        what the feed-forward part carries on."""
        if self.norm == "pre":
            normed, _ = self._residual_norm(x, norm=self.norm1)
            attended, bias = unbiased(attend(normed))
            normed, x1 = self._residual_norm(attended, x, bias, self.norm2)
            rows, carried = self._hidden(normed, places)
            return self._residual_norm(rows, x1, self.linear2.bias)[1], carried
        attended, bias = unbiased(attend(x))
        x1, _ = self._residual_norm(attended, x, bias, self.norm1)
        rows, carried = self._hidden(x1, places)
        return self._residual_norm(rows, x1, self.linear2.bias, self.norm2)[0], carried

    def _residual_norm(self, x, residual=None, bias=None, norm=None) -> Any:
        dropout = self.dropout if self.training and residual is not None else 0.0
        return ops.residual_norm(
            x,
            residual,
            bias,
            None if norm is None else norm.weight,
            None if norm is None else norm.bias,
            eps=self.norm1.eps,
            dropout=dropout,
            seed=ops.draw_seed(dropout),
        )

    def _hidden(
        self, x: torch.Tensor, places: RowPlaces
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        dropout = self.dropout if self.training else 0.0
        first, second, dropped = self.linear1.weight, self.linear2.weight, {"dropout": dropout}
        if self.token_shift is not None:
            return channel_mix(x, self.token_shift, (first, second), places, **dropped)
        seed = ops.draw_seed(dropout)
        if self.linear3 is not None:
            third = self.linear3.weight
            return ops.swiglu_feed_forward(x, first, second, third, seed=seed, **dropped), None
        activated: dict[str, Any] = {"activation": self.activation, "seed": seed, **dropped}
        return ops.feed_forward(x, first, self.linear1.bias, second, **activated), None

    def extra_repr(self):
        return f"dropout={self.dropout}, activation={self.activation!r}, norm={self.norm!r}"


class Encoder(torch.nn.Module):
    """A stack of layers and, by default, a last LayerNorm.

    Args:
        n_layers: number of layers.
        d_model, heads, **layer: arguments of EncoderLayer.
        final_norm: whether a LayerNorm named `norm` follows the layers.
    """

    def __init__(
        self,
        n_layers: int,
        d_model: int,
        heads: int,
        *,
        final_norm: bool = True,
        norm_eps: float = 1e-5,
        **layer: Any,
    ):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            EncoderLayer(d_model, heads, norm_eps=norm_eps, **layer) for _ in range(n_layers)
        )
        for index, made in enumerate(self.layers):
            if isinstance(made, EncoderLayer) and made.token_shift is not None:
                begin_token_shift(made.token_shift, index, n_layers)
        self.norm = torch.nn.LayerNorm(d_model, eps=norm_eps) if final_norm else None

    def forward(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> torch.Tensor:
        """x [B, T, D], key_mask [B, T] bool (True = keep) or None -> [B, T, D]."""
        for layer in self.layers:
            x = layer(x, key_mask)
        return self._normed(x)

    def prefill(
        self, x: torch.Tensor, state: Any = None, lengths: Lengths | None = None
    ) -> tuple[torch.Tensor, list[AttentionState]]:
        """x [B, T, D], the tokens after those of a state (a list, one a layer;
        None: none) -> ([B, T, D], new list), equal to T calls of step. lengths,
        errors, cost: as Attention.prefill."""
        return self._advance(x, state, lambda layer, y, held: layer.prefill(y, held, lengths))

    def step(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, list[AttentionState]]:
        """One token of each row, x [B, D] -> ([B, D], new list)."""
        return self._advance(x, state, lambda layer, y, held: layer.step(y, held))

    def _advance(self, x: torch.Tensor, state: Any, call: Callable[..., Any]):
        new_states: list[AttentionState] = []
        for layer, held in zip(self.layers, states_of(state, len(self.layers)), strict=True):
            x, held = call(layer, x, held)
            new_states.append(held)
        return self._normed(x), new_states

    def _normed(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm is None:
            return x
        out: Any = ops.residual_norm(
            x, gamma=self.norm.weight, beta=self.norm.bias, eps=self.norm.eps
        )
        return out[0]
