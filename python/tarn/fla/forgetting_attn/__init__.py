"""fla.ops.forgetting_attn: softmax attention with forget gates (Lin et al. 2025, arXiv
2503.02130). Its module has the original's name."""

from tarn.fla.forgetting_attn.parallel import parallel_forgetting_attn

__all__ = ["parallel_forgetting_attn"]
