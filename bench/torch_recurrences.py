"""Gated recurrences in plain torch operators, in chunks of 64 tokens: what a user writes
without kernels. Sums of logarithms within a chunk, so that gates have to be mild; delta
rules solve one triangular system a chunk (Yang et al. 2024, arXiv 2412.06464)."""

import torch
from torch_forms import from_chunks, in_chunks

CHUNK = 64


def _gates(gates, chunk):
    """[B, T, H] or [B, T, H, K] -> sums within chunks [B, H, N, C, 1 or K]."""
    if gates.dim() == 3:
        gates = gates.unsqueeze(-1)
    return in_chunks(gates, chunk).cumsum(3)


def decay(queries, keys, values, gates, chunk=CHUNK):
    """S_t = exp(g_t) S_{t-1} + k_t v_t^T, o_t = S_t^T q_t."""
    q, k, v = (in_chunks(x, chunk) for x in (queries, keys, values))
    sums = _gates(gates, chunk)
    last = sums[..., -1:, :]
    if sums.shape[-1] == 1:
        factors = (sums - sums.transpose(-1, -2)).tril().exp()
        scores = ((q @ k.transpose(-1, -2)) * factors).tril()
    else:
        scores = ((q * sums.exp()) @ (k * (-sums).exp()).transpose(-1, -2)).tril()
    inner = scores @ v
    added = (k * (last - sums).exp()).transpose(-1, -2) @ v
    total = last.exp().transpose(-1, -2)
    S, outs = torch.zeros_like(added[:, :, 0]), []
    reads = q * sums.exp()
    for n in range(q.shape[2]):
        outs.append(inner[:, :, n] + reads[:, :, n] @ S)
        S = total[:, :, n] * S + added[:, :, n]
    return from_chunks(torch.stack(outs, 2))


def delta(queries, keys, values, gates, betas, chunk=CHUNK):
    """W = exp(g_t) S_{t-1}, u = beta_t (v_t - W^T k_t), S_t = W + k_t u^T,
    o_t = S_t^T q_t / sqrt(K)."""
    queries = queries * queries.shape[-1] ** -0.5
    q, k, v = (in_chunks(x, chunk) for x in (queries, keys, values))
    beta = in_chunks(betas.unsqueeze(-1), chunk)
    sums = _gates(gates, chunk)
    last = sums[..., -1:, :]
    if sums.shape[-1] == 1:
        factors = (sums - sums.transpose(-1, -2)).tril().exp()
        between = (k @ k.transpose(-1, -2)) * factors
        scores = ((q @ k.transpose(-1, -2)) * factors).tril()
    else:
        back = (k * (-sums).exp()).transpose(-1, -2)
        between = (k * sums.exp()) @ back
        scores = ((q * sums.exp()) @ back).tril()
    system = torch.eye(chunk) + (beta * between).tril(-1)
    right = torch.cat([beta * v, beta * sums.exp() * k], -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    own, through = solved.split([v.shape[-1], k.shape[-1]], -1)
    writes = (k * (last - sums).exp()).transpose(-1, -2)
    total = last.exp().transpose(-1, -2)
    reads = q * sums.exp()
    S, outs = torch.zeros_like(writes[:, :, 0] @ v[:, :, 0]), []
    for n in range(q.shape[2]):
        u = own[:, :, n] - through[:, :, n] @ S
        outs.append(reads[:, :, n] @ S + scores[:, :, n] @ u)
        S = total[:, :, n] * S + writes[:, :, n] @ u
    return from_chunks(torch.stack(outs, 2))
