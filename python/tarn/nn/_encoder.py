"""The encoder layer and the stack of layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tarn import _tables as tables
from tarn import ops
from tarn._feed_forward_parts import PARTS, FeedForwardPart, add_maps
from tarn._fused import Branch, has_no_hooks, unbiased
from tarn._hooks import call, heard, hooked
from tarn._moe_part import MixtureOptions, mixture
from tarn._stacks import with_carried
from tarn._token_shift import RowPlaces, begin_shifts, channel_mix, places_after
from tarn.attention.attention_layer import advanced
from tarn.nn._attention import Attention, make_attention
from tarn.nn._mixer import Mixer
from tarn.nn._parallel import ParallelMixer
from tarn.recurrent._inputs import Lengths, State, states_of
from tarn.recurrent._state import AttentionState

_NORMS = tables.words_of("norm")
_ACTIVATIONS = tables.words_of("activation")


def _want(argument: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"EncoderLayer: {argument}: want one of {names}, got {value!r}")


def _plain(module: Any, kind: type[torch.nn.Module], bias: bool | None = None) -> bool:
    """Whether an operator over the module's weights does what a call of it does. bias:
    whether there must be one; None: either."""
    return (
        isinstance(module, kind)
        and type(module).forward is kind.forward
        and has_no_hooks(module)
        and module.weight is not None
        and bias in (None, module.bias is not None)
    )


class EncoderLayer(torch.nn.Module):
    """Attention and a feed-forward network with residuals and norms.

        pre:  x1 = x + drop(Att(norm1(x)));  y = x1 + drop(FFN(norm2(x1)))
        post: x1 = norm1(x + drop(Att(x)));  y = norm2(x1 + drop(FFN(x1)))

    with FFN(u) = linear2(drop(act(linear1(u)))), or what feed_forward says. Norms "after",
    "both" and "none" are x + drop(norm1(Att(x))), x + drop(norm1_after(Att(norm1(x)))) and
    x + drop(Att(x)), and so for FFN.

    Args:
        d_model, heads: width D and number of heads H.
        d_ff: hidden width F; None: 4 d_model.
        dropout: probability in [0, 1), in training mode only; masks come from
            torch's default generator, one seed for each dropout.
        activation: "relu" or "gelu" (the exact form). norm: "pre", as in
            `tarn.models` (Xiong et al. 2020, arXiv 2002.04745), "post", the
            default of fast-transformers and so of `tarn.transformers`, "after", "both"
            or "none".
        norm_eps: inside the root of the norms.
        feed_forward: "mlp", "swiglu", "channel-mix", "geglu", "relu2" or "none", as in
            `tarn.transformers.TransformerEncoderLayer`; the channel mix for a causal
            mixer alone, as it reads the row before each. With "none" the layer is x1.
            "moe": a mixture of experts, as `moe` says (`MixtureOptions`), whose
            load-balancing loss `balance_loss` collects.
        causal: True, the default: a token reads itself and the tokens before it, as a
            language model needs. False: it reads all tokens, for a classifier or the
            source of a translation; gated and RWKV mixers refuse it.
        mixer, **attention: the other arguments of make_attention.

    Children: attention, linear1, linear2, norm1, norm2, and linear3 or token_shift of
    the parts that have them; attention and norm1 alone of "none". Raises ValueError.
    """

    attention: Attention | Mixer | ParallelMixer
    part: FeedForwardPart
    token_shift: torch.nn.Parameter | None
    gate_shift: torch.nn.Parameter | None
    gate: Any
    linear1: torch.nn.Linear
    linear2: torch.nn.Linear
    linear3: torch.nn.Linear | None
    norm1: torch.nn.LayerNorm
    norm2: torch.nn.LayerNorm

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int | None = None,
        dropout: float = 0.0,
        activation: str = "relu",
        norm: str = "pre",
        norm_eps: float = 1e-5,
        *,
        feed_forward: str = "mlp",
        moe: MixtureOptions | None = None,
        causal: bool = True,
        mixer: str = "linear",
        **attention: Any,
    ):
        super().__init__()
        _want("activation", activation, _ACTIVATIONS)
        _want("norm", norm, _NORMS)
        _want("feed_forward", feed_forward, tuple(PARTS))
        self.part = PARTS[feed_forward]
        if self.part.shifting and not causal:
            raise ValueError(
                "EncoderLayer: feed_forward: want 'mlp' or 'swiglu' where a token reads later "
                f"ones, got {feed_forward!r}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"EncoderLayer: dropout: want a number in [0, 1), got {dropout}")
        d_ff = 4 * d_model if d_ff is None else d_ff
        self.dropout = dropout
        self.activation = activation
        self.norm = norm
        self.attention = make_attention(d_model, heads, mixer, causal=causal, **attention)
        add_maps(self, self.part, d_model, d_ff, moe)
        for ending in ("", "_after") if norm == "both" else ("",) if norm != "none" else ():
            for number in (1,) if self.part.empty else (1, 2):
                made = torch.nn.LayerNorm(d_model, eps=norm_eps)
                setattr(self, f"norm{number}{ending}", made)

    def forward(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> torch.Tensor:
        """x [B, T, D], key_mask [B, T] bool (True = keep) or None -> [B, T, D]."""
        kept = None if key_mask is None else key_mask.to(x.device).expand(x.shape[:2])

        def attend(y: torch.Tensor) -> Branch:
            if heard(self.attention):
                return Branch(self.attention(y, key_mask=key_mask))
            return self.attention.unbiased(y, key_mask)

        return self._run(x, attend, RowPlaces(kept))[0]

    @hooked
    def prefill(
        self, x: torch.Tensor, state: State = None, lengths: Lengths | None = None
    ) -> tuple[torch.Tensor, AttentionState]:
        """x [B, T, D], the tokens after a state's -> ([B, T, D], new state), equal
        to T calls of step. lengths, errors, cost: as Attention.prefill."""
        options = {"lengths": lengths, "state": state}
        return self._advance(
            x, state, lambda y: advanced(self.attention, "prefill", y, **options), lengths
        )

    @hooked
    def step(self, x: torch.Tensor, state: State = None) -> tuple[torch.Tensor, AttentionState]:
        """One token of each row, x [B, D] -> ([B, D], new state)."""
        return self._advance(x, state, lambda y: advanced(self.attention, "step", y, state=state))

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
        if self.norm not in ("pre", "post"):
            return self._part_by_part(x, attend, places)
        if self.norm == "pre":
            normed, _ = self._residual_norm(x, norm=self.norm1)
            attended, bias = unbiased(attend(normed))
            if self.part.empty:
                return self._residual_norm(attended, x, bias)[1], None
            normed, x1 = self._residual_norm(attended, x, bias, self.norm2)
            (rows, bias, _), carried = self._hidden(normed, places)
            return self._residual_norm(rows, x1, bias)[1], carried
        attended, bias = unbiased(attend(x))
        x1, _ = self._residual_norm(attended, x, bias, self.norm1)
        if self.part.empty:
            return x1, None
        (rows, bias, _), carried = self._hidden(x1, places)
        return self._residual_norm(rows, x1, bias, self.norm2)[0], carried

    def _part_by_part(
        self,
        x: torch.Tensor,
        attend: Callable[[torch.Tensor], Branch],
        places: RowPlaces,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Does what _run does where norms are after the parts, on both sides, or absent."""
        endings = {"after": (None, ""), "both": ("", "_after"), "none": (None, None)}
        before, after = endings[self.norm]

        def normed(rows: torch.Tensor, number: int, ending: str | None) -> torch.Tensor:
            if ending is None:
                return rows
            return self._residual_norm(rows, norm=getattr(self, f"norm{number}{ending}"))[0]

        def added(branch: Branch, number: int) -> torch.Tensor:
            rows, bias = unbiased(branch)
            if after is None:
                return self._residual_norm(rows, x, bias)[1]
            rows = normed(rows if bias is None else rows + bias, number, after)
            return self._residual_norm(rows, x)[1]

        x = added(attend(normed(x, 1, before)), 1)
        if self.part.empty:
            return x, None
        branch, carried = self._hidden(normed(x, 2, before), places)
        return added(branch, 2), carried

    def _residual_norm(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        norm: torch.nn.LayerNorm | None = None,
    ) -> Any:
        dropout = self.dropout if self.training and residual is not None else 0.0
        dropped: dict[str, Any] = {"dropout": dropout, "seed": ops.draw_seed(dropout)}
        if norm is None or _plain(norm, torch.nn.LayerNorm):
            gamma, beta = (None, None) if norm is None else (norm.weight, norm.bias)
            eps = {} if norm is None else {"eps": norm.eps}
            return ops.residual_norm(x, residual, bias, gamma, beta, **eps, **dropped)
        if residual is not None:
            x = ops.residual_norm(x, residual, bias, **dropped)[1]
        return norm(x), x

    def _hidden(self, x: torch.Tensor, places: RowPlaces) -> tuple[Branch, torch.Tensor | None]:
        """The feed-forward part, whose bias may be left to the pass after it; and what it
        carries on."""
        if self.part.mixture:
            return Branch(mixture(self, x, places.kept)), None
        dropout = self.dropout if self.training else 0.0
        maps = self.linear1, self.linear2
        biased = self.part.biased and self.linear3 is None
        parts = maps if self.linear3 is None else (*maps, self.linear3)
        plain = all(_plain(part, torch.nn.Linear, biased) for part in parts)
        if self.token_shift is not None:
            given = (maps[0].weight, maps[1].weight) if plain else maps
            gate = None
            if self.gate_shift is not None:
                own = _plain(self.gate, torch.nn.Linear, False)
                gate = (self.gate_shift, self.gate.weight if own else self.gate)
            rows, carried = channel_mix(
                x, self.token_shift, given, places, dropout=dropout, gate=gate
            )
            return Branch(rows), carried
        if not plain or not self.part.kernel:
            return Branch(self._composed(x, dropout)), None
        first, second = maps[0].weight, maps[1].weight
        dropped: dict[str, Any] = {"dropout": dropout, "seed": ops.draw_seed(dropout)}
        if self.linear3 is not None:
            third = self.linear3.weight
            return Branch(ops.swiglu_feed_forward(x, first, second, third, **dropped)), None
        dropped["activation"] = self.activation
        rows = ops.feed_forward(x, first, self.linear1.bias, second, **dropped)
        return Branch(rows, self.linear2.bias), None

    def _composed(self, x: torch.Tensor, dropout: float) -> torch.Tensor:
        """The feed-forward part by calls of its children."""
        up = None if self.linear3 is None else self.linear3(x)
        activation = F.relu if self.activation == "relu" else F.gelu
        return self.linear2(F.dropout(self.part.hidden(self.linear1(x), up, activation), dropout))

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}, activation={self.activation!r}, norm={self.norm!r}"


class Encoder(torch.nn.Module):
    """A stack of layers and, by default, a last LayerNorm.

    Args:
        n_layers: number of layers.
        causal: True, the default: a token reads itself and the tokens before it. False:
            it reads all of them, and the stack has no prefill and step.
        d_model, heads, **layer: the other arguments of EncoderLayer.
        final_norm: whether a LayerNorm named `norm` follows the layers.
    """

    norm: torch.nn.LayerNorm | None

    def __init__(
        self,
        n_layers: int,
        d_model: int,
        heads: int,
        *,
        final_norm: bool = True,
        norm_eps: float = 1e-5,
        causal: bool = True,
        **layer: Any,
    ):
        super().__init__()
        self.layers: torch.nn.ModuleList = torch.nn.ModuleList(
            EncoderLayer(d_model, heads, norm_eps=norm_eps, causal=causal, **layer)
            for _ in range(n_layers)
        )
        for index, made in enumerate(self.layers):
            if isinstance(made, EncoderLayer):
                begin_shifts(made, index, n_layers)
        self.norm = torch.nn.LayerNorm(d_model, eps=norm_eps) if final_norm else None

    def forward(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> torch.Tensor:
        """x [B, T, D], key_mask [B, T] bool (True = keep) or None -> [B, T, D]."""
        for layer in self.layers:
            x = layer(x, key_mask)
        return self._normed(x)

    @hooked
    def prefill(
        self, x: torch.Tensor, state: Any = None, lengths: Lengths | None = None
    ) -> tuple[torch.Tensor, list[AttentionState]]:
        """x [B, T, D], the tokens after those of a state (a list, one a layer;
        None: none) -> ([B, T, D], new list), equal to T calls of step. lengths,
        errors, cost: as Attention.prefill."""
        return self._advance(
            x, state, lambda layer, y, held: call(layer, "prefill", y, held, lengths)
        )

    @hooked
    def step(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, list[AttentionState]]:
        """One token of each row, x [B, D] -> ([B, D], new list)."""
        return self._advance(x, state, lambda layer, y, held: call(layer, "step", y, held))

    def _advance(
        self, x: torch.Tensor, state: Any, call: Callable[..., Any]
    ) -> tuple[torch.Tensor, list[AttentionState]]:
        new_states: list[AttentionState] = []
        for layer, held in zip(self.layers, states_of(state, len(self.layers)), strict=True):
            x, held = call(layer, x, held)
            new_states.append(held)
        return self._normed(x), new_states

    def _normed(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm is None or not _plain(self.norm, torch.nn.LayerNorm):
            return x if self.norm is None else self.norm(x)
        out: Any = ops.residual_norm(
            x, gamma=self.norm.weight, beta=self.norm.bias, eps=self.norm.eps
        )
        return out[0]
