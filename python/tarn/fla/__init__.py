"""The functions of flash-linear-attention 0.6 on the CPU, over `tarn.ops`: its names,
its arguments with their order and defaults, its results. Each family is a module too, so
that a program changes `fla.ops` to `tarn.fla` in its imports.

What the original refuses or loses is computed here: float32 in every function, any T,
any K and V, gates of -inf and of any size, without sums of logarithms. What chooses a
kernel there (chunk_size, safe_gate, ...) is taken and changes no number. Context
parallelism (cp_context) and the layout with heads first are refused.

Each call runs the kernels of `tarn.ops` where they support it, and is differentiable to
any order. The functions of mamba_ssm and causal_conv1d that Mamba-2's models call are
here too.
"""

from tarn.fla.attn import parallel_attn
from tarn.fla.attn.decoding import attn_decoding_one_step
from tarn.fla.causal_conv1d import causal_conv1d_fn, causal_conv1d_update
from tarn.fla.comba import chunk_comba, fused_recurrent_comba
from tarn.fla.delta_rule import (
    chunk_delta_rule,
    fused_chunk_delta_rule,
    fused_recurrent_delta_rule,
)
from tarn.fla.forgetting_attn import parallel_forgetting_attn
from tarn.fla.gated_delta_product import chunk_gated_delta_product
from tarn.fla.gated_delta_rule import (
    chunk_gated_delta_rule,
    chunk_gdn,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_gdn,
)
from tarn.fla.gated_delta_rule.gate import fused_gdn_gate
from tarn.fla.generalized_delta_rule import (
    chunk_dplr_delta_rule,
    chunk_iplr_delta_rule,
    fused_recurrent_dplr_delta_rule,
    fused_recurrent_iplr_delta_rule,
)
from tarn.fla.gla import chunk_gla, fused_chunk_gla, fused_recurrent_gla
from tarn.fla.gsa import chunk_gsa, fused_recurrent_gsa
from tarn.fla.gsa.gate import fused_additive_gate
from tarn.fla.hgrn import chunk_hgrn, fused_recurrent_hgrn
from tarn.fla.kda import chunk_kda, fused_recurrent_kda
from tarn.fla.kda.fused_recurrent import fused_recurrent_kda_fwd
from tarn.fla.kda.gate import fused_kda_gate
from tarn.fla.lightnet import chunk_lightnet, fused_recurrent_lightnet
from tarn.fla.lightning_attn import chunk_lightning_attn, fused_recurrent_lightning_attn
from tarn.fla.linear_attn import (
    chunk_linear_attn,
    fused_chunk_linear_attn,
    fused_recurrent_linear_attn,
)
from tarn.fla.mamba import (
    mamba_chunk_scan_combined,
    mamba_split_conv1d_scan_combined,
    selective_scan_fn,
    selective_state_update,
)
from tarn.fla.retention import (
    chunk_retention,
    fused_chunk_retention,
    fused_recurrent_retention,
    parallel_retention,
)
from tarn.fla.rwkv6 import chunk_rwkv6, fused_recurrent_rwkv6
from tarn.fla.rwkv7 import (
    chunk_rwkv7,
    fused_mul_recurrent_rwkv7,
    fused_recurrent_rwkv7,
)
from tarn.fla.simple_gla import (
    chunk_simple_gla,
    fused_chunk_simple_gla,
    fused_recurrent_simple_gla,
    parallel_simple_gla,
)

__all__ = [
    "attn_decoding_one_step",
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "chunk_comba",
    "chunk_delta_rule",
    "chunk_dplr_delta_rule",
    "chunk_gated_delta_product",
    "chunk_gated_delta_rule",
    "chunk_gdn",
    "chunk_gla",
    "chunk_gsa",
    "chunk_hgrn",
    "chunk_iplr_delta_rule",
    "chunk_kda",
    "chunk_lightnet",
    "chunk_lightning_attn",
    "chunk_linear_attn",
    "chunk_retention",
    "chunk_rwkv6",
    "chunk_rwkv7",
    "chunk_simple_gla",
    "fused_additive_gate",
    "fused_chunk_delta_rule",
    "fused_chunk_gla",
    "fused_chunk_linear_attn",
    "fused_chunk_retention",
    "fused_chunk_simple_gla",
    "fused_gdn_gate",
    "fused_kda_gate",
    "fused_mul_recurrent_rwkv7",
    "fused_recurrent_comba",
    "fused_recurrent_delta_rule",
    "fused_recurrent_dplr_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gdn",
    "fused_recurrent_gla",
    "fused_recurrent_gsa",
    "fused_recurrent_hgrn",
    "fused_recurrent_iplr_delta_rule",
    "fused_recurrent_kda",
    "fused_recurrent_kda_fwd",
    "fused_recurrent_lightnet",
    "fused_recurrent_lightning_attn",
    "fused_recurrent_linear_attn",
    "fused_recurrent_retention",
    "fused_recurrent_rwkv6",
    "fused_recurrent_rwkv7",
    "fused_recurrent_simple_gla",
    "mamba_chunk_scan_combined",
    "mamba_split_conv1d_scan_combined",
    "parallel_attn",
    "parallel_forgetting_attn",
    "parallel_retention",
    "parallel_simple_gla",
    "selective_scan_fn",
    "selective_state_update",
]
