"""Softmax attention by definition, in float64: one query at a time, over the
list of keys it may read. Shares nothing with the package."""

import math

import torch


def allowed_keys(i, S, *, b, h, causal, causal_offset, attention_mask, key_mask, key_lengths,
                 local_context, window):  # fmt: skip
    """A(i) of section 2.1, as a list."""
    keys = []
    for j in range(S):
        if causal and j > i + causal_offset:
            continue
        if local_context is not None:
            c = local_context
            if not (i - c // 2 <= j < i + (c + 1) // 2):
                continue
        if window and j <= i + causal_offset - window:
            continue
        if key_mask is not None and not key_mask[b, j]:
            continue
        if key_lengths is not None and j >= key_lengths[b]:
            continue
        if attention_mask is not None and not attention_mask[b, h, i, j]:
            continue
        keys.append(j)
    return keys


def reference(
    queries,
    keys,
    values,
    *,
    causal=False,
    causal_offset=0,
    attention_mask=None,
    key_mask=None,
    key_lengths=None,
    bias=None,
    softmax_temp=None,
    local_context=None,
    topk=None,
    factors=None,
    window=0,
    softcap=0.0,
    sinks=None,
):
    """(out [B, T, H, V], weights [B, H, T, S]); factors [B, H, T, S] of dropout.
    Differentiable in float64."""
    q, k, v = (x.double() for x in (queries, keys, values))
    B, T, H, K = q.shape
    S = k.shape[1]
    scale = 1 / math.sqrt(K) if softmax_temp is None else softmax_temp

    def whole(plane):
        return None if plane is None else plane.expand(B, H, T, S)

    mask, bias = whole(attention_mask), whole(bias)
    outs, rows = [], []
    for b in range(B):
        for i in range(T):
            for h in range(H):
                chosen = allowed_keys(
                    i, S, b=b, h=h, causal=causal, causal_offset=causal_offset,
                    attention_mask=mask, key_mask=key_mask, key_lengths=key_lengths,
                    local_context=local_context, window=window,
                )  # fmt: skip
                if bias is not None:
                    chosen = [j for j in chosen if bias[b, h, i, j] != -math.inf]
                scores = (k[b, chosen, h] @ q[b, i, h]) * scale
                if softcap:
                    scores = softcap * torch.tanh(scores / softcap)
                if bias is not None:
                    scores = scores + bias[b, h, i, chosen].double()
                if topk is not None:
                    order = sorted(range(len(chosen)), key=lambda n: (-scores[n].item(), n))
                    places = sorted(order[:topk])
                    chosen, scores = [chosen[n] for n in places], scores[places]
                if sinks is not None:  # one more score, whose weight is dropped
                    scores = torch.cat([scores, sinks[h : h + 1].double()])
                weights = torch.softmax(scores, 0)[: len(chosen)]
                row = torch.zeros(S, dtype=torch.float64)
                rows.append(row.index_add(0, torch.tensor(chosen, dtype=torch.long), weights))
                if factors is not None:
                    weights = weights * factors[b, h, i, chosen]
                outs.append(weights @ v[b, chosen, h])
    if not outs:
        return torch.zeros(B, T, H, v.shape[3]).double(), torch.zeros(B, H, T, S).double()
    out = torch.stack(outs).view(B, T, H, -1)
    return out, torch.stack(rows).view(B, T, H, S).transpose(1, 2)
