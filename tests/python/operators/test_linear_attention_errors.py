"""A wrong argument gives ValueError or TypeError that names it, what was wanted
and what was given."""

import re

import pytest
import torch

from tarn.ops import (
    LinearState,
    linear_attention,
    linear_attention_packed,
    linear_attention_step,
)

B, T, S, H, HV, K, V = 2, 5, 7, 2, 4, 3, 6


def call(**changed):
    arguments = dict(
        queries=torch.zeros(B, T, H, K),
        keys=torch.zeros(B, S, H, K),
        values=torch.zeros(B, S, HV, V),
    )
    arguments.update(changed)
    return linear_attention(**arguments)


def packed(**changed):
    shape = dict(
        queries=torch.zeros(1, S, H, K),
        keys=torch.zeros(1, S, H, K),
        values=torch.zeros(1, S, HV, V),
    )
    return call(**{**shape, **changed})


def state(rows=B, dtype=torch.float32):
    return torch.zeros(rows, HV, K, V, dtype=dtype), torch.zeros(rows, HV, K, dtype=dtype)


Z = torch.zeros
I = torch.tensor

VALUE_ERRORS = [
    (lambda: call(queries=Z(B, T, K)), "queries: want 4 axes [B, T, H, K], got [2, 5, 3]"),
    (
        lambda: call(keys=Z(B, H, S, K)),
        "keys: want [2, 2, 2, 3] (time comes before heads), got [2, 2, 7, 3]",
    ),
    (lambda: call(keys=Z(3, S, H, K)), "keys: want [2, 7, 2, 3], got [3, 7, 2, 3]"),
    (lambda: call(values=Z(B, 6, HV, V)), "values: want [2, 7, 4, 6], got [2, 6, 4, 6]"),
    (lambda: call(values=Z(B, S, 3, V)), "values: want value heads a multiple of 2"),
    (lambda: call(values=Z(B, S, HV, 0)), "values: want"),
    (lambda: call(queries=Z(B, T, H, 0), keys=Z(B, S, H, 0)), "queries: want at least"),
    (
        lambda: call(feature_map="favor"),
        "feature_map: want one of 'elu1', 'identity', 'relu', 'relu2', 'softplus' "
        "(mapped_linear_attention takes the others), got 'favor'",
    ),
    (
        lambda: call(feature_map=torch.relu),
        "feature_map: want one of 'elu1', 'identity', 'relu', 'relu2', 'softplus' "
        "(mapped_linear_attention takes the others), got a function",
    ),
    (lambda: call(feature_map=["elu1"]), "feature_map: want one of 'elu1'"),
    (lambda: call(denominator=None), "denominator: want one of 'exact', 'compat', 'none'"),
    (lambda: call(denominator="compat", eps=0.0), "eps: want a positive number, got 0.0"),
    (lambda: call(eps=float("nan")), "eps: want a finite number, got nan"),
    (lambda: call(scale=float("inf")), "scale: want a finite number, got inf"),
    (lambda: call(scale=-1), "scale: want a positive number, got -1"),
    (lambda: call(chunk_size=48), "chunk_size: want one of None, 16, 32, 64, got 48"),
    (lambda: call(key_mask=Z(B, T).bool()), "key_mask: want [2, 7], got [2, 5]"),
    (lambda: call(key_lengths=I([1, 2, 3])), "key_lengths: want [2], got [3]"),
    (lambda: call(key_lengths=I([[1, 2]])), "key_lengths: want 1 axis, got [1, 2]"),
    (lambda: call(key_lengths=I([1, 8])), "key_lengths[1]: want 0 to 7, got 8"),
    (lambda: call(key_lengths=I([-1, 8])), "key_lengths[0]: want 0 to 7, got -1"),
    (lambda: call(initial_state=state(3)), "initial_state.S: want [2, 4, 3, 6], got [3, 4, 3, 6]"),
    (
        lambda: call(initial_state=(state()[0], Z(B, HV, K, 1))),
        "initial_state.z: want [2, 4, 3], got [2, 4, 3, 1]",
    ),
    (lambda: call(initial_state=LinearState(*state(), Z(1))), "initial_state.extra: want None"),
    (lambda: call(cu_seqlens=I([0, 7])), "queries (with cu_seqlens): want B = 1 and T = S = 7"),
    (lambda: packed(cu_seqlens=I([0, 6])), "cu_seqlens: want 0, ..., 7, got 0, ..., 6"),
    (lambda: packed(cu_seqlens=I([0, 5, 4, 7])), "cu_seqlens[2]: want at least 5, got 4"),
    (lambda: packed(cu_seqlens=I([], dtype=torch.int64)), "cu_seqlens: want [N + 1]"),
    (
        lambda: packed(cu_seqlens=I([0, 7]), key_lengths=I([7])),
        "key_lengths: want None with cu_seqlens",
    ),
    (
        lambda: packed(cu_seqlens=I([0, 3, 7]), initial_state=state(1)),
        "initial_state.S: want [2, 4, 3, 6], got [1, 4, 3, 6]",
    ),
]

TYPE_ERRORS = [
    (lambda: call(queries=[1.0]), "queries: want a tensor, got list"),
    (lambda: call(keys=None), "keys: want a tensor, got NoneType"),
    (
        lambda: call(keys=Z(B, S, H, K).half()),
        "keys: want torch.float32 as queries, got torch.float16",
    ),
    (lambda: call(queries=Z(B, T, H, K).int()), "queries: want one of torch.float32"),
    (lambda: call(scale="1"), "scale: want a number, got str"),
    (lambda: call(causal_offset=1.5), "causal_offset: want an integer, got float"),
    (lambda: call(key_mask=Z(B, S)), "key_mask: want torch.bool, got torch.float32"),
    (lambda: call(key_lengths=Z(B)), "key_lengths: want torch.int32 or torch.int64, got"),
    (lambda: call(initial_state=Z(3)), "initial_state: want None, a LinearState or a pair"),
    (lambda: call(initial_state=(None, Z(3))), "initial_state.S: want a tensor, got NoneType"),
    (
        lambda: call(initial_state=state(dtype=torch.float64)),
        "initial_state.S: want torch.float32, got torch.float64",
    ),
    (lambda: packed(cu_seqlens=Z(2)), "cu_seqlens: want torch.int32 or torch.int64, got"),
]


@pytest.mark.parametrize("action, text", VALUE_ERRORS, ids=[t for _, t in VALUE_ERRORS])
def test_value_errors(action, text):
    with pytest.raises(ValueError, match="^linear_attention: " + re.escape(text)):
        action()


@pytest.mark.parametrize("action, text", TYPE_ERRORS, ids=[t for _, t in TYPE_ERRORS])
def test_type_errors(action, text):
    with pytest.raises(TypeError, match="^linear_attention: " + re.escape(text)):
        action()


def test_step_errors():
    row = dict(queries=Z(B, H, K), keys=Z(B, H, K), values=Z(B, HV, V))
    cases = [
        (ValueError, dict(queries=Z(B, 1, H, K)), "queries: want 3 axes [B, H, K]"),
        (ValueError, dict(keys=Z(3, H, K)), "keys: want [2, 2, 3], got [3, 2, 3]"),
        (ValueError, dict(values=Z(B, 3, V)), "values: want value heads a multiple of 2"),
        (ValueError, dict(state=state(3)), "state.S: want [2, 4, 3, 6], got [3, 4, 3, 6]"),
        (TypeError, dict(state=5), "state: want None, a LinearState or a pair (S, z), got int"),
        (TypeError, dict(values=Z(B, HV, V).double()), "values: want torch.float32 as queries"),
        (ValueError, dict(denominator="mean"), "denominator: want one of"),
    ]
    for kind, changed, text in cases:
        with pytest.raises(kind, match="^linear_attention_step: " + re.escape(text)):
            linear_attention_step(**{**row, **changed})


@pytest.mark.parametrize(
    "given, told", [("favor", "'favor'"), ("cosh", "'cosh'"), (torch.relu, "a function"), (3, "3")]
)
def test_packed_rows_name_the_operator_of_the_other_maps(given, told):
    text = (
        "linear_attention_packed: feature_map: want one of 'elu1', 'identity', 'relu', 'relu2', "
        f"'softplus' (mapped_linear_attention takes the others), got {told}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        linear_attention_packed(Z(B, T, 3 * H * K), H, K, feature_map=given)


def test_operators_name_the_operator_of_the_other_maps():
    heads = [Z(B, T, H, K)] * 3
    for call_operator in (
        lambda name: torch.ops.tarn.linear_attention(*heads, feature_map=name),
        lambda name: torch.ops.tarn.linear_attention_packed(
            Z(B, T, 3 * H * K), H, H, K, feature_map=name
        ),
    ):
        for name in ("favor", "cosh"):
            text = (
                "want one of elu1, identity, relu, relu2, softplus "
                f"(mapped_linear_attention takes the others), got {name}"
            )
            with pytest.raises(ValueError, match=f"feature_map: {re.escape(text)}$"):
                call_operator(name)


def test_operators_check_by_themselves():
    """Callers of torch.ops.tarn get the kernels' own checks."""
    op = torch.ops.tarn.linear_attention
    q, k, v = Z(B, T, H, K), Z(B, S, H, K), Z(B, S, HV, V)
    for dtype in (torch.float32, torch.float64):
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        cases = [
            (ValueError, (q, k.transpose(1, 2), v), {}, "keys"),
            (ValueError, (q, k, v[:, :, :3]), {}, "values"),
            (ValueError, (q[0], k, v), {}, "queries"),
            (TypeError, (q, k.half(), v), {}, "keys"),
            (ValueError, (q, k, v), dict(feature_map="cosh"), "feature_map"),
            (ValueError, (q, k, v), dict(chunk_size=-1), "chunk_size"),
            (ValueError, (q, k, v), dict(initial_S=Z(B, HV, K, V, dtype=dtype)), "initial state"),
            (TypeError, (q, k, v), dict(key_mask=Z(B, S)), "key_mask"),
            (ValueError, (q, k, v), dict(key_lengths=I([1, 9])), "key_lengths[1]"),
        ]
        for kind, args, options, name in cases:
            with pytest.raises(kind, match=re.escape(f"linear_attention: {name}")):
                op(*args, **options)
    with pytest.raises(TypeError, match="linear_attention_backward: queries"):
        torch.ops.tarn.linear_attention_backward(
            q, k, v, None, None, None, None, None, v, v, v, None, None
        )


def test_nothing_is_modified_by_a_failing_call():
    S, z = torch.ones(B, HV, K, V), torch.ones(B, HV, K)
    with pytest.raises(ValueError):
        call(initial_state=(S, z), key_lengths=I([1, 9]))
    assert S.eq(1).all() and z.eq(1).all()
