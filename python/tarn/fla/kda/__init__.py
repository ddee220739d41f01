"""fla.ops.kda: Kimi delta attention (Kimi Team 2025, arXiv 2510.26692), the gated delta
rule with a decay for each channel of the keys. Its modules have the original's names."""

from tarn.fla.kda.chunk import chunk_kda
from tarn.fla.kda.fused_recurrent import fused_recurrent_kda

__all__ = ["chunk_kda", "fused_recurrent_kda"]
