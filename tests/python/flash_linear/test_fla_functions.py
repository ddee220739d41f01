"""Every function of tarn.fla against its recurrence in float64: values, states,
gradients, packed sequences, both layouts of states, both directions."""

import inspect
import math

import pytest
import torch
from fla_reference import CASES, K, V, draw, wanted

from tarn import fla

# Relative error of the whole tensor.
BOUND = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-12}
# Gates have sums of differences as gradients, which float32 keeps less of.
GRADIENT = 1e-5
TOKENS = ("q", "r", "k", "v", "p", "g", "gk", "gv", "w", "beta", "a", "b", "kk")
STARTS = torch.tensor([0, 7, 7, 26])


def error(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert ours.shape == theirs.shape
    return float((ours - theirs).norm() / max(float(theirs.norm()), 1e-30))


def problem(name, tokens, batch=2, dtype=torch.float32, seed=0):
    """The case's tensors as the function and as the reference take them."""
    _, tensors, _, value_heads, _ = CASES[name]
    x = draw(tensors, tokens, batch=batch, value_heads=value_heads, seed=seed)
    narrow = ("q", "r", "k", "v", "p", "a", "b", "kk")
    kinds = {n: dtype if n in narrow or dtype == torch.float64 else torch.float32 for n in x}
    ours = {n: one.to(kinds[n]) for n, one in x.items()}
    return ours, {n: one.double() for n, one in ours.items()}


def start(name, rows, seed=5):
    value_heads = CASES[name][3]
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, value_heads, K, V, generator=generator)


def call(name, x, **options):
    function, _, fixed, _, _ = CASES[name]
    return getattr(fla, function)(**x, **{**fixed, **options})


def takes(name, argument):
    function = CASES[name][0]
    if function in ("fused_chunk_gla", "fused_chunk_delta_rule"):  # they pass all on
        function = function.removeprefix("fused_")
    return argument in inspect.signature(getattr(fla, function)).parameters


def test_every_function_has_a_case():
    others = {
        "chunk_gated_delta_product",
        "chunk_gsa",
        "fused_recurrent_gsa",
        "fused_additive_gate",
        "chunk_lightnet",
        "fused_recurrent_lightnet",
        "parallel_attn",
        "parallel_forgetting_attn",
        "attn_decoding_one_step",
    }  # files that test one family
    others |= {
        "causal_conv1d_fn",
        "causal_conv1d_update",
        "chunk_hgrn",
        "fused_recurrent_hgrn",
        "parallel_simple_gla",
        "parallel_retention",
        "mamba_chunk_scan_combined",
        "selective_state_update",
    }
    others |= {"fused_gdn_gate", "fused_kda_gate"}  # test_fla_package_forms.py
    others |= {"mamba_split_conv1d_scan_combined"}  # test_fla_mamba_split.py
    others |= {"fused_recurrent_kda_fwd"}  # test_fla_kda_pool.py
    others |= {"selective_scan_fn"}  # test_fla_selective_scan.py
    assert {row[0] for row in CASES.values()} | others >= set(fla.__all__) - {
        "chunk_gated_delta_rule",
        "fused_recurrent_gated_delta_rule",
    }
    assert fla.chunk_gdn is fla.chunk_gated_delta_rule
    assert fla.fused_recurrent_gdn is fla.fused_recurrent_gated_delta_rule


@pytest.mark.parametrize("tokens", [0, 1, 17, 70])
@pytest.mark.parametrize("name", CASES)
def test_values_and_states(name, tokens):
    x, y = problem(name, tokens)
    state = start(name, 2)
    out, last = call(name, x, initial_state=state, output_final_state=True)
    o, S = wanted(name, y, state=state.double())
    assert out.dtype == torch.float32 and last.dtype == torch.float32 and last.is_contiguous()
    assert error(out, o) <= BOUND[torch.float32] and error(last, S) <= BOUND[torch.float32]
    out, nothing = call(name, x, scale=0.3)
    # The only one that returns its state unasked, as the original does.
    assert (nothing is None) != (CASES[name][0] == "fused_recurrent_rwkv7")
    assert error(out, wanted(name, y, scale=0.3)[0]) <= BOUND[torch.float32]


@pytest.mark.parametrize("name", CASES)
def test_gradients_reach_every_tensor(name):
    x, y = problem(name, 19)
    state = start(name, 2)
    x["initial_state"], y["state"] = state.clone(), state.double()
    for one in (*x.values(), *y.values()):
        one.requires_grad_()

    def gradients(pair, of):
        loss = pair[0].double().square().sum() + pair[1].double().sin().sum()
        return torch.autograd.grad(loss, list(of.values()))

    ours = gradients(call(name, x, output_final_state=True), x)
    rest = {argument: one for argument, one in y.items() if argument != "state"}
    theirs = gradients(wanted(name, rest, state=y["state"]), y)
    for argument, one, other in zip(x, ours, theirs, strict=True):
        assert error(one, other) <= GRADIENT, argument


@pytest.mark.parametrize("name", CASES)
def test_packed_sequences(name):
    x, y = problem(name, 26, batch=1)
    state = start(name, 3)
    out, last = call(name, x, cu_seqlens=STARTS, initial_state=state, output_final_state=True)
    for i, (begin, end) in enumerate(zip(STARTS[:-1], STARTS[1:], strict=True)):
        own = {n: one[:, begin:end] if n in TOKENS else one for n, one in y.items()}
        o, S = wanted(name, own, state=state[i : i + 1].double())
        assert error(last[i : i + 1], S) <= BOUND[torch.float32]
        assert begin == end or error(out[:, begin:end], o) <= BOUND[torch.float32]


@pytest.mark.parametrize("name", [name for name in CASES if takes(name, "state_v_first")])
def test_values_first(name):
    x, _ = problem(name, 17)
    state = start(name, 2)
    out, last = call(name, x, initial_state=state, output_final_state=True)
    turned, values_first = call(
        name, x, initial_state=state.mT.contiguous(), output_final_state=True, state_v_first=True
    )
    assert torch.equal(turned, out) and torch.equal(values_first, last.mT)
    assert values_first.is_contiguous()


@pytest.mark.parametrize("name", [name for name in CASES if takes(name, "reverse")])
def test_the_other_direction(name):
    x, y = problem(name, 18)
    state = start(name, 2)
    options = dict(initial_state=state, output_final_state=True, reverse=True)
    out, last = call(name, x, **options)
    o, S = wanted(name, y, state=state.double(), reverse=True)
    assert error(out, o) <= BOUND[torch.float32] and error(last, S) <= BOUND[torch.float32]
    row = {n: one[:1] if n in TOKENS else one for n, one in x.items()}
    bounds = torch.tensor([0, 5, 18])
    out, last = call(name, row, cu_seqlens=bounds, **options)
    for i, (begin, end) in enumerate(((0, 5), (5, 18))):
        own = {n: one[:1, begin:end] if n in TOKENS else one for n, one in y.items()}
        o, S = wanted(name, own, state=state[i : i + 1].double(), reverse=True)
        assert error(out[:, begin:end], o) <= BOUND[torch.float32]
        assert error(last[i : i + 1], S) <= BOUND[torch.float32]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_other_dtypes(name, dtype):
    x, y = problem(name, 33, dtype=dtype)
    out, last = call(name, x, output_final_state=True)
    o, S = wanted(name, y)
    assert out.dtype == dtype and error(out, o) <= BOUND[dtype]
    assert last.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    # Lengths (and kk * a) are rounded to the operands' dtype, as the original's chunked
    # forms do.
    rounded = CASES[name][2].get("use_qk_l2norm_in_kernel") or "kk" in x
    assert error(last, S) <= (BOUND[dtype] if rounded or dtype == torch.float64 else 2e-6)


GATED = [
    name
    for name in CASES
    if any(g in CASES[name][1] for g in ("g,", "g channel", "gk", "gv", "w,"))
    and "raw" not in CASES[name][1]
]


@pytest.mark.parametrize("name", GATED)
def test_gates_of_any_size(name):
    """-infinity and -1e4 forget exactly, wherever they stand in a chunk."""
    x, _ = problem(name, 40)
    for argument in ("g", "gk", "gv", "w"):
        if argument in x:
            x[argument][:, 3] = -math.inf
            x[argument][:, 21, 0] = -1e4
            x[argument][:, 22] = -104.0
    y = {n: one.double() for n, one in x.items()}
    for one in (*x.values(), *y.values()):
        one.requires_grad_()
    out, last = call(name, x, output_final_state=True)
    o, S = wanted(name, y)
    assert error(out, o) <= BOUND[torch.float32] and error(last, S) <= BOUND[torch.float32]
    ours = torch.autograd.grad(out.double().square().sum() + last.double().sum(), list(x.values()))
    theirs = torch.autograd.grad(o.square().sum() + S.sum(), list(y.values()))
    for argument, one, other in zip(x, ours, theirs, strict=True):
        assert one.isfinite().all() and error(one, other) <= GRADIENT, argument


def test_one_call_of_three_dtypes():
    """The widest is computed with, and o has the dtype of v."""
    x, _ = problem("chunk gla", 9)
    out, _ = fla.chunk_gla(x["q"], x["k"].bfloat16(), x["v"].half(), x["g"].bfloat16())
    assert out.dtype == torch.float16
    same, _ = fla.chunk_gla(
        x["q"], x["k"].bfloat16().float(), x["v"].half().float(), x["g"].bfloat16().float()
    )
    assert torch.equal(out, same.half())


def test_states_of_16_bits_are_widened():
    x, _ = problem("recurrent simple", 9)
    state = start("recurrent simple", 2).bfloat16()
    out, _ = fla.fused_recurrent_simple_gla(**x, initial_state=state)
    assert torch.equal(out, fla.fused_recurrent_simple_gla(**x, initial_state=state.float())[0])


def test_a_prefill_and_its_steps():
    """A layer's use: a chunked prefill, then one recurrent call a token."""
    x, _ = problem("chunk kda raw", 30)
    whole, last = call("chunk kda raw", x, output_final_state=True)
    options = dict(CASES["chunk kda raw"][2], output_final_state=True)
    part = {n: one[:, :20] if n in TOKENS else one for n, one in x.items()}
    out, state = fla.chunk_kda(**part, **options)
    rows = [out]
    for t in range(20, 30):
        part = {n: one[:, t : t + 1] if n in TOKENS else one for n, one in x.items()}
        out, state = fla.fused_recurrent_kda(**part, **options, initial_state=state)
        rows.append(out)
    assert error(torch.cat(rows, 1), whole) <= 2e-6 and error(state, last) <= 2e-6
