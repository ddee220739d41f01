"""Causal attention in plain torch operators: softmax, and linear attention
(elu + 1, exact denominator; Katharopoulos et al. 2020) in chunked form."""

import torch


def elu1(x):
    return torch.nn.functional.elu(x) + 1


def in_chunks(x, chunk):
    """[B, T, H, D] -> [B, H, T / chunk, chunk, D], dense."""
    batch, seq_len, heads, width = x.shape
    x = x.reshape(batch, seq_len // chunk, chunk, heads, width)
    return x.permute(0, 3, 1, 2, 4).contiguous()


def from_chunks(x):
    return x.flatten(2, 3).transpose(1, 2)  # -> [B, T, H, D]


def batched(queries, keys, values, chunk=64, phi=elu1):
    """All chunks at once; a cumulative sum gives the states before them."""
    q, k, v = (in_chunks(x, chunk) for x in (phi(queries), phi(keys), values))
    scores = (q @ k.transpose(-1, -2)).tril()
    S = (k.transpose(-1, -2) @ v).cumsum(2)
    S = torch.cat([torch.zeros_like(S[:, :, :1]), S[:, :, :-1]], 2)
    z = k.sum(3).cumsum(2)
    z = torch.cat([torch.zeros_like(z[:, :, :1]), z[:, :, :-1]], 2)
    numerator = scores @ v + q @ S
    denominator = scores.sum(-1, keepdim=True) + q @ z[..., None]
    return from_chunks(numerator / denominator)


def ones_column(queries, keys, values, chunk=64, phi=elu1):
    """The same as batched(), with the denominator as one more column of the values."""
    values = torch.cat([values, torch.ones_like(values[..., :1])], -1)
    q, k, v = (in_chunks(x, chunk) for x in (phi(queries), phi(keys), values))
    S = (k.transpose(-1, -2) @ v).cumsum(2)
    S = torch.cat([torch.zeros_like(S[:, :, :1]), S[:, :, :-1]], 2)
    out = (q @ k.transpose(-1, -2)).tril() @ v + q @ S
    return from_chunks(out[..., :-1] / out[..., -1:])


def loop(queries, keys, values, chunk=64, phi=elu1):
    """Chunk after chunk with a carried state, which keeps the working set small."""
    q, k, v = (x.transpose(1, 2) for x in (phi(queries), phi(keys), values))
    S, z, outs = 0, 0, []
    for a, b, c in zip(*(x.split(chunk, 2) for x in (q, k, v))):
        scores = (a @ b.transpose(-1, -2)).tril()
        numerator = scores @ c
        denominator = scores.sum(-1, keepdim=True)
        if outs:
            numerator = numerator + a @ S
            denominator = denominator + a @ z
        outs.append(numerator / denominator)
        S = S + b.transpose(-1, -2) @ c
        z = z + b.sum(2)[..., None]
    return torch.cat(outs, 2).transpose(1, 2)


CHUNKED = {"batched": batched, "ones column": ones_column, "loop": loop}


def softmax(queries, keys, values):
    """scaled_dot_product_attention on [B, H, T, D]."""
    return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)


def naive_softmax(queries, keys, values):
    """Causal softmax attention written out, [B, T, H, D]: the T x T scores, their
    mask, the weights and, in the gradient, two more of that size live at once."""
    q, k, v = (x.transpose(1, 2) for x in (queries, keys, values))
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
    return (weights @ v).transpose(1, 2)
