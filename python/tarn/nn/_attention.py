"""Attention layers: rows in, rows out, and piece by piece with a state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tarn import _tables as tables
from tarn import ops
from tarn._configurations import finished
from tarn._fused import Branch, has_no_hooks, whole
from tarn._hooks import hooked
from tarn.attention import CausalLinearAttention
from tarn.attention import LinearAttention as PlainLinearAttention
from tarn.attention._projections import SteppedProjections
from tarn.attention_registry import AttentionRegistry
from tarn.builders.attention_builders import AttentionBuilder
from tarn.masking import FullMask, TriangularCausalMask
from tarn.nn._mixer import Mixer, is_mixer, make_mixer, may_be_mixer
from tarn.nn._parallel import ParallelMixer
from tarn.ops import _checks as checks
from tarn.recurrent._inputs import Lengths, State
from tarn.recurrent._state import AttentionState


class Attention(SteppedProjections):
    """Multi-head self-attention of any kind: affine maps around an inner attention.

    Args:
        d_model: width D of inputs and outputs.
        heads: number of heads H.
        mixer: the kind by its name in config.json: "linear", "full", "local",
            "exact-topk", "aft-full", "aft-simple", ...
        d_key, d_value: widths K, V of a head; None: d_model / heads.
        causal: True, the default: a token reads itself and the tokens before it.
            False: it reads all tokens, and there is no prefill and step.
        **options: parameters of the kind, as in the builders (topk,
            local_context, feature_map, ...); attention_dropout is 0 unless given.

    Parameters, initialised as torch.nn.Linear: query_projection and
    key_projection [H K, D], value_projection [H V, D], out_projection [D, H V],
    each with a bias; those of the kind under inner_attention. Raises ValueError
    for unknown kinds and options, and for a d_model that is no multiple of heads
    where a width follows from it.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        mixer: str = "linear",
        *,
        d_key: int | None = None,
        d_value: int | None = None,
        causal: bool = True,
        **options: Any,
    ):
        d_key = _width(type(self).__name__, d_model, heads, d_key)
        d_value = _width(type(self).__name__, d_model, heads, d_value)
        inner = _inner(mixer, causal, {"query_dimensions": d_key, **options})
        super().__init__(inner, d_model, heads, d_key, d_value)
        self.mixer = mixer
        self.heads = heads
        self.d_key: int = d_key
        self.d_value: int = d_value
        self.causal = causal

    def forward(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> torch.Tensor:
        """x [B, T, D], key_mask [B, T] bool (True = keep) or None -> [B, T, D]."""
        return whole(self.unbiased(x, key_mask))

    def unbiased(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> Branch:
        """The result of forward before out_projection, and the latter's weight and bias,
        for a caller that applies them in a later pass; None where already applied."""
        seq_len = x.shape[1]
        places = (
            TriangularCausalMask(seq_len, device=x.device)
            if self.causal
            else FullMask(seq_len, device=x.device)
        )
        kept = None if key_mask is None else FullMask(key_mask)
        heads = self._all_heads(x, x, x)
        return self._out(self.inner_attention(*heads, places, kept, kept), 2)

    @hooked
    def prefill(  # the state comes first: lengths are for batches of different lengths
        self, x: torch.Tensor, state: State = None, lengths: Lengths | None = None
    ) -> tuple[torch.Tensor, AttentionState]:
        """x [B, T, D], the tokens after those of a state (None: from the first) ->
        ([B, T, D], new state), equal to T calls of step. T = 0 is valid. lengths
        [B]: tokens of each row; what comes out past them is unspecified. A state
        is a value and is not changed.

        Raises ValueError without causal, where the kind has no recurrent form, or for a
        state of another kind, batch or width. O(T) time for kinds whose state has a fixed
        size, O(T (t + T)) after t tokens for those that keep all keys."""
        branch, new_state = self.unbiased_prefill(x, lengths, state)
        return whole(branch), new_state

    def unbiased_prefill(
        self, x: torch.Tensor, lengths: Lengths | None = None, state: State = None
    ) -> tuple[Branch, AttentionState]:
        self._want_causal("prefill")
        return super().unbiased_prefill(x, lengths, state)

    def unbiased_step(self, x: torch.Tensor, state: State = None) -> tuple[Branch, AttentionState]:
        self._want_causal("step")
        return super().unbiased_step(x, state)

    def _want_causal(self, method: str) -> None:
        if not self.causal:
            raise ValueError(
                f"{type(self).__name__}: causal: want True for {method}, got False: a token "
                "reads later ones"
            )

    def step(self, x: torch.Tensor, state: State = None) -> tuple[torch.Tensor, AttentionState]:
        """One token of each row, x [B, D] -> ([B, D], new state). Raises as
        prefill. O(1) or, where all keys are kept, O(t) time after t tokens."""
        return super().step(x, state)

    def extra_repr(self) -> str:
        return f"mixer={self.mixer!r}, heads={self.heads}, causal={self.causal}"


class LinearAttention(Attention):
    """Multi-head linear self-attention under an elementwise feature map: four affine
    maps around one operator, which reads what the product writes.

    Args:
        d_model, heads, d_key, d_value, causal: as in Attention.
        feature_map, denominator, eps: as in `tarn.ops.linear_attention`.

    Parameters and errors are as in Attention. State: S [B, H, K, V] and z [B, H, K],
    for any number of tokens.
    """

    inner_attention: PlainLinearAttention | CausalLinearAttention

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        d_key: int | None = None,
        d_value: int | None = None,
        causal: bool = True,
        feature_map: str = "elu1",
        denominator: str = "exact",
        eps: float = 1e-6,
    ):
        checks.want_map("LinearAttention", feature_map, "tarn.nn.Attention")
        options = {"feature_map": feature_map, "denominator": denominator, "eps": eps}
        widths = {"d_key": d_key, "d_value": d_value}
        super().__init__(d_model, heads, "linear", causal=causal, **widths, **options)
        self.feature_map = feature_map
        self.denominator = denominator
        self.eps = eps

    def unbiased(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> Branch:
        """Does what Attention.unbiased does, with one call for queries, keys and values."""
        maps = (self.query_projection, self.key_projection, self.value_projection)
        if not self._plain(*maps, self.out_projection):
            return super().unbiased(x, key_mask)
        packed = ops.layer_heads(x, [m.weight for m in maps], [m.bias for m in maps])
        heads = ops.linear_attention_packed(
            packed,
            self.heads,
            self.d_key,
            causal=self.causal,
            feature_map=self.feature_map,
            key_mask=key_mask,
            denominator=self.denominator,
            eps=self.eps,
        )
        return Branch(heads, self.out_projection.bias, self.out_projection.weight)

    def _plain(self, *maps: torch.nn.Module) -> bool:
        """Whether one call has the same effect as the calls of the children."""
        inner = self.inner_attention
        if type(inner) is not (CausalLinearAttention if self.causal else PlainLinearAttention):
            return False
        return has_no_hooks(inner) and all(
            isinstance(part, torch.nn.Linear)
            and type(part).forward is torch.nn.Linear.forward
            and has_no_hooks(part)
            for part in maps
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, feature_map={self.feature_map!r}"


def make_attention(
    d_model: int, heads: int, mixer: str = "linear", *, causal: bool = True, **options: Any
) -> Attention | Mixer | ParallelMixer:
    """The layer of a kind; arguments as in Attention. causal: True, the default: a token
    reads itself and the tokens before it; False: all tokens. Linear attention under an
    elementwise map is a LinearAttention. A GatedMixer, an RwkvMixer
    and a kind of `register_mixer` take keys of config.json as options, and are causal. So
    do a SoftmaxMixer and a LatentMixer, which are "full" or "local" with a key of their form
    that is not at its default; causal=False is theirs too. Kinds with "+" between them, as
    "mamba2+full", are a ParallelMixer, with d_key and d_value alone as options: make its
    mixers one by one to give them others."""
    if "+" in mixer:
        if options.keys() - {"d_key", "d_value"}:
            raise ValueError(
                f"{mixer}: options: want d_key and d_value alone, and a ParallelMixer of "
                f"mixers that take others, got {', '.join(options)}"
            )
        sizes = {"d_model": d_model, "heads": heads, "causal": causal, **options}
        branches = [make_attention(mixer=kind, **sizes) for kind in mixer.split("+")]
        return ParallelMixer(mixer, branches)
    if is_mixer(mixer):
        sizes = {"d_model": d_model, "n_heads": heads, "n_layers": 1}
        if not causal:
            raise ValueError(f"causal: want True for {mixer!r}, got False")
        config = {"attention": mixer, **sizes, **options}
        made = make_mixer(finished(config))
        if made.passes:
            raise ValueError(
                f"{mixer}: want one that passes no rows to later layers, which only the models "
                "of tarn.models do"
            )
        return made
    others = options.keys() - {"d_key", "d_value"} - _taken(attention_type(mixer, causal))
    if may_be_mixer(mixer) and others and options.keys() <= tables.config_fields().keys():
        sizes = {"d_model": d_model, "n_heads": heads, "n_layers": 1}
        arch = {} if causal else {"arch": "encoder", "n_classes": 2}
        view = finished({"attention": mixer, **sizes, **arch, **options})
        if is_mixer(mixer, view):
            return make_mixer(view)
    _want_kind(mixer, [kind for kind in tables.mixers() if is_mixer(kind)])
    own = {"d_key", "d_value", "feature_map", "denominator", "eps"}
    plain = options.get("feature_map", "elu1") in checks.FEATURE_MAPS
    if mixer == "linear" and plain and options.keys() <= own:
        return LinearAttention(d_model, heads, causal=causal, **options)
    return Attention(d_model, heads, mixer, causal=causal, **options)


def attention_type(kind: str, causal: bool) -> str:
    """The builders' name of a kind: linear attention under a causal mask and
    what conditional-full falls back to have names of their own."""
    linear = "causal-linear" if causal else "linear"
    if kind == "linear":
        return linear
    return f"conditional-full:{linear}" if kind == "conditional-full" else kind


def _width(layer: str, d_model: int, heads: int, width: int | None) -> int:
    if width is None and d_model % heads != 0:
        raise ValueError(f"{layer}: d_model: want a multiple of {heads} heads, got {d_model}")
    return d_model // heads if width is None else width


def _want_kind(mixer: str, others: Sequence[str] = ()) -> None:
    """Raises a ValueError that lists the inner attentions and the other kinds."""
    if not AttentionBuilder().validate_attention_type(attention_type(mixer, causal=True)):
        known = dict.fromkeys((*AttentionRegistry.keys, *others))
        names = ", ".join(repr(kind) for kind in known)
        raise ValueError(f"mixer: want one of {names}, got {mixer!r}")


def _taken(name: str) -> set[str]:
    """The options of the inner attention with a builders' name; none without one."""
    parts = [part for part in name.split(":") if part in AttentionRegistry.keys]
    return {key for part in parts for key in AttentionRegistry[part][1]}


def _inner(mixer: str, causal: bool, options: dict[str, Any]) -> Any:
    """The inner attention of a kind. Raises ValueError."""
    builder = AttentionBuilder()
    name = attention_type(mixer, causal)
    _want_kind(mixer)
    taken = _taken(name)
    for key, value in {"attention_dropout": 0.0, **options}.items():
        if key in taken:
            setattr(builder, key, value)
        elif key in options and key != "query_dimensions":
            raise ValueError(f"{key}: want a key of {mixer!r}, got {value!r}")
    return builder.get(name)
