"""JSON from outside, by the rules of the runtime."""

from __future__ import annotations

import json
from typing import Any

import torch

from tarn import _library

_library.ensure()


def strict(data: bytes, where: str) -> Any:
    """The value of a document that the runtime's reader takes (core/json.h). Duplicate
    keys, text that is not UTF-8, NaN, numbers beyond double, deep nesting and anything
    after the document are a ValueError that begins with `where`."""
    text = torch.tensor(list(data[:1]), dtype=torch.uint8)
    if len(data) > 1:
        text = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    torch.ops.tarn.check_json(text, where)
    return json.loads(data)
