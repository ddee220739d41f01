"""Which module a kind of attention is, where it is a whole mixer rather than an inner
attention of the builders."""

from __future__ import annotations

from tarn import _tables as tables
from tarn.nn._gated import GatedMixer
from tarn.nn._gated_softmax import GatedSoftmaxMixer
from tarn.nn._mixer import Mixer, View, make_registered, registered
from tarn.nn._rwkv import RwkvMixer


def is_mixer(kind: str) -> bool:
    """Whether `make_mixer` makes a kind."""
    row = tables.mixer(kind) or {}
    own = row.get("form") is not None or row.get("family") == "rwkv"
    return registered(kind) or own or kind == "gated-full"


def make_mixer(view: View, layer: int = 0) -> Mixer:
    """The mixer of a layer's view. layer: its number in the model, from which first values
    follow where the papers say so."""
    kind = view["attention"]
    if registered(kind):
        return make_registered(view)
    if kind == "gated-full":
        return GatedSoftmaxMixer(view)
    if (tables.mixer(kind) or {}).get("form") is None:
        return RwkvMixer(view, layer)
    return GatedMixer(view, layer)
