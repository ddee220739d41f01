"""The operators around attention, in one pass where torch takes several."""

from collections.abc import Sequence

import torch

from tarn.ops import _checks as checks

__all__ = [
    "affine",
    "dropout_scales",
    "draw_seed",
    "draw_seeds",
    "feed_forward",
    "layer_heads",
    "layer_rest",
    "linear_attention_packed",
    "logistic_mixture_loss",
    "residual_norm",
    "rms_norm",
    "swiglu_feed_forward",
]


def draw_seed(dropout=1.0):
    """A seed of dropout from torch's default generator: an int64 scalar tensor.
    None where `dropout` is 0, so that nothing is drawn."""
    if dropout == 0:
        return None
    if torch.compiler.is_compiling():  # which does not follow random_
        return torch.randint(2**63 - 1, (), device="cpu")
    return torch.empty((), dtype=torch.int64, device="cpu").random_()


def draw_seeds(count: int) -> torch.Tensor:
    """`count` seeds at once, int64 [count], for `layer_rest`."""
    if torch.compiler.is_compiling():  # which does not follow random_
        return torch.randint(2**63 - 1, (count,), device="cpu")
    return torch.empty(count, dtype=torch.int64, device="cpu").random_()


def dropout_scales(seed, rows, width, probability):
    """[rows, width] float32: 0 with `probability` (counted in 65,536ths), else
    1 / (1 - probability); what the operators below multiply by under `seed`, a
    function of seed and width alone."""
    return torch.ops.tarn.dropout_scales.default(seed, rows, width, float(probability))


def affine(x, weight, bias=None):
    """``x @ weight.T + bias``.

    Args: x [..., D]; weight [E, D]; bias [E] or None, dtype of x.
    Returns: [..., E].
    Raises: ValueError (shapes, devices), TypeError (dtypes). Thread-safe.

    float32 on the CPU runs one product and one pass for the bias; other dtypes
    and devices are torch's linear. Differentiable to any order.
    """
    return torch.ops.tarn.affine.default(x, weight, bias)


def feed_forward(x, weight1, bias1, weight2, *, activation="relu", dropout=0.0, seed=None):
    """``drop(act(x @ weight1.T + bias1)) @ weight2.T``: the feed-forward network
    without its last bias, which `residual_norm` adds.

    Args:
        x: [..., D]; weight1: [F, D]; bias1: [F]; weight2: [E, F].
        activation: "relu" or "gelu" (the exact form).
        dropout: probability in [0, 1). seed: of `draw_seed`, wanted above 0.

    Returns: [..., E].
    Raises: ValueError, TypeError. Thread-safe.

    float32 on the CPU: bias, activation and dropout are one pass, as is their
    gradient; no mask is kept. Other dtypes and devices compose torch's operators.
    Differentiable to any order.
    """
    return torch.ops.tarn.feed_forward.default(
        x, weight1, bias1, weight2, activation, float(dropout), seed
    )[0]


def swiglu_feed_forward(x, weight1, weight2, weight3, *, dropout=0.0, seed=None):
    """``drop(silu(x @ weight1.T) * (x @ weight3.T)) @ weight2.T``, the gated
    feed-forward network without biases (Shazeer 2020, eq. (6)).

    Args:
        x: [..., D]; weight1 (the gate), weight3 (what it multiplies): [F, D];
            weight2: [E, F].
        dropout, seed: as in `feed_forward`.

    Returns: [..., E].
    Raises: ValueError, TypeError. Thread-safe.

    float32 on the CPU: gate, product and dropout are one pass, as is their
    gradient, which keeps the first two products and no mask. Other dtypes and
    devices compose torch's operators. Differentiable to any order.
    """
    return torch.ops.tarn.swiglu_feed_forward.default(
        x, weight1, weight2, weight3, float(dropout), seed
    )[0]


def residual_norm(
    x,
    residual=None,
    bias=None,
    gamma=None,
    beta=None,
    *,
    eps=1e-5,
    dropout=0.0,
    seed=None,
    kind="layer",
):
    """``s = residual + drop(x + bias)`` and ``y = LayerNorm(s) * gamma + beta``.

    Args:
        x, residual: [..., D]. bias, gamma, beta: [D]. Every one but x may be
            None: no residual, no bias, no norm.
        eps: inside the root. dropout, seed: as in `feed_forward`.
        kind: "layer", or "rms": ``y = s / sqrt(mean(s**2) + eps) * gamma``
            (Zhang and Sennrich 2019), which has no beta.

    Returns: (y, s), y None without gamma.
    Raises: ValueError, TypeError. Thread-safe.

    float32 on the CPU runs one pass forward and one backward. Other dtypes and
    devices compose torch's operators; half types are summed in float32.
    Differentiable to any order.
    """
    y, s, _, _ = torch.ops.tarn.residual_norm.default(
        x, residual, bias, gamma, beta, float(eps), float(dropout), seed, kind
    )
    if gamma is None:
        return None, s
    whole = residual is None and bias is None and dropout == 0
    return y, (x if whole else s)


def layer_heads(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor] = (),
    gamma: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    *,
    eps: float = 1e-5,
    kind: str = "layer",
) -> torch.Tensor:
    """What a layer does before its mixer: ``n = norm(x)`` and the affine maps that
    read it, ``n @ W.T + b`` each, side by side.

    Args:
        x: [..., D]. weights: one to four [E, D], E >= 1. biases: as many [E], or
            none.
        gamma, beta, eps, kind: the norm, as in `residual_norm`; no gamma: n = x.

    Returns: [..., sum of E].
    Raises: ValueError, TypeError. Thread-safe.

    float32 on the CPU takes rows through norm and products while they are in
    cache; the weights are not put side by side. Other dtypes and devices, and
    autocast, compose torch's operators. Differentiable to any order.
    """
    return torch.ops.tarn.layer_heads.default(
        x, list(weights), list(biases), gamma, beta, float(eps), kind
    )


def layer_rest(
    x: torch.Tensor,
    mixed: torch.Tensor,
    out_weight: torch.Tensor,
    out_bias: torch.Tensor | None,
    gamma: torch.Tensor,
    beta: torch.Tensor | None,
    weight1: torch.Tensor,
    bias1: torch.Tensor,
    weight2: torch.Tensor,
    bias2: torch.Tensor | None,
    end_gamma: torch.Tensor | None = None,
    end_beta: torch.Tensor | None = None,
    *,
    eps: float = 1e-5,
    activation: str = "relu",
    kind: str = "layer",
    dropout: Sequence[float] = (),
    seeds: torch.Tensor | None = None,
) -> torch.Tensor:
    """What a transformer layer does after its mixer::

        s = x + d1 * (mixed @ out_weight.T + out_bias);  n = norm(s)
        y = base + d3 * (d2 * act(n @ weight1.T + bias1) @ weight2.T + bias2)

    Pre-norm (Xiong et al. 2020): base = s. With end_gamma post-norm (Vaswani et
    al. 2017): base = n, and the result is norm(y).

    Args:
        x: [..., D]; mixed: [..., V], the mixer's result before its last map.
        out_weight: [D, V]; weight1: [F, D]; weight2: [D, F]; biases of their
            outputs, out_bias and bias2 may be None.
        gamma, beta, end_gamma, end_beta: [D]; beta of layer norms only.
        eps, kind: of both norms. activation: "relu" or "gelu" (the exact form).
        dropout: probabilities of d1, d2, d3, or none. seeds: `draw_seeds(3)`,
            wanted with them.

    Returns: [..., D].
    Raises: ValueError, TypeError. Thread-safe.

    float32 on the CPU takes rows through the whole chain while they are in
    cache, forward and back; it keeps s, n and n @ weight1.T for the gradient.
    Other dtypes and devices, and autocast, take the operators one by one.
    Differentiable to any order.
    """
    return torch.ops.tarn.layer_rest.default(
        x,
        mixed,
        out_weight,
        out_bias,
        gamma,
        beta,
        weight1,
        bias1,
        weight2,
        bias2,
        end_gamma,
        end_beta,
        float(eps),
        activation,
        kind,
        [float(p) for p in dropout],
        seeds,
    )


def rms_norm(x, gamma, *, eps=1e-5):
    """``x / sqrt(mean(x**2) + eps) * gamma`` over the last axis (Zhang and
    Sennrich 2019, eq. (4)): `residual_norm` of kind "rms" with nothing before it.

    Args: x [..., D]; gamma [D].
    Returns: [..., D], dtype of x.
    Raises: ValueError (shapes, devices), TypeError (dtypes). Thread-safe.
        Differentiable to any order.
    """
    return residual_norm(x, gamma=gamma, eps=eps, kind="rms")[0]


def logistic_mixture_loss(params: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Minus the log-probability of each target byte under a mixture of K discretized
    logistics (PixelCNN++; the head of image models). With y = 2 byte / 255 - 1
    and s = exp(max(log-scale, -7)), a component gives a byte the logistic's mass
    within 1/255 of y; bytes 0 and 255 get the whole tail; below 1e-5 the density
    at y over 127.5 stands for the mass.

    Args:
        params: [..., 3 K], logits, means and log-scales.
        targets: [...], uint8 or int64 in 0..255.

    Returns: [...], nats, dtype of params; ``loss.mean() / math.log(2)`` is bits
    per dimension.
    Raises: ValueError (shapes, values, devices), TypeError (dtypes). Thread-safe.

    float32 on the CPU runs one pass, and one for the gradient; other dtypes and
    devices compose torch's operators. Differentiable to any order. A NaN stays in
    its row. O(K) for each target.
    """
    return torch.ops.tarn.logistic_mixture_loss.default(params, targets)


def linear_attention_packed(
    packed,
    heads,
    d_key,
    *,
    value_heads=None,
    causal=True,
    feature_map="elu1",
    key_mask=None,
    key_lengths=None,
    denominator="exact",
    eps=1e-6,
    scale=1.0,
    chunk_size=None,
):
    """`linear_attention` on queries, keys and values side by side, as one
    product writes them: nothing is copied, and the gradient lies side by side.

    Args:
        packed: [B, T, 2 H K + HV V]: H heads of queries, as many of keys, HV of
            values. The rest as in `linear_attention`.
        heads, d_key: H, K. value_heads: HV, a multiple of H; None: H.

    Returns: [B, T, HV V], dtype of packed.
    Raises: ValueError, TypeError. Thread-safe. Differentiable to any order, as
    `linear_attention`.
    """
    checks.want_map("linear_attention_packed", feature_map, "mapped_linear_attention")
    return torch.ops.tarn.linear_attention_packed.default(
        packed,
        heads,
        heads if value_heads is None else value_heads,
        d_key,
        key_mask,
        key_lengths,
        bool(causal),
        feature_map,
        denominator,
        float(eps),
        float(scale),
        0 if chunk_size is None else chunk_size,
    )[0]
