"""The configuration of a model: a dictionary with the keys of config.json."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

import torch

from tarn import _library
from tarn import _tables as tables
from tarn._configurations import file_text

_library.ensure()


def finish_config(config: Mapping[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """The whole configuration that the given keys stand for: defaults filled
    in, sizes derived, every range and combination checked. docs/model-format.md
    lists the keys, `tarn.nn.register_mixer` adds some. Raises ValueError naming the key."""
    given = {**(config or {}), **keys}
    given.pop("format_version", None)
    try:
        return json.loads(torch.ops.tarn.finish_config(json.dumps(given)))
    except ValueError as error:
        unknown = re.search(r"unknown key '([^']*)'", str(error))
        near = unknown and difflib.get_close_matches(unknown[1], tables.config_fields(), 1)
        if not near:
            raise
        raise ValueError(f"{error} (did you mean {near[0]!r}?)") from None


def config_text(config: Mapping[str, Any]) -> str:
    """config.json of a configuration, the bytes that `tarn train` writes."""
    return file_text(config)


def weight_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor in the model's weight file."""
    shapes = json.loads(torch.ops.tarn.weight_shapes(config_text(config)))
    return {name: tuple(shape) for name, shape in shapes.items()}


def layer_view(config: Mapping[str, Any], index: int) -> dict[str, Any]:
    """A finished configuration as layer `index` of a stack sees it: `attention` is
    its mixer, the options of its entry are in their keys, and there is no
    "layers". A pattern repeats over the depth.

    A layer of random features has its own width (n_dims 0: d_key), a layer of signed
    features the signed denominator where that of the model is exact."""
    return json.loads(torch.ops.tarn.layer_view(config_text(config), index))
