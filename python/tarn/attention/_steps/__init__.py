"""Attentions as recurrences: what `prefill` and `step` of the attention modules,
and what reading a memory, come to. The modules of `tarn.attention` derive from
these beside their whole-sequence form, those of `tarn.recurrent` alone."""

from tarn.attention._steps.aft import AftFullSteps, AftSimpleSteps
from tarn.attention._steps.base import CausalSteps
from tarn.attention._steps.linear import LinearMemory, LinearSteps
from tarn.attention._steps.memory import FullMemory, MemoryReader
from tarn.attention._steps.softmax import FullSteps, LocalSteps, TopKSteps

__all__ = [
    "AftFullSteps",
    "AftSimpleSteps",
    "CausalSteps",
    "FullMemory",
    "FullSteps",
    "LinearMemory",
    "LinearSteps",
    "LocalSteps",
    "MemoryReader",
    "TopKSteps",
]
