"""Attentions as recurrences: the implementation of `prefill` and `step` of the
attention modules, and of reading a memory. The modules of `tarn.attention` add these
to their whole-sequence form, those of `tarn.recurrent` have these alone."""

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
