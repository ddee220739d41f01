"""Results and gradients against the float64 token loop and its autograd."""

import pytest
import torch
from linear_attention_reference import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    assert_close,
    make_problem,
)

LENGTHS = (0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 100, 257)
WIDTHS = (1, 3, 16, 20, 33, 64, 100)


def case(name, **arguments):
    return pytest.param(arguments, id=name)


SHAPES = [
    case(f"T{T}", T=T, B=2, H=2, K=WIDTHS[n % 7], V=WIDTHS[(n + 3) % 7], state=T % 2 == 1)
    for n, T in enumerate(LENGTHS)
]
SHAPES += [
    case(f"K{K}-V{V}", T=70, K=K, V=V, H=2, HV=4)
    for K, V in [(1, 64), (3, 1), (16, 100), (20, 33), (33, 20), (64, 64), (100, 3)]
]
OPTIONS = [
    case("group2", T=33, H=2, HV=4, K=8, V=5, B=2, state=True),
    case("group4", T=40, H=1, HV=4, K=5, V=8, mask=True),
    case("not-causal", T=45, S=70, H=2, K=9, V=17, causal=False, state=True),
    case("not-causal-lengths", T=45, B=3, H=2, K=9, V=17, causal=False, lengths=True),
    case("offset+", T=50, S=67, K=16, V=16, causal_offset=17, mask=True),
    case("offset-", T=50, S=45, K=16, V=16, causal_offset=-20, state=True),
    case("offset-before-all", T=20, S=45, K=16, V=16, causal_offset=-40),
    case("offset-past-all", T=20, S=45, K=16, V=16, causal_offset=400, state=True),
    case("offset-chunk", T=90, S=90, K=16, V=16, causal_offset=-64),
    case("more-keys", T=20, S=150, B=2, K=20, V=20),
    case("more-queries", T=150, S=20, B=2, K=20, V=20, state=True),
    case("no-keys", T=20, S=0, K=4, V=6, state=True),
    case("mask", T=100, B=3, H=2, K=16, V=16, mask=True, state=True),
    case("lengths", T=100, B=3, H=2, K=16, V=16, lengths=True),
    case("mask-lengths", T=100, B=3, K=16, V=16, lengths=True, mask=True),
    case("compat", T=70, H=2, K=16, V=16, denominator="compat", eps=0.3, scale=0.7),
    case("compat-mask", T=70, K=16, V=16, denominator="compat", mask=True, state=True),
    case("none", T=70, K=16, V=16, denominator="none", scale=0.25, state=True),
    case("identity", T=70, K=16, V=16, feature_map="identity"),
    case("identity-none", T=70, K=16, V=16, feature_map="identity", denominator="none"),
    case("relu", T=70, B=2, H=2, HV=4, K=16, V=16, feature_map="relu", state=True),
    case("relu-widths", T=45, K=21, V=7, feature_map="relu", mask=True, state=True),
    case("relu2", T=70, B=2, H=2, K=20, V=16, feature_map="relu2", state=True),
    case("relu2-compat", T=50, K=16, V=9, feature_map="relu2", denominator="compat", eps=0.5),
    case("relu2-none", T=50, K=16, V=9, feature_map="relu2", denominator="none", scale=0.5),
    case("chunk16", T=100, K=20, V=20, chunk_size=16, state=True),
    case("chunk64", T=100, K=20, V=20, chunk_size=64, mask=True),
    case("transposed", T=70, B=2, H=3, K=16, V=20, layout="transposed", state=True),
    case("strided", T=70, B=2, H=3, K=16, V=20, layout="strided"),
]
PACKED = [
    case("packed", T=100, H=2, K=16, V=20, cu_seqlens=[0, 15, 15, 16, 17, 70, 100]),
    case("packed-state", T=70, H=2, HV=4, K=5, V=9, cu_seqlens=[0, 0, 64, 65, 70, 70], state=True),
    case("packed-ones", T=9, K=8, V=8, cu_seqlens=list(range(10)), state=True),
    case("packed-mask", T=80, K=8, V=8, cu_seqlens=[0, 33, 80], mask=True),
    case("packed-offset", T=80, K=8, V=8, cu_seqlens=[0, 33, 80], causal_offset=-3, state=True),
    case("packed-not-causal", T=80, K=8, V=8, cu_seqlens=[0, 33, 33, 80], causal=False),
    case("packed-nothing", T=0, K=8, V=8, cu_seqlens=[0, 0, 0], state=True),
    case("packed-none", T=0, K=8, V=8, cu_seqlens=[0]),
]
EVERY = SHAPES + OPTIONS + PACKED


def backward(results, grads):
    """Gradients of the loss (out . do) + (S . dS) + (z . dz)."""
    pairs = [(x, g.to(x.dtype)) for x, g in zip(results, grads) if x.requires_grad]
    if pairs:
        torch.autograd.backward(*zip(*pairs))


def check(arguments, dtype):
    problem = make_problem(dtype=dtype, **arguments)
    (ref_out, ref_S, ref_z), leaves = problem.reference()
    out, S, z = problem.run()
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert out.dtype == dtype and S.dtype == z.dtype == wide
    assert_close(out, ref_out, OUTPUT_TOLERANCE[dtype], "out")
    assert_close(S, ref_S, OUTPUT_TOLERANCE[wide], "S")
    assert_close(z, ref_z, OUTPUT_TOLERANCE[wide], "z")

    grads = [torch.randn(x.shape).to(x.dtype) for x in (out, S, z)]
    backward((out, S, z), grads)
    backward((ref_out, ref_S, ref_z), grads)
    # The denominator's gradient cancels part of the numerator's, all of it where
    # a row reads one key; the numerator's alone shows the size of the terms.
    parts, part_leaves = problem.reference(constant_denominator=True)
    backward(parts, grads)
    r, m = GRADIENT_TOLERANCE[dtype]
    if dtype in (torch.bfloat16, torch.float16):
        # do . o is computed from the rounded output, in addition to the result's rounding.
        r, m = 2 * r, 2 * m
    for name, tensor in problem.tensors.items():
        assert tensor.grad.dtype == tensor.dtype
        wanted, terms = leaves[name].grad, part_leaves[name].grad
        wanted = torch.zeros(tensor.shape) if wanted is None else wanted
        assert_close(tensor.grad, wanted, (r, m), f"d {name}", terms)


@pytest.mark.parametrize("arguments", EVERY)
def test_float32_matches_token_loop(arguments):
    check(arguments, torch.float32)


@pytest.mark.parametrize("arguments", EVERY)
def test_float64_matches_token_loop(arguments):
    check(arguments, torch.float64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("arguments", SHAPES[3::2] + OPTIONS[::3] + PACKED[:4])
def test_16_bit_matches_token_loop(arguments, dtype):
    check(arguments, dtype)


def test_gradient_of_output_or_state_alone():
    for pick in (0, 1, 2):
        problem = make_problem(T=40, H=2, K=6, V=7, state=True)
        results, leaves = problem.reference()
        grad = torch.randn(results[pick].shape)
        problem.run()[pick].backward(grad)
        results[pick].backward(grad.double())
        for name, tensor in problem.tensors.items():
            if leaves[name].grad is None:
                assert tensor.grad is None or not tensor.grad.any(), name
            else:
                assert_close(
                    tensor.grad, leaves[name].grad, GRADIENT_TOLERANCE[torch.float32], name
                )


def test_gradient_of_some_inputs():
    """Inputs that need no gradient get none; the others get the same bits."""
    problem = make_problem(T=40, H=2, K=6, V=7, state=True)
    names = list(problem.tensors)
    full = torch.autograd.grad(problem.run()[0].sum(), list(problem.tensors.values()))
    for name, wanted in zip(names, full):
        for other in names:
            problem.tensors[other].requires_grad_(other == name)
        problem.run()[0].sum().backward()
        assert torch.equal(problem.tensors[name].grad, wanted)
