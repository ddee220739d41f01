"""The hand-over to flash-linear-attention (fla-org, Triton kernels): on CUDA, where it is
installed and this build of tarn has no CUDA kernels, its chunked kernel computes the sums
of the calls that it supports;
features, masks and denominators stay tarn's. Under `composed_forms`, and for all
other calls, tarn's own composed form runs."""

import functools
import importlib
from typing import Any

import torch

from tarn.ops._state import LinearState


@functools.lru_cache(maxsize=1)
def _chunk() -> Any:
    """fla's chunk_linear_attn, or None where it is not installed or does not load."""
    try:
        return importlib.import_module("fla.ops.linear_attn").chunk_linear_attn
    except Exception:  # its import compiles: if anything fails there, tarn runs without
        return None


def serves(queries, keys, causal, causal_offset, cu_seqlens, chunk_size):
    """Whether the hand-over computes a call: causal self-attention of whole rows on
    CUDA, in the types its kernels take, outside compilers and transforms."""
    return (
        queries.is_cuda
        and queries.dtype in (torch.float32, torch.bfloat16)  # undivided, float16 overflows
        and bool(causal)
        and causal_offset == 0
        and cu_seqlens is None
        and chunk_size is None
        and 0 < queries.shape[1] == keys.shape[1]
        and queries.shape[0] > 0
        and not torch.compiler.is_compiling()
        and not getattr(torch._C, "_functorch").peek_interpreter_stack()
        and not torch.ops.tarn.composed_forced()
        and not torch.ops.tarn.cuda_kernels()
        and _chunk() is not None
    )


class _Sums(torch.autograd.Function):
    """(sums, final state) of fla's kernel. Its gradient runs kernels that leave no
    graph, so a gradient of it is an error, instead of an incomplete result."""

    @staticmethod
    def forward(ctx, *given):
        inputs = [x if x is None else x.detach().requires_grad_() for x in given]
        with torch.enable_grad():
            q, k, v, state_S = inputs
            outputs = _chunk()(
                q, k, v, scale=1.0, initial_state=state_S, output_final_state=True, normalize=False
            )
        ctx.graph = inputs, outputs
        return tuple(x.detach() for x in outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):
        inputs, outputs = ctx.graph
        leaves = [x for x in inputs if x is not None]
        found = iter(
            torch.autograd.grad(outputs, leaves, grads, retain_graph=True, allow_unused=True)
        )
        return tuple(x if x is None else next(found) for x in inputs)


def linear_attention(queries, keys, values, kept, feature_map, denominator, eps, scale, initial):
    """(out, LinearState) of a call that `serves`. Shapes as in
    tarn.ops.linear_attention; `kept` [B, S] bool or None, `initial` (S, z) or
    (None, None). The sums run in the dtype of the operands (under autocast, in that of
    autocast) with float32 accumulators, denominators in float32. Differentiable once."""
    if torch.is_autocast_enabled(queries.device.type):
        dtype = torch.get_autocast_dtype(queries.device.type)
        queries, keys, values = (x.to(dtype) for x in (queries, keys, values))
    group = values.shape[2] // keys.shape[2]
    state_S, state_z = initial
    if kept is not None:  # before phi too: its slope at a NaN is NaN
        keys = torch.where(kept[:, :, None, None], keys, 0.0)
        values = torch.where(kept[:, :, None, None], values, 0.0)
    q = torch.ops.tarn.elementwise_features(queries, feature_map)
    k = torch.ops.tarn.elementwise_features(keys, feature_map)
    if kept is not None:
        k = torch.where(kept[:, :, None, None], k, 0.0)
    if group > 1:
        q, k = q.repeat_interleave(group, 2), k.repeat_interleave(group, 2)
    sums, final_S = _Sums.apply(q, k, values, state_S)
    counts = k.float().cumsum(1)
    if state_z is not None:
        counts = counts + state_z[:, None]
    state = LinearState(final_S.float(), counts[:, -1])
    if denominator == "none":
        return sums.to(queries.dtype) * scale, state
    divisors = (q.float() * counts).sum(-1, keepdim=True)
    if denominator == "compat":
        out = sums.float() * scale / (divisors * scale + eps)
    else:
        empty = divisors < torch.finfo(torch.float32).tiny
        out = torch.where(empty, 0.0, sums.float() / torch.where(empty, 1.0, divisors))
    return out.to(queries.dtype), state
