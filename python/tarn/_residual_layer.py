"""What every transformer layer has around its attentions: residuals, norms and the
feed-forward network, for whole sequences and single tokens alike. Each part ends in
one fused pass where no caller could see the difference (see `_fused.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tarn import _fused as fused
from tarn import ops
from tarn._feed_forward_parts import PARTS, FeedForwardPart, add_maps, gelu_tanh, part_of
from tarn._moe_part import MixtureOptions, mixture
from tarn._norms import KINDS, make_norm
from tarn._token_shift import RowPlaces, channel_mix
from tarn.events import EventDispatcher

# Those whose sums the fused passes compute, and the others.
_PLAIN = ("post", "pre")
_NORMS = (*_PLAIN, "after", "both", "none")
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": gelu_tanh,
}
# Those that the operators know.
_NAMES = {F.relu: "relu", F.gelu: "gelu"}


def _want(layer: str, argument: str, value: object, choices: Collection[str]) -> None:
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{layer}: {argument}: want one of {names}, got {value!r}")


class ResidualLayer(torch.nn.Module):
    """Feed-forward part, residuals and norms of both kinds of layer.

    norm_kind "rms" divides by the root mean square instead of the deviation.
    feed_forward "swiglu" is linear2(drop(silu(linear1(u)) * linear3(u))) without
    biases and has no activation to choose; "mlp" is
    linear2(drop(activation(linear1(u)))); "channel-mix", without biases, is
    linear2(drop(relu(linear1(u + token_shift * (u' - u)))**2)) with u' the row before
    u in its sequence; "geglu" is swiglu with gelu in place of silu, "geglu-tanh" with
    gelu's form that has a tanh (also an activation, "gelu-tanh"), and "relu2" is
    linear2(drop(relu(linear1(u))**2)), both without biases. A layer of "none" ends after
    its attention: it has no linear1, linear2 and norm2.

    norm "after" is x + drop(norm(f(x))), "both" x + drop(norm_after(f(norm(x)))) and
    "none" x + drop(f(x)), for each part f. residual_factor multiplies what is added to x.
    norm_offset is added to the weights of the norms, which begin as 1 - norm_offset.
    With parallel_residual all parts read x of before: x + f(norm1(x)) + g(norm2(x)).
    feed_forward_bias "all" or "none": whether the maps of "mlp", "swiglu", "geglu",
    "geglu-tanh" and "relu2" have biases; "auto": those of "mlp" alone."""

    part: FeedForwardPart
    linear1: torch.nn.Linear  # where there is a part, as is linear2
    linear2: torch.nn.Linear
    linear3: torch.nn.Module | None  # in gated units only
    token_shift: torch.nn.Parameter | None  # in channel mixes only
    gate_shift: torch.nn.Parameter | None  # in the gated one only, as is gate
    gate: torch.nn.Module | None
    norm1: torch.nn.Module  # none with norm "none"
    norm2: torch.nn.Module  # of a part, or of another attention

    def __init__(
        self,
        attentions: dict[str, Any],
        d_model: int,
        d_ff: int | None,
        dropout: float,
        activation: str,
        event_dispatcher: str | EventDispatcher,
        norm: str,
        norm_eps: float,
        norm_kind: str = "layer",
        feed_forward: str = "mlp",
        moe: MixtureOptions | None = None,
        residual_factor: float = 1.0,
        norm_offset: float = 0.0,
        feed_forward_bias: str = "auto",
        parallel_residual: bool = False,
    ):
        super().__init__()
        # Attentions are set first, as in fast-transformers: optimiser states depend on the
        # order of the parameters.
        for name, attention in attentions.items():
            setattr(self, name, attention)  # a module or any other callable
        _want(type(self).__name__, "activation", activation, _ACTIVATIONS)
        _want(type(self).__name__, "norm", norm, _NORMS)
        _want(type(self).__name__, "norm_kind", norm_kind, KINDS)
        _want(type(self).__name__, "feed_forward", feed_forward, PARTS)
        self.part = part_of(feed_forward, feed_forward_bias)
        if parallel_residual and (norm == "post" or self.part.shifting):
            name = type(self).__name__
            raise ValueError(
                f"{name}: parallel_residual: want False with norm 'post' and feed_forward "
                "'channel-mix', got True"
            )
        self.parallel_residual: bool = parallel_residual
        add_maps(self, self.part, d_model, d_ff or 4 * d_model, moe)
        self.norm_place: str = norm
        self.residual_factor: float = residual_factor
        count = len(attentions) + (not self.part.empty)
        for ending in ("", "_after") if norm == "both" else ("",) if norm != "none" else ():
            for number in range(1, count + 1):
                made = make_norm(norm_kind, d_model, norm_eps, norm_offset)
                setattr(self, f"norm{number}{ending}", made)
        self.dropout: torch.nn.Dropout = torch.nn.Dropout(dropout)
        self.activation: Callable[[torch.Tensor], torch.Tensor] = _ACTIVATIONS[activation]
        self.pre_norm: bool = norm == "pre"
        self.event_dispatcher: EventDispatcher = EventDispatcher.get(event_dispatcher)

    @property
    def activation_name(self) -> str | None:
        """The operators' name of the activation; None for one they do not know."""
        return _NAMES.get(self.activation)

    @property
    def plain_sums(self) -> bool:
        """Whether parts are added as they are, one after the other, with a norm before each
        or after the sum."""
        usual = self.residual_factor == 1.0 and not self.parallel_residual
        return self.norm_place in _PLAIN and usual

    def _norms(self, ending: str = "") -> list[torch.nn.Module]:
        """The norms of the parts, in their order; none with norm "none"."""
        names = (f"norm{number}{ending}" for number in (1, 2, 3))
        return [getattr(self, name) for name in names if name in self._modules]

    def _run(
        self,
        x: torch.Tensor,
        attentions: Sequence[Callable[[torch.Tensor], fused.Branch]],
        places: RowPlaces | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The attentions and the feed-forward part, each with its norms:
        post: x = norm(x + drop(f(x)));  pre: x = x + drop(f(norm(x))). places: of the
        rows, None: whole sequences. Also returns what the feed-forward part carries
        on."""
        norms = self._norms()
        if not self.plain_sums:
            return self._part_by_part(x, attentions, norms, places)
        *earlier, last = attentions
        # The pass that adds a part also computes what the next part reads.
        following = [*norms[1:], None] if self.pre_norm else norms
        y = fused.normed(norms[0], x) if self.pre_norm else x
        for part, norm in zip(earlier, following, strict=False):
            y, x = fused.add_residual(part(y), x, self.dropout, norm)
            x = x if self.pre_norm else y
        if self.part.empty:
            y, x = fused.add_residual(last(y), x, self.dropout, following[-1])
            return (x if self.pre_norm else y), None
        branch, (middle, end) = last(y), following[len(earlier) :]
        whole = self._rest(branch, x, middle, end)
        if whole is not None:
            return whole, None
        y, x = fused.add_residual(branch, x, self.dropout, middle)
        x = x if self.pre_norm else y
        forward, carried = self._last_part(y, places)
        y, x = fused.add_residual(forward, x, self.dropout, end)
        return (x if self.pre_norm else y), carried

    def _part_by_part(
        self,
        x: torch.Tensor,
        attentions: Sequence[Callable[[torch.Tensor], fused.Branch]],
        norms: Sequence[torch.nn.Module],
        places: RowPlaces | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Does what _run does, for every place of the norms and every factor."""
        none: list[torch.nn.Module | None] = [None] * (len(attentions) + 1)
        place = self.norm_place
        before = list(norms) if place in ("pre", "both") else none
        after = self._norms("_after") if place == "both" else norms if place == "after" else none
        closing = list(norms) if place == "post" else none

        def added(branch: fused.Branch, number: int) -> torch.Tensor:
            rows = fused.normed(after[number], fused.whole(branch))
            if self.residual_factor != 1.0:
                rows = rows * self.residual_factor
            return fused.add_residual(fused.Branch(rows), x, self.dropout, closing[number])[0]

        whole = x
        for number, attention in enumerate(attentions):
            x = added(attention(fused.normed(before[number], x)), number)
        if self.part.empty:
            return x, None
        last = len(attentions)
        read = whole if self.parallel_residual else x
        forward, carried = self._last_part(fused.normed(before[last], read), places)
        return added(forward, last), carried

    def _rest(
        self,
        branch: fused.Branch,
        x: torch.Tensor,
        middle: Any,
        end: torch.nn.Module | None,
    ) -> torch.Tensor | None:
        """The layer from its last attention on, where one operator computes it; else None."""
        if self.linear3 is not None or not self.part.kernel:
            return None
        maps, name = (self.linear1, self.linear2), self.activation_name
        return fused.layer_rest(branch, x, self.dropout, (middle, end), maps, name)

    def _last_part(
        self, x: torch.Tensor, places: RowPlaces | None
    ) -> tuple[fused.Branch, torch.Tensor | None]:
        if self.part.mixture:
            return fused.Branch(mixture(self, x, places.kept if places else None)), None
        if self.token_shift is None:
            return self._feed_forward(x), None
        maps = self.linear1, self.linear2
        places = places or RowPlaces()
        gate = None
        if self.gate_shift is not None and self.gate is not None:
            gate = self.gate_shift, self.gate
        rows, carried = channel_mix(
            x, self.token_shift, maps, places, dropout=self.dropout, gate=gate
        )
        return fused.Branch(rows), carried

    def _feed_forward(self, x: torch.Tensor) -> fused.Branch:
        first, second, gate = self.linear1, self.linear2, self.linear3
        share = fused.dropout_of(self.dropout)
        if share is None or not fused.serves(x) or not self.part.kernel:
            return fused.Branch(self._composed_feed_forward(x))
        dropped: dict[str, Any] = {"dropout": share}
        if gate is not None and fused.linears(first, second, gate, bias=False):
            dropped["seed"] = ops.draw_seed(share)
            weights: Any = (first.weight, second.weight, gate.weight)
            return fused.Branch(ops.swiglu_feed_forward(x, *weights, **dropped))
        name = self.activation_name
        if gate is None and name is not None and fused.linears(first, second):
            dropped["seed"] = ops.draw_seed(share)
            weights = first.weight, first.bias, second.weight
            rows = ops.feed_forward(x, *weights, activation=name, **dropped)
            return fused.Branch(rows, second.bias)
        return fused.Branch(self._composed_feed_forward(x))

    def _composed_feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        up = None if self.linear3 is None else self.linear3(x)
        hidden = self.part.hidden(self.linear1(x), up, self.activation)
        return self.linear2(self.dropout(hidden))
