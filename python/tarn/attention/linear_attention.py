"""Linear attention over all keys."""

from __future__ import annotations

import torch

from tarn import ops
from tarn.attention._linear import LINEAR_OWN, LINEAR_PARAMETERS, LinearAttentionBase
from tarn.attention._masks import key_arguments, want_no_attention_mask
from tarn.attention._steps import LinearMemory
from tarn.attention_registry import AttentionRegistry
from tarn.masking import BaseMask


class LinearAttention(LinearMemory, LinearAttentionBase):
    """``phi(q)^T sum phi(k) v^T / phi(q)^T sum phi(k)`` over all kept keys
    (Katharopoulos et al. 2020, eq. (5)), in O((L + S) C M) time.

    Args:
        query_dimensions: width E of queries and keys.
        feature_map: a name ("elu1", "relu", "relu2", "softplus", "poly2",
            "favor", "favor-positive", "rff", "smoothed-rff", "grf"), a module, or a
            factory as in `tarn.feature_maps`; None: elu + 1.
        eps: added to the denominator under compat.
        event_dispatcher: a name or a dispatcher.
        denominator: "exact", "signed", "compat" or "none" as in
            `tarn.ops.linear_attention`; None: "exact", or "signed" for a map
            whose features may be negative.
        compat: whether the numbers are those of fast-transformers 0.4: eps is
            added to denominators, random maps draw in evaluation too and are
            normalised and stabilised as in that package.
        feature_options: keyword arguments of a factory, such as n_dims.
    """

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
        """[N, L, H, E], [N, S, H, E], [N, S, H, M] -> [N, L, H, M]. Takes key
        masks only: MaskError where attn_mask leaves out keys."""
        want_no_attention_mask("LinearAttention", attn_mask, queries, keys)
        self.feature_map.new_feature_map(queries.device)
        return ops.mapped_linear_attention(
            queries,
            keys,
            values,
            causal=False,
            **key_arguments("LinearAttention", key_lengths, keys.shape[0], keys.shape[1]),
            **self.arguments(),
        )


AttentionRegistry.register("linear", LinearAttention, LINEAR_PARAMETERS, yielding=LINEAR_OWN)
