"""Operators on torch tensors."""

from tarn.ops._linear_attention import linear_attention, linear_attention_step
from tarn.ops._state import LinearState

__all__ = ["LinearState", "linear_attention", "linear_attention_step"]
