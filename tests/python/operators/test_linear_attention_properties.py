"""What must hold for linear attention without any reference: averages, NaN
isolation, causality, equal bits for equal work, equal forms."""

import pytest
import torch
from linear_attention_reference import OUTPUT_TOLERANCE, assert_close, make_problem, same_bits

import tarn
from tarn.ops import linear_attention, linear_attention_step

FLOAT32 = OUTPUT_TOLERANCE[torch.float32]


def random(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


def operands(B=2, T=50, S=None, H=2, HV=4, K=12, V=20, dtype=torch.float32):
    S = T if S is None else S
    return (
        random(B, T, H, K, dtype=dtype),
        random(B, S, H, K, dtype=dtype),
        random(B, S, HV, V, dtype=dtype),
    )


def gradients(out, tensors):
    return torch.autograd.grad(out.float().square().sum(), tensors)


# ---- The weighted average.


@pytest.mark.parametrize("level", [0.0, -5.0, -30.0, -80.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_constant_value_comes_back(level, dtype):
    """With exact denominators an average of equal values is that value, also where
    phi is tiny; compat denominators shrink it (0.9945 at level -5, width 4)."""
    queries = torch.full((1, 100, 1, 4), level, dtype=dtype)
    values = torch.full((1, 100, 1, 3), 0.7, dtype=dtype)
    for causal in (True, False):
        out = linear_attention(queries, queries, values, causal=causal)
        # Two sums of 100 terms, rounded separately; or the rounding of a coarser type.
        torch.testing.assert_close(out, values, rtol=max(2e-6, torch.finfo(dtype).eps), atol=0)
    state = None
    for t in range(5):
        out, state = linear_attention_step(queries[:, t], queries[:, t], values[:, t], state)
        torch.testing.assert_close(
            out, values[:, t], rtol=max(1e-6, torch.finfo(dtype).eps), atol=0
        )


def average(queries, keys, values, causal):
    """The definition for elu1 where all inputs are negative, in float64 and by logarithms, so
    that nothing underflows."""
    queries, keys, values = (x.double() for x in (queries, keys, values))
    logs = (queries[:, :, None] + keys[:, None]).logsumexp(-1)  # [B, T, S, H]
    if causal:
        later = torch.ones(logs.shape[1:3], dtype=torch.bool).triu(1)
        logs = logs.masked_fill(later[None, :, :, None], float("-inf"))
    return torch.einsum("btsh,bshv->bthv", logs.softmax(2), values)


@pytest.mark.parametrize("level", [-60.0, -80.0, -86.0, -87.4, -90.0, -95.0, -103.0, -200.0])
@pytest.mark.parametrize("width", [4, 33])
@pytest.mark.parametrize("causal", [True, False])
def test_averages_and_gradients_stay_finite_where_keys_underflow(level, width, causal):
    """A row whose keys leave no normal number is empty; no other row is far from its average."""
    queries = (random(1, 20, 1, width) - 40).requires_grad_()
    keys = (0.3 * random(1, 20, 1, width) + level).requires_grad_()
    values = random(1, 20, 1, 3).requires_grad_()
    leaves = (queries, keys, values)
    out = linear_attention(*leaves, causal=causal)
    wanted = average(*leaves, causal)
    kept = out != 0
    assert kept.all() or level < -86
    torch.testing.assert_close(out[kept], wanted[kept].float(), rtol=1e-5, atol=1e-5)
    found = gradients(out, leaves)
    for gradient in found:
        assert gradient.isfinite().all()
    if level >= -80:
        for gradient, right in zip(found, gradients(wanted, leaves)):
            assert (gradient - right).norm() < 1e-4 * right.norm()


@pytest.mark.parametrize("level", [-60.0, -87.4, -103.0])
def test_steps_stay_within_the_values_where_keys_underflow(level):
    keys = 0.3 * random(1, 20, 1, 4) + level
    queries, values = random(1, 20, 1, 4) - 40, random(1, 20, 1, 3)
    state = None
    for t in range(20):
        row, state = linear_attention_step(queries[:, t], keys[:, t], values[:, t], state)
        assert row.isfinite().all() and row.abs().max() <= values.abs().max() + 1e-5


@pytest.mark.parametrize("level", [-90.0, -120.0, -200.0])
def test_gradients_stay_finite_where_queries_underflow(level):
    """A query's features differ by more than a number can hold, and so do the keys' ones."""
    queries, keys, values = operands(B=1, T=20, H=1, HV=1)
    queries[..., 1:] += level
    queries[..., 0] = -87.0
    keys = 100 * keys
    leaves = [x.requires_grad_() for x in (queries, keys, values)]
    out = linear_attention(*leaves)
    assert out.isfinite().all()
    for gradient in gradients(out, leaves):
        assert gradient.isfinite().all()


def test_compat_shrinks_as_the_reference_library_does():
    level = torch.full((1, 1, 1, 4), -5.0)
    out = linear_attention(level, level, torch.ones(1, 1, 1, 1), denominator="compat")
    assert abs(out.item() - 0.9945) < 1e-4


def test_output_stays_within_the_values():
    queries, keys, values = operands(T=300)
    out = linear_attention(3 * queries, 3 * keys, values)
    assert out.max() <= values.max() + 1e-5 and out.min() >= values.min() - 1e-5


def test_scale_cancels_under_an_exact_denominator():
    queries, keys, values = operands()
    assert same_bits(
        linear_attention(queries, keys, values, scale=7.0),
        linear_attention(queries, keys, values),
    )


# ---- Empty rows.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("denominator", ["exact", "compat", "none"])
def test_empty_rows_are_zero_and_send_no_gradient(denominator, dtype):
    queries, keys, values = (x.requires_grad_() for x in operands(dtype=dtype))
    mask = torch.ones(2, 50, dtype=torch.bool)
    mask[:, :10] = False
    out = linear_attention(
        queries, keys, values, key_mask=mask, causal_offset=-3, denominator=denominator
    )
    assert not out[:, :13].any() and out[:, 13:].ne(0).all()
    # A NaN in the gradient of a row without keys stays there, under "exact" and "none".
    grad = torch.ones_like(out)
    grad[:, :13] = 1e30
    d_queries, d_keys, d_values = torch.autograd.grad(out, (queries, keys, values), grad)
    assert not d_queries[:, :13].any()
    for grad in (d_keys, d_values):
        assert not grad[:, :10].any() and not grad[:, 47:].any()
        assert grad[:, 10:47].abs().max() < 1e6


# ---- NaN and infinity.


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("causal", [True, False])
def test_masked_keys_have_no_influence(bad, dtype, causal):
    queries, keys, values = operands(dtype=dtype)
    mask = torch.rand(2, 50) > 0.4
    lengths = torch.tensor([40, 17])
    poisoned = keys.clone(), values.clone()
    dropped = ~(mask & (torch.arange(50) < lengths[:, None]))
    for tensor in poisoned:
        tensor[dropped] = bad
    results = []
    for k, v in ((keys, values), poisoned):
        leaves = [x.clone().requires_grad_() for x in (queries, k, v)]
        out, state = linear_attention(
            *leaves, key_mask=mask, key_lengths=lengths, causal=causal, return_state=True
        )
        results.append([out, *state[:2], *gradients(out, leaves)])
    for clean, given in zip(*results):
        assert torch.equal(clean, given)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_bad_numbers_stay_in_their_sequence_and_head(bad):
    """Sequence 1, value head 2 (key head 1) is poisoned through the values."""
    queries, keys, values = (x.requires_grad_() for x in operands(B=3))
    clean = linear_attention(queries, keys, values)
    poisoned = values.detach().clone()
    poisoned[1, 7, 2] = bad
    poisoned.requires_grad_()
    out = linear_attention(queries, keys, poisoned)
    others = torch.ones_like(out, dtype=torch.bool)
    others[1, 7:, 2] = False
    assert torch.equal(out[others], clean[others])
    assert not out[1, 7:, 2].isfinite().all()
    wanted = gradients(clean, (queries, keys, values))
    given = gradients(out, (queries, keys, poisoned))
    others = torch.ones(3, 2, dtype=torch.bool)
    others[1, 1] = False
    for a, b in zip(wanted[:2], given[:2]):
        assert torch.equal(a.transpose(1, 2)[others], b.transpose(1, 2)[others])


@pytest.mark.parametrize("where", ["queries", "keys", "values"])
@pytest.mark.parametrize("position", [0, 15, 16, 31, 33, 49])
def test_future_tokens_change_nothing(where, position):
    """No bit of an earlier row changes, even if the future is NaN."""
    queries, keys, values = operands()
    clean = linear_attention(queries, keys, values)
    tensors = {"queries": queries, "keys": keys, "values": values}
    for bad in (5.0, float("nan"), float("inf")):
        changed = {name: x.clone() for name, x in tensors.items()}
        changed[where][:, position:] = bad
        assert same_bits(linear_attention(**changed)[:, :position], clean[:, :position])


def test_future_gradients_are_zero():
    queries, keys, values = (x.requires_grad_() for x in operands())
    out = linear_attention(queries, keys, values)
    for grad in torch.autograd.grad(out[:, :20].square().sum(), (queries, keys, values)):
        assert not grad[:, 20:].any()


# ---- The same bits.


def every_result(problem):
    results = problem.run()
    grads = [
        torch.randn(x.shape, generator=torch.Generator().manual_seed(n)).to(x.dtype)
        for n, x in enumerate(results)
    ]
    return [*results, *torch.autograd.grad(results, list(problem.tensors.values()), grads)]


@pytest.mark.parametrize(
    "arguments",
    [
        dict(B=2, T=130, H=2, HV=4, K=20, V=33, state=True, mask=True),
        dict(B=1, T=130, K=16, V=200, state=True),
        dict(T=300, H=3, K=32, V=32, cu_seqlens=[0, 100, 100, 101, 300], state=True),
        dict(B=2, T=70, H=2, K=64, V=64, dtype=torch.bfloat16, causal=False, state=True),
    ],
    ids=["heads", "columns", "packed", "bfloat16"],
)
def test_same_bits_for_any_number_of_threads(arguments):
    problem = make_problem(**arguments)
    wanted = every_result(problem)
    for threads in (2, 3, 8, 1):
        torch.set_num_threads(threads)
        for a, b in zip(wanted, every_result(problem)):
            assert same_bits(a, b), threads


def test_packed_equals_separate_equals_padded():
    """Same bits: results and gradients, sequences of length 0 and 1 included."""
    lengths = [33, 0, 1, 64, 20]
    bounds = [0, 33, 33, 34, 98, 118]
    packed = make_problem(T=118, H=2, HV=4, K=12, V=20, cu_seqlens=bounds, state=True)
    wanted = every_result(packed)
    t = packed.tensors
    padded = {}
    for name in ("queries", "keys", "values"):
        padded[name] = torch.full((5, 64, *t[name].shape[2:]), float("nan"))
    for n, length in enumerate(lengths):
        for name in padded:
            padded[name][n, :length] = t[name].detach()[0, bounds[n] : bounds[n + 1]]
    out, state = linear_attention(
        **padded,
        key_lengths=torch.tensor(lengths),
        initial_state=(t["S"], t["z"]),
        return_state=True,
    )
    assert same_bits(state.S, wanted[1]) and same_bits(state.z, wanted[2])
    for n, length in enumerate(lengths):
        here = slice(bounds[n], bounds[n + 1])
        assert same_bits(out[n, :length], wanted[0][0, here])
        alone = {name: t[name][:, here] for name in padded}
        out_alone, state_alone = linear_attention(
            **alone,
            initial_state=(t["S"][n : n + 1], t["z"][n : n + 1]),
            return_state=True,
        )
        assert same_bits(out_alone, wanted[0][:, here])
        assert same_bits(state_alone.S[0], wanted[1][n])
    # Gradients of the sequences alone, from the output only.
    grads = torch.autograd.grad(packed.run()[0].sum(), [t["queries"], t["S"]])
    for n in range(5):
        here = slice(bounds[n], bounds[n + 1])
        leaves = [t[x].detach()[:, here].requires_grad_() for x in padded]
        state = [t[x].detach()[n : n + 1].requires_grad_() for x in ("S", "z")]
        out = linear_attention(*leaves, initial_state=state)
        d_queries, d_S = torch.autograd.grad(out.sum(), (leaves[0], state[0]))
        assert same_bits(d_queries, grads[0][:, here])
        assert same_bits(d_S[0], grads[1][n])


def test_rows_do_not_depend_on_the_batch():
    queries, keys, values = operands(B=4)
    out = linear_attention(queries, keys, values)
    for b in range(4):
        alone = linear_attention(*(x[b : b + 1] for x in (queries, keys, values)))
        assert same_bits(alone[0], out[b])


def test_strides_change_no_bit():
    queries, keys, values = operands()
    wanted = linear_attention(queries, keys, values)
    transposed = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (queries, keys, values)]
    assert same_bits(linear_attention(*transposed), wanted)
    gaps = [
        torch.nn.functional.pad(x, (1, 2, 3, 0))[:, :, 3:, 1:-2] for x in (queries, keys, values)
    ]
    assert same_bits(linear_attention(*gaps), wanted)
    scattered = [torch.stack([x, x], -1)[..., 0] for x in (queries, keys, values)]
    assert same_bits(linear_attention(*scattered), wanted)


def test_broadcast_inputs():
    """Expanded tensors (stride 0) are read in place."""
    queries, keys, values = operands(B=1)
    wanted = linear_attention(queries, keys, values)
    out = linear_attention(*(x.expand(3, -1, -1, -1) for x in (queries, keys, values)))
    for b in range(3):
        assert same_bits(out[b], wanted[0])


def test_lengths_of_both_integer_types():
    queries, keys, values = operands(B=1)
    for dtype in (torch.int32, torch.int64):
        lengths = torch.tensor([20], dtype=dtype)
        bounds = torch.tensor([0, 20, 50], dtype=dtype)
        out = linear_attention(queries, keys, values, key_lengths=lengths)
        packed = linear_attention(queries, keys, values, cu_seqlens=bounds)
        assert same_bits(out[:, :20], packed[:, :20])


# ---- Equal forms.


def test_chunk_sizes_agree():
    wanted = None
    for chunk_size in (None, 16, 32, 64):
        torch.manual_seed(3)
        problem = make_problem(B=2, T=150, H=2, K=20, V=20, state=True, chunk_size=chunk_size)
        results = [x.double() for x in every_result(problem)]
        wanted = wanted or results
        for n, (a, b) in enumerate(zip(results, wanted)):
            assert_close(a, b, (3e-6, 2e-4), f"chunk {chunk_size}, result {n}")


@pytest.mark.parametrize("denominator", ["exact", "compat", "none"])
@pytest.mark.parametrize("feature_map", ["elu1", "identity", "relu", "relu2", "softplus"])
def test_prefill_and_steps_equal_the_whole(denominator, feature_map):
    """Every split n of 0 .. T: prefill of n tokens, then steps."""
    queries, keys, values = operands(T=20)
    if feature_map == "identity":
        queries, keys = queries.abs(), keys.abs()
    options = dict(feature_map=feature_map, denominator=denominator, scale=0.5)
    whole, last = linear_attention(queries, keys, values, return_state=True, **options)
    for n in range(21):
        out, state = linear_attention(
            queries[:, :n], keys[:, :n], values[:, :n], return_state=True, **options
        )
        rows = list(out.unbind(1))
        for t in range(n, 20):
            row, state = linear_attention_step(
                queries[:, t], keys[:, t], values[:, t], state, **options
            )
            rows.append(row)
        assert_close(torch.stack(rows, 1), whole.double(), FLOAT32, f"split {n}")
        assert_close(state.S, last.S.double(), FLOAT32, f"S, split {n}")
        assert_close(state.z, last.z.double(), FLOAT32, f"z, split {n}")


def test_carried_state_equals_the_whole():
    queries, keys, values = operands(T=200)
    whole, last = linear_attention(queries, keys, values, return_state=True)
    for split in (32, 64, 65, 128, 199):
        first, state = linear_attention(
            queries[:, :split], keys[:, :split], values[:, :split], return_state=True
        )
        second, state = linear_attention(
            queries[:, split:],
            keys[:, split:],
            values[:, split:],
            initial_state=state,
            return_state=True,
        )
        out = torch.cat([first, second], 1)
        if split % 32 == 0:  # at multiples of the chunk the work is the same
            assert same_bits(out, whole) and same_bits(state.S, last.S)
        assert_close(out, whole.double(), FLOAT32, f"split {split}")


def test_step_of_16_bit_inputs():
    queries, keys, values = operands(T=30, dtype=torch.bfloat16)
    wanted = linear_attention(queries.double(), keys.double(), values.double())
    rows, state = [], None
    for t in range(30):
        out, state = linear_attention_step(queries[:, t], keys[:, t], values[:, t], state)
        assert out.dtype == torch.bfloat16 and state.S.dtype == torch.float32
        rows.append(out)
    assert_close(torch.stack(rows, 1), wanted, OUTPUT_TOLERANCE[torch.bfloat16], "steps")


def test_states_are_values():
    """No call changes a state it was given; results share no memory with it."""
    queries, keys, values = operands(T=10)
    _, state = linear_attention(queries, keys, values, return_state=True)
    before = state.S.clone(), state.z.clone()
    row = queries[:, 0], keys[:, 0], values[:, 0]
    first, new = linear_attention_step(*row, state)
    linear_attention(queries, keys, values, initial_state=state, return_state=True)
    assert torch.equal(state.S, before[0]) and torch.equal(state.z, before[1])
    assert not torch.equal(new.S, state.S)
    again, same = linear_attention_step(*row, (state.S, state.z))
    assert same_bits(first, again) and same_bits(new.S, same.S)
    # T = 0 returns a copy of the initial state.
    _, copy = linear_attention(
        queries[:, :0], keys[:, :0], values[:, :0], initial_state=state, return_state=True
    )
    assert torch.equal(copy.S, state.S) and copy.S.data_ptr() != state.S.data_ptr()
    assert isinstance(copy, tarn.LinearState) and copy.extra is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_empty_calls(dtype):
    """B = 0, T = 0, S = 0, forward, gradient and step."""
    for B, T, S in ((0, 5, 5), (2, 0, 0), (2, 0, 7), (2, 7, 0), (0, 0, 0)):
        tensors = [x.requires_grad_() for x in operands(B=B, T=T, S=S, dtype=dtype)]
        out, state = linear_attention(*tensors, return_state=True)
        assert out.shape == (B, T, 4, 20) and state.S.shape == (B, 4, 12, 20)
        if S == 0:
            assert not out.any() and not state.S.any()
        for tensor, grad in zip(
            tensors, torch.autograd.grad(out.sum(), tensors, allow_unused=True)
        ):
            assert grad is None or grad.shape == tensor.shape
    queries, keys, values = operands(B=0, T=1, dtype=dtype)
    out, state = linear_attention_step(queries[:, 0], keys[:, 0], values[:, 0])
    assert out.shape == (0, 4, 20) and state.z.shape == (0, 4, 12)


def test_long_sequence_against_float64():
    """65,536 tokens: absolute and relative error of the carried float32 state."""
    queries, keys, values = operands(B=1, T=65536, H=1, HV=1, K=8, V=8)
    out = linear_attention(queries, keys, values)

    def phi(x):
        return torch.where(x > 0, x + 1, x.clamp(max=0).exp())

    q, k, v = (x[0, :, 0].double() for x in (queries, keys, values))
    S = torch.cumsum(phi(k)[:, :, None] * v[:, None, :], 0)
    z = torch.cumsum(phi(k), 0)
    wanted = (phi(q)[:, :, None] * S).sum(1) / (phi(q) * z).sum(1, keepdim=True)
    error = (out[0, :, 0].double() - wanted).abs()
    assert error[1000:].max() <= 5e-7 and error.max() <= 2e-6
    assert error.square().mean().sqrt() <= 2e-5 * wanted.square().mean().sqrt()
