"""Linear attention over the keys so far."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._linear import LINEAR_OWN, LINEAR_PARAMETERS, LinearAttentionBase
from tarn.attention._masks import causal_offset_of, key_arguments
from tarn.attention._steps import LinearSteps
from tarn.attention_registry import AttentionRegistry
from tarn.causal_product import causal_dot_product
from tarn.masking import BaseMask


def causal_linear(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """The causal product without its denominator, sum over j <= i of
    (Q_i . K_j) V_j: [N, L, H, E], [N, S, H, E], [N, S, H, M] -> [N, L, H, M].
    The rest is as in `tarn.causal_product.causal_dot_product`."""
    product = causal_dot_product(Q.transpose(1, 2), K.transpose(1, 2), V.transpose(1, 2))
    return product.transpose(1, 2)


class CausalLinearAttention(LinearSteps, LinearAttentionBase):
    """LinearAttention where query i reads the keys j <= i + offset, with the
    offset of the mask (Katharopoulos et al. 2020, eq. (8)-(12)).
    Arguments as in LinearAttention."""

    _one_call = True

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attn_mask: BaseMask | None = None,
        query_lengths: BaseMask | None = None,
        key_lengths: BaseMask | None = None,
    ) -> torch.Tensor:
        """[N, L, H, E], [N, S, H, E], [N, S, H, M] -> [N, L, H, M]. Raises MaskError
        unless attn_mask is lower triangular. L and S may differ."""
        offset = causal_offset_of("CausalLinearAttention", attn_mask, queries, keys)
        self.feature_map.new_feature_map(queries.device)
        return ops.mapped_linear_attention(
            queries,
            keys,
            values,
            causal=True,
            causal_offset=offset,
            **key_arguments("CausalLinearAttention", key_lengths, keys.shape[0], keys.shape[1]),
            **self.arguments(),
        )


AttentionRegistry.register(
    "causal-linear", CausalLinearAttention, LINEAR_PARAMETERS, yielding=LINEAR_OWN
)
