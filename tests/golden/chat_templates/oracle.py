"""transformers' own renderer of chat templates at a fixed time."""

from __future__ import annotations

import contextlib
import copy
import datetime
import json
from collections.abc import Iterator
from typing import Any

from conversations import NOW
from transformers.utils import chat_template_utils


class _Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime.datetime:
        return datetime.datetime(*NOW)


@contextlib.contextmanager
def fixed_time() -> Iterator[None]:
    held = chat_template_utils.datetime
    chat_template_utils.datetime = _Fixed
    try:
        yield
    finally:
        chat_template_utils.datetime = held


def aliased(context: dict[str, Any]) -> dict[str, Any]:
    """The context as transformers hands it to a template: reasoning under each of its
    names. A copy."""
    copied = json.loads(json.dumps(context))
    messages = copied.get("messages")
    if messages:
        copied["messages"] = chat_template_utils._alias_reasoning_fields(messages)
    return copied


def rendered(source: str, context: dict[str, Any]) -> str | None:
    """What transformers writes; None where it raises, also for the address of an object."""
    with fixed_time():
        try:
            compiled = chat_template_utils._compile_jinja_template(source)
            text = compiled.render(**copy.deepcopy(context))  # `indent` changes lists
            text.encode()
        except Exception:
            return None
    return None if " at 0x" in text else text
