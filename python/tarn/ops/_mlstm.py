"""The mLSTM cell: a matrix state with exponential gates and a normaliser."""

from typing import Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tarn.ops import _checks as checks

__all__ = ["mlstm"]

_NAME = "mlstm"


# Options that the overloads share; the docstring says what they mean.
class _Options(TypedDict, total=False):
    softcap: float
    kept: Tensor | None
    lengths: Tensor | None
    cu_seqlens: Tensor | None
    initial_state: tuple[Tensor, Tensor] | None
    scale: float | None
    eps: float


@overload
def mlstm(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    input_gates: Tensor,
    forget_gates: Tensor,
    input_bias: Tensor | None = None,
    forget_bias: Tensor | None = None,
    *,
    return_state: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor: ...


@overload
def mlstm(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    input_gates: Tensor,
    forget_gates: Tensor,
    input_bias: Tensor | None = None,
    forget_bias: Tensor | None = None,
    *,
    return_state: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...


@overload
def mlstm(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    input_gates: Tensor,
    forget_gates: Tensor,
    input_bias: Tensor | None = None,
    forget_bias: Tensor | None = None,
    *,
    return_state: bool,
    **options: Unpack[_Options],
) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]: ...


def mlstm(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    input_gates: Tensor,
    forget_gates: Tensor,
    input_bias: Tensor | None = None,
    forget_bias: Tensor | None = None,
    *,
    softcap: float = 0.0,
    kept: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: tuple[Tensor, Tensor] | None = None,
    scale: float | None = None,
    eps: float = 1e-6,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
    """The mLSTM cell of xLSTM, with i and f the capped gates:
    ``C_t = sigma(f_t) C_{t-1} + exp(i_t) k_t v_t^T``, ``n_t`` the same of ``k_t`` alone, and
    ``h_t = scale C_t^T q_t / (max(|scale n_t . q_t|, 1) + eps)``, where a running maximum m
    keeps the exponentials finite: C, n and the 1 are held divided by exp(m).

    Args:
        queries, keys: [B, T, H, K]; values: [B, T, H, V]. One dtype out of float32,
            bfloat16, float16 and float64.
        input_gates, forget_gates: [B, T, H], what i and f are before bias and cap, in one
            dtype.
        input_bias, forget_bias: [H]. None: zeros.
        softcap: gates x become c tanh(x / c) for this c; 0: no cap.
        kept: [B, T] bool. A token that is not kept does not change the state, whatever its
            gates hold; its output is read from the state. None: all.
        lengths: [B] int32 or int64, tokens in use at the front of each row. Pads touch no
            state, and their outputs are 0.
        cu_seqlens: [N + 1], 0 = first, T = last: N sequences packed along T with
            B = 1. It excludes `lengths`.
        initial_state: (S, m): S [B or N, H, K, V + 1] holds C and, as its last column, n;
            m [B or N, H]. float32 (float64 with float64 queries). None: zeros. Both receive
            a gradient.
        scale: factor of the queries; None: K^-1/2.
        eps: added to the denominator.
        return_state: whether to return the state (S, m) after each sequence too.

    Returns:
        h [B, T, H, V] in the dtype of values, or (h, (S, m)). T = 0 and B = 0 are valid. A
        step is a call with T = 1. Any m with its S is the same state: but for eps h does not
        depend on m.

    Raises:
        ValueError: shapes, ranges, devices. TypeError: types and dtypes. Both before any
        work.

    O(B T H K V) time in chunks, as `decay_attention`, which it is with values
    ``exp(i - m) (v, 1)``; arithmetic and states are float32 (float64). The kernels serve the
    three smaller dtypes on the CPU, with the same bits for any number of threads; the rest
    is composed from torch's operators. Differentiable to any order. Thread-safe. Beck et al.
    2024, arXiv 2405.04517, eq. (19)-(27); the caps of arXiv 2503.13427.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8)
        >>> i, f = torch.randn(2, 2, 5, 4)
        >>> out, (S, m) = ops.mlstm(q, k, v, i, f, softcap=15.0, return_state=True)
        >>> out.shape, S.shape, m.shape
        (torch.Size([2, 5, 4, 8]), torch.Size([2, 4, 8, 9]), torch.Size([2, 4]))
    """
    operands = {
        "queries": queries,
        "keys": keys,
        "values": values,
        "input_gates": input_gates,
        "forget_gates": forget_gates,
    }
    for name, tensor in operands.items():
        checks.want_tensor(_NAME, name, tensor)
    if initial_state is not None and not (
        isinstance(initial_state, tuple) and len(initial_state) == 2
    ):
        got = type(initial_state).__name__
        raise checks.type_error(_NAME, "initial_state", "a pair (S, m) or None", got)
    S, m = (None, None) if initial_state is None else initial_state
    optional = {
        "input_bias": input_bias,
        "forget_bias": forget_bias,
        "kept": kept,
        "lengths": lengths,
        "cu_seqlens": cu_seqlens,
        "initial_state": S,
        "initial_maximum": m,
    }
    for name, given in optional.items():
        if given is not None:
            checks.want_tensor(_NAME, name, given)
    numbers = {"softcap": softcap, "scale": scale, "eps": eps}
    for name, number in numbers.items():
        if not isinstance(number, (int, float)) and not (name == "scale" and number is None):
            raise checks.type_error(_NAME, name, "a number", type(number).__name__)
    factor = queries.shape[-1] ** -0.5 if scale is None else scale
    out, S, m = torch.ops.tarn.mlstm.default(
        *operands.values(),
        input_bias,
        forget_bias,
        float(softcap),
        kept,
        lengths,
        cu_seqlens,
        S,
        m,
        float(factor),
        float(eps),
        bool(return_state),
    )
    return (out, (S, m)) if return_state else out
