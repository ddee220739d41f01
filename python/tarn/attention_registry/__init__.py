"""The kinds of attention by name, for the builders, and how to add to them."""

from tarn.attention_registry.registry import (
    AttentionRegistry,
    RecurrentAttentionRegistry,
    RecurrentCrossAttentionRegistry,
    Registry,
)
from tarn.attention_registry.spec import (
    Bool,
    Callable,
    Choice,
    EventDispatcherInstance,
    Float,
    Int,
    Optional,
    Spec,
)

__all__ = [
    "AttentionRegistry",
    "Bool",
    "Callable",
    "Choice",
    "EventDispatcherInstance",
    "Float",
    "Int",
    "Optional",
    "RecurrentAttentionRegistry",
    "RecurrentCrossAttentionRegistry",
    "Registry",
    "Spec",
]
