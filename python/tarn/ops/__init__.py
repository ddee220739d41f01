"""Operators on torch tensors.

Kernels serve tensors on the CPU (float32 and, in attention, the half types). On
every other device, in float64, under the transforms of torch.func and for
gradients of gradients an operator runs its composed form, from torch's own
operators: linear where the kernel is, differentiable to any order.
`composed_forms` forces it. The clustered kinds, reformer and aft-full have one
form for every device, which torch.func does not follow; they decide on the CPU
which positions meet. Autocast casts their arguments; states, statistics and
losses stay float32.

Examples in docstrings assume ``import torch`` and ``from tarn import ops``.
"""

from tarn import _library

_library.ensure()  # registers torch.ops.tarn

from tarn.ops._forms import composed_forms  # noqa: E402
from tarn.ops._aft import (  # noqa: E402
    AftState,
    aft_full_attention,
    aft_simple_attention,
)
from tarn.ops._clustered import (  # noqa: E402
    causal_improved_clustered_attention,
    clustered_attention,
    improved_clustered_attention,
)
from tarn.ops._feature_maps import (  # noqa: E402
    draw_omega,
    favor,
    feature_frequencies,
    feature_width,
    grf,
    poly2,
    rff,
    smoothed_rff,
)
from tarn.ops._convolution import short_convolution  # noqa: E402
from tarn.ops._elementwise import elementwise_recurrence  # noqa: E402
from tarn.ops._gated import (  # noqa: E402
    decay_attention,
    delta_attention,
    dplr_attention,
)
from tarn.ops._decay_families import (  # noqa: E402
    gated_linear_attention,
    lightning_attention,
    lightning_gates,
    retention,
    retention_gates,
    rwkv6,
    ssd,
)
from tarn.ops._delta_families import (  # noqa: E402
    delta_rule,
    gated_delta_rule,
    kda,
    rwkv7,
)
from tarn.ops._gated_norm import gated_norm  # noqa: E402
from tarn.ops._dropout import draw_seed, draw_seeds, dropout_scales  # noqa: E402
from tarn.ops._feed_forward import (  # noqa: E402
    affine,
    feed_forward,
    swiglu_feed_forward,
)
from tarn.ops._norms import residual_norm, rms_norm  # noqa: E402
from tarn.ops._layers import layer_heads, layer_rest  # noqa: E402
from tarn.ops._losses import logistic_mixture_loss  # noqa: E402
from tarn.ops._linear_attention import (  # noqa: E402
    linear_attention,
    linear_attention_step,
)
from tarn.ops._mapped_attention import (  # noqa: E402
    causal_dot_product,
    mapped_linear_attention,
    mapped_linear_attention_step,
)
from tarn.ops._mlstm import mlstm  # noqa: E402
from tarn.ops._moe import (  # noqa: E402
    expert_feed_forward,
    load_balancing_loss,
    route_tokens,
)
from tarn.ops._packed_attention import linear_attention_packed  # noqa: E402
from tarn.ops._reformer import reformer_attention  # noqa: E402
from tarn.ops._rg_lru import rg_lru  # noqa: E402
from tarn.ops._rows import (  # noqa: E402
    channel_mix,
    decay_gate,
    depth_bounds,
    head_scale,
    token_shift,
    unit_norm,
)
from tarn.ops._selective_scan import selective_scan  # noqa: E402
from tarn.ops._softmax import (  # noqa: E402
    exact_topk_attention,
    full_attention,
    local_attention,
)
from tarn.ops._state import LinearState  # noqa: E402

__all__ = [
    "composed_forms",
    "AftState",
    "LinearState",
    "affine",
    "aft_full_attention",
    "aft_simple_attention",
    "causal_dot_product",
    "causal_improved_clustered_attention",
    "channel_mix",
    "clustered_attention",
    "decay_attention",
    "decay_gate",
    "depth_bounds",
    "delta_attention",
    "delta_rule",
    "dplr_attention",
    "draw_omega",
    "draw_seed",
    "draw_seeds",
    "dropout_scales",
    "elementwise_recurrence",
    "exact_topk_attention",
    "expert_feed_forward",
    "favor",
    "feature_frequencies",
    "feature_width",
    "feed_forward",
    "full_attention",
    "gated_delta_rule",
    "gated_linear_attention",
    "gated_norm",
    "grf",
    "head_scale",
    "improved_clustered_attention",
    "kda",
    "layer_heads",
    "layer_rest",
    "lightning_attention",
    "lightning_gates",
    "linear_attention",
    "linear_attention_packed",
    "linear_attention_step",
    "load_balancing_loss",
    "local_attention",
    "logistic_mixture_loss",
    "mapped_linear_attention",
    "mapped_linear_attention_step",
    "mlstm",
    "poly2",
    "reformer_attention",
    "residual_norm",
    "retention",
    "retention_gates",
    "rff",
    "rg_lru",
    "rms_norm",
    "route_tokens",
    "rwkv6",
    "rwkv7",
    "selective_scan",
    "short_convolution",
    "smoothed_rff",
    "ssd",
    "swiglu_feed_forward",
    "token_shift",
    "unit_norm",
]
