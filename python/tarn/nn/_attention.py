"""The attention layer."""

import torch

from tarn import ops


class LinearAttention(torch.nn.Module):
    """Multi-head linear self-attention: four affine maps around one operator.

    Args:
        d_model: width D of inputs and outputs.
        heads: number of heads H.
        d_key, d_value: widths K, V of a head; None: d_model / heads.
        causal: whether a token reads only what is not after it.
        feature_map, denominator, eps: as in `tarn.ops.linear_attention`.

    Parameters, initialised as torch.nn.Linear: query_projection and
    key_projection [H K, D], value_projection [H V, D], out_projection [D, H V],
    each with a bias. Raises ValueError where d_model is not a multiple of heads
    and a width is left to it.
    """

    def __init__(
        self,
        d_model,
        heads,
        *,
        d_key=None,
        d_value=None,
        causal=True,
        feature_map="elu1",
        denominator="exact",
        eps=1e-6,
    ):
        super().__init__()
        if (d_key is None or d_value is None) and d_model % heads != 0:
            raise ValueError(
                f"LinearAttention: d_model: want a multiple of {heads} heads, got {d_model}"
            )
        self.heads = heads
        self.d_key = d_model // heads if d_key is None else d_key
        self.d_value = d_model // heads if d_value is None else d_value
        self.causal = causal
        self.feature_map = feature_map
        self.denominator = denominator
        self.eps = eps
        keys, values = heads * self.d_key, heads * self.d_value
        self.query_projection = torch.nn.Linear(d_model, keys)
        self.key_projection = torch.nn.Linear(d_model, keys)
        self.value_projection = torch.nn.Linear(d_model, values)
        self.out_projection = torch.nn.Linear(values, d_model)

    def forward(self, x: torch.Tensor, key_mask: torch.Tensor | None = None) -> torch.Tensor:
        """x [B, T, D], key_mask [B, T] bool (True = keep) or None -> [B, T, D]."""
        return self.unbiased(x, key_mask) + self.out_projection.bias

    def unbiased(self, x, key_mask=None):
        """forward without the bias of out_projection, for callers that add it
        in a later pass. One product makes queries, keys and values."""
        maps = (self.query_projection, self.key_projection, self.value_projection)
        packed = ops.affine(
            x, torch.cat([m.weight for m in maps]), torch.cat([m.bias for m in maps])
        )
        heads = ops.linear_attention_packed(
            packed,
            self.heads,
            self.d_key,
            causal=self.causal,
            feature_map=self.feature_map,
            key_mask=key_mask,
            denominator=self.denominator,
            eps=self.eps,
        )
        return ops.affine(heads, self.out_projection.weight)

    def extra_repr(self):
        return f"heads={self.heads}, causal={self.causal}, feature_map={self.feature_map!r}"
