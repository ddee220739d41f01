"""Whole attention calls from Python, forward and gradient, allocation included:
tarn's operator and what a user of torch would call instead."""

import harness
import torch
import torch_forms


def _tensors(shape):
    return [torch.randn(shape, requires_grad=True) for _ in range(3)], torch.randn(shape)


def side(name, form, shape, threads, backward=True):
    """Times form(queries, keys, values) on tensors of `shape`, with gradients
    of all three."""
    tensors, grad_out = _tensors(shape)
    facts = {"shape": list(shape)}

    def both():
        torch.autograd.grad(form(*tensors), tensors, grad_out)

    def forward():
        with torch.no_grad():
            form(*tensors)

    return harness.of_call(name, both if backward else forward, threads, facts=facts)


def tarn_side(batch, seq_len, heads, width, threads, backward=True, dtype=None):
    import tarn

    shape = (batch, seq_len, heads, width)
    return side("tarn", tarn.ops.linear_attention, shape, threads, backward)


def softmax_side(batch, seq_len, heads, width, threads, backward=True):
    """torch's softmax attention in its own layout, [B, H, T, D]."""
    shape = (batch, heads, seq_len, width)
    name = "torch softmax attention"
    return side(name, torch_forms.softmax, shape, threads, backward)


def chunked_sides(batch, seq_len, heads, width, threads, backward=True):
    shape = (batch, seq_len, heads, width)
    return [
        side(f"torch, chunked ({name})", form, shape, threads, backward)
        for name, form in torch_forms.CHUNKED.items()
    ]


def fast_transformers_side(batch, seq_len, heads, width, threads, backward=True):
    """Causal linear attention of fast-transformers, map and denominator included,
    on [N, L, H, E]."""
    from fast_transformers.attention import CausalLinearAttention
    from fast_transformers.masking import LengthMask, TriangularCausalMask

    attention = CausalLinearAttention(width)
    mask = TriangularCausalMask(seq_len)
    lengths = LengthMask(torch.full((batch,), seq_len, dtype=torch.int64))

    def form(queries, keys, values):
        return attention(queries, keys, values, mask, lengths, lengths)

    shape = (batch, seq_len, heads, width)
    return side("fast-transformers", form, shape, threads, backward)


def tuned_fast_transformers_side(batch, seq_len, heads, width, threads, backward=True):
    """The same with its causal product compiled for the instruction set of tarn."""
    import native
    import peer_fast_transformers as peer

    made = fast_transformers_side(batch, seq_len, heads, width, threads, backward)
    made.name, run = peer.TUNED, made.run

    def tuned(inner):
        peer.use_causal_product(peer.TUNED, native.simd_target())
        try:
            return run(inner)
        finally:
            peer.use_causal_product(peer.INSTALLED, native.simd_target())

    made.run = tuned
    return made


def fastest(sides):
    """The side that is best in a few quick runs each, of at least 10 ms."""
    best = None
    for one in sides:
        harness.settle()
        one.run(1)
        inner = max(1, int(0.01 / one.run(1)[0]))
        seconds = min(one.run(inner)[0] for _ in range(4)) / inner
        if best is None or seconds < best[0]:
            best = seconds, one
    return best[1]
