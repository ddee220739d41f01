"""Operands, calls and comparisons that the tests of mapped_linear_attention share."""

import torch

from tarn import ops

D_KEY = 5


def arguments(name, d_key=D_KEY, n_dims=None, **more):
    """Keyword arguments that name a map, omega included."""
    frequencies = ops.feature_frequencies(name, d_key, n_dims)
    if frequencies:
        more["omega"] = ops.draw_omega(d_key, frequencies, orthogonal=True, seed=3)
    return dict(feature_map=name, **more)


def operands(B=2, T=37, S=None, H=2, HV=4, K=D_KEY, V=3, dtype=torch.float32):
    S = T if S is None else S
    q, k = torch.randn(B, T, H, K), torch.randn(B, S, H, K)
    return [x.to(dtype) for x in (q, k, torch.randn(B, S, HV, V))]


def error(given, wanted):
    """Largest error, relative for outputs above 1: a signed row may be large."""
    return ((given.double() - wanted).abs() / (1 + wanted.abs())).max().item()


CASES = {
    "plain": dict(),
    "not-causal": dict(causal=False),
    "offset": dict(causal_offset=-6),
    "offset-more-keys": dict(causal_offset=9, S=50),
    "mask": dict(mask=True),
    "lengths": dict(lengths=True, causal=False),
    "packed": dict(B=1, cu_seqlens=[0, 3, 3, 20, 37]),
    "one-token": dict(T=1),
    "no-keys": dict(S=0),
}


def gradients(loss, leaves):
    """Zeros for leaves that the loss does not depend on."""
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads)]


def assert_same_state(given, wanted, tolerance):
    assert (given.extra is None) == (wanted.extra is None)
    for part, other in zip(given, wanted):
        if part is not None:
            torch.testing.assert_close(part, other, rtol=tolerance, atol=tolerance)
