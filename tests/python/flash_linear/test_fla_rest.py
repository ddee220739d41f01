"""tarn.fla compared with the plain recurrences: normalised sums, scores, states between
chunks, hints and refusals."""

import math

import pytest
import torch
from fla_reference import draw, reference, unit

from tarn import fla


def error(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert ours.shape == theirs.shape
    return float((ours - theirs).norm() / max(float(theirs.norm()), 1e-30))


def floats(x):
    return {name: one.float() for name, one in x.items()}


# ---- Normalised linear attention.


def normalised(q, k, v, S=None, z=None, scale=None, reverse=False):
    """By its definition: numerators over scale q . z + 1e-10; z [N, 1, H, K]."""
    flip = (lambda x: x.flip(1)) if reverse else (lambda x: x)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out, S = reference(q, k, v, state=S, scale=scale, reverse=reverse)
    sums = flip(flip(k).cumsum(1)) + (0 if z is None else z)
    out = out / ((scale * q * sums).sum(-1, keepdim=True) + 1e-10)
    return out, S, sums[:, :1] if reverse else sums[:, -1:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["chunk", "fused_chunk", "fused_recurrent"])
def test_normalised_sums_and_their_states(name, dtype):
    x = {n: one.abs().to(dtype) for n, one in draw("q, k, v", 20).items()}
    y = {n: one.double() for n, one in x.items()}
    function = getattr(fla, f"{name}_linear_attn")
    first = {n: one[:, :13] for n, one in x.items()}
    rest = {n: one[:, 13:] for n, one in x.items()}
    options = dict(normalize=True, output_final_state=True)
    out, (S, z) = function(**first, **options)
    assert z.shape == (2, 1, 2, 5) and z.dtype == torch.float32
    more, (S, z) = function(**rest, initial_state=(S, z), **options)
    o, last, sums = normalised(**y)
    bound = 2e-6 if dtype == torch.float32 else 1e-2
    assert out.dtype == dtype and error(torch.cat([out, more], 1), o) <= bound
    assert error(S, last) <= 2e-6 and error(z, sums) <= 2e-6
    out, (none, z) = function(**x, normalize=True)
    assert none is None and error(z, sums) <= 2e-6


def test_normalised_sums_packed_reversed_and_differentiable():
    x = {n: one.abs() for n, one in draw("q, k, v", 9, batch=1).items()}
    S, z = torch.rand(3, 2, 5, 3, dtype=torch.float64), torch.rand(3, 1, 2, 5, dtype=torch.float64)
    for one in (*x.values(), S, z):
        one.requires_grad_()
    bounds = torch.tensor([0, 4, 4, 9])
    for reverse in (False, True):
        out, (last, sums) = fla.fused_recurrent_linear_attn(
            **x,
            normalize=True,
            output_final_state=True,
            cu_seqlens=bounds,
            initial_state=(S, z),
            reverse=reverse,
        )
        assert torch.equal(last[1], S[1]) and torch.equal(sums[1], z[1])
        for i, (begin, end) in ((0, (0, 4)), (2, (4, 9))):
            own = {n: one[:, begin:end] for n, one in x.items()}
            o, wanted_S, wanted_z = normalised(
                **own, S=S[i : i + 1], z=z[i : i + 1], reverse=reverse
            )
            assert error(out[:, begin:end], o) <= 1e-12
            assert error(last[i : i + 1], wanted_S) <= 1e-12
            assert error(sums[i : i + 1], wanted_z) <= 1e-12
    names = list(x)
    assert torch.autograd.gradcheck(
        lambda *one: fla.chunk_linear_attn(
            **dict(zip(names, one[:3], strict=True)), initial_state=one[3:]
        )[0],
        (*x.values(), S[:1], z[:1]),
    )


def test_normalised_sums_of_no_tokens():
    x = floats(draw("q, k, v", 0))
    out, (S, z) = fla.chunk_linear_attn(**x, output_final_state=True)
    assert out.shape == (2, 0, 2, 3) and not S.any() and z.shape == (2, 1, 2, 5) and not z.any()
    with pytest.raises(TypeError, match="initial_state: want a tensor or normalize=True"):
        fla.fused_recurrent_linear_attn(**x, initial_state=(S, z))


# ---- Scores.


def scored(q, k, v, g):
    """Scores token by token: q . k / sqrt(K) times the factors of the tokens in between."""
    tokens = q.shape[1]
    rows = []
    for t in range(tokens):
        factor, row = torch.ones_like(g[:, 0]), [torch.zeros_like(g[:, 0])] * tokens
        for s in reversed(range(t + 1)):
            row[s] = factor * (q[:, t] * k[:, s]).sum(-1) * q.shape[-1] ** -0.5
            factor = factor * g[:, s].exp()
        rows.append(torch.stack(row, -1))
    scores = torch.stack(rows, 2)
    return torch.einsum("bhts,bshv->bthv", scores, v), scores


@pytest.mark.parametrize("name", ["parallel_simple_gla", "parallel_retention"])
def test_scores_times_values_are_the_output(name):
    drawn = draw("q, k, v, g", 20)
    drawn["g"][:, 5] = -math.inf
    if name == "parallel_retention":
        drawn["g"] = torch.log(1 - 2.0 ** (-5 - torch.arange(2.0, dtype=torch.float64))).expand(
            2, 20, 2
        )
    y = {n: one.clone().requires_grad_() for n, one in drawn.items()}
    x = {n: one.float().requires_grad_() for n, one in drawn.items()}
    gates = {} if name == "parallel_retention" else {"g": x["g"]}
    main = {n: x[n] for n in "qkv"}
    out, scores = getattr(fla, name)(**main, **gates, output_attentions=True)
    o, wanted = scored(**y)
    assert error(out, o) <= 2e-6 and error(scores, wanted) <= 2e-6
    assert not scores.triu(1).any()
    flow = torch.randn_like(o)
    ours = torch.autograd.grad(out, list(main.values()), flow.float())
    theirs = torch.autograd.grad(o, [y[n] for n in main], flow)
    assert max(map(error, ours, theirs)) <= 5e-6
    assert getattr(fla, name)(**main, **gates)[1] is None
    row = {n: one[:1] for n, one in {**main, **gates}.items()}
    bounds = torch.tensor([0, 3, 20])
    assert getattr(fla, name)(**row, cu_seqlens=bounds)[0].shape == (1, 20, 2, 3)
    with pytest.raises(ValueError, match="output_attentions: want False with cu_seqlens"):
        getattr(fla, name)(**row, cu_seqlens=bounds, output_attentions=True)


# ---- States between chunks.


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("v_first", [False, True])
def test_states_that_enter_chunks(packed, v_first):
    y = draw("q, k, v, g channel, beta", 70, batch=1 if packed else 2, value_heads=4)
    x = floats(y)
    bounds = torch.tensor([0, 33, 33, 70]) if packed else None
    options = dict(output_final_state=True, cu_seqlens=bounds, state_v_first=v_first)
    with torch.inference_mode():
        out, last, states = fla.chunk_kda(
            **x, **options, chunk_size=32, return_intermediate_states=True
        )
    same, same_last = fla.chunk_kda(**x, **options)
    assert torch.equal(out, same) and torch.equal(last, same_last)
    spans = [(0, 32), (0, 33), (33, 65)] if packed else [(0, 32), (0, 64)]
    places = [1, None, 3] if packed else [1, 2]
    assert states.shape[1] == (4 if packed else 3) and states.shape[3:] == (
        (3, 5) if v_first else (5, 3)
    )
    for place, (begin, end) in zip(places, spans, strict=True):
        if place is None:
            continue
        part = {n: one[:, begin:end] for n, one in y.items()}
        _, wanted = reference(part["q"], part["k"], part["v"], key=part["g"], beta=part["beta"])
        assert error(states[:, place], wanted.mT if v_first else wanted) <= 2e-6
    with pytest.raises(
        ValueError, match="return_intermediate_states: want False outside inference"
    ):
        fla.chunk_kda(**x, return_intermediate_states=True)


# ---- Arguments.


def test_hints_change_nothing():
    x = floats(draw("q, k, v, g, beta", 20, batch=1, value_heads=4))
    bounds = torch.tensor([0, 8, 20])
    wanted, _ = fla.chunk_gdn(**x, cu_seqlens=bounds)
    out, _ = fla.chunk_gdn(
        **x,
        cu_seqlens=bounds.int(),
        cu_seqlens_cpu=bounds,
        chunk_indices=bounds,
        cp_context=None,
        chunk_size=16,
    )
    assert torch.equal(out, wanted)
    y = floats(draw("q, k, v, g channel, beta", 20, value_heads=4))
    out, _ = fla.chunk_kda(
        **y,
        safe_gate=True,
        disable_recompute=True,
        use_graph=True,
        max_num_seqs=3,
        lower_bound=-5.0,
        chunk_size=32,
    )
    assert torch.equal(out, fla.chunk_kda(**y)[0])


def test_the_former_name_of_the_layout():
    x = floats(draw("q, k, v, gk", 9))
    with pytest.warns(DeprecationWarning, match="transpose_state_layout is now called"):
        _, last = fla.fused_recurrent_gla(**x, output_final_state=True, transpose_state_layout=True)
    assert last.shape == (2, 2, 3, 5)
    with pytest.raises(ValueError, match="state_v_first: want it alone"):
        fla.fused_recurrent_gla(**x, state_v_first=True, transpose_state_layout=False)


def test_the_two_scales_of_rwkv7():
    """The original's defaults differ: 1 for the chunked form, K^-1/2 for the recurrent."""
    y = {n: one.requires_grad_() for n, one in draw("r, w, k, v, a, b", 9).items()}
    x = {n: one.detach().float().requires_grad_() for n, one in y.items()}
    out, nothing = fla.chunk_rwkv7(**x, chunk_size=16, safe_gate=True)
    other, state = fla.fused_recurrent_rwkv7(**x)
    assert nothing is None
    for found, scale in ((out, 1.0), (other, 5**-0.5)):
        o, S = reference(y["r"], y["k"], y["v"], key=y["w"], pair=(y["a"], y["b"]), scale=scale)
        assert error(found, o) <= 2e-6
        flow = torch.randn_like(o)
        ours = torch.autograd.grad(found, list(x.values()), flow.float(), retain_graph=True)
        theirs = torch.autograd.grad(o, list(y.values()), flow, retain_graph=True)
        assert max(map(error, ours, theirs)) <= 1e-5
    assert error(state, S) <= 2e-6


def test_a_rate_of_minus_infinity_never_decays():
    y = draw("q, k, v, g raw, beta, A_log", 9)
    y["A_log"].fill_(-math.inf)
    out, _ = fla.chunk_gdn(**floats(y), use_gate_in_kernel=True)
    o, _ = reference(y["q"], y["k"], y["v"], beta=y["beta"])
    assert error(out, o) <= 2e-6


def test_a_bounded_gate_without_a_rate():
    y = draw("q, k, v, g channel raw, beta", 9)
    out, _ = fla.chunk_kda(**floats(y), use_gate_in_kernel=True, lower_bound=-2.0, safe_gate=True)
    o, _ = reference(y["q"], y["k"], y["v"], key=-2 / (1 + (-y["g"]).exp()), beta=y["beta"])
    assert error(out, o) <= 2e-6


@pytest.mark.parametrize(
    ("call", "error_type", "words"),
    [
        (lambda x: fla.chunk_retention(**x, head_first=False), DeprecationWarning, "head_first"),
        (
            lambda x: fla.chunk_retention(**x, chunk_size=48),
            ValueError,
            "chunk_size: want a power of 2",
        ),
        (
            lambda x: fla.chunk_retention(**x, colour=1),
            TypeError,
            "unexpected keyword argument 'colour'",
        ),
        (
            lambda x: fla.chunk_gdn(
                **x, g=x["q"][..., 0], beta=x["q"][..., 0], cp_context=object()
            ),
            ValueError,
            "cp_context: want None",
        ),
        (
            lambda x: fla.chunk_gdn(
                **x, g=x["q"][..., 0], beta=x["q"][..., 0], allow_neg_eigval=True
            ),
            ValueError,
            "allow_neg_eigval: want use_beta_sigmoid_in_kernel",
        ),
        (
            lambda x: fla.chunk_gdn(
                **x, g=x["q"][..., 0], beta=x["q"][..., 0], use_gate_in_kernel=True
            ),
            ValueError,
            "A_log: want a tensor with use_gate_in_kernel",
        ),
        (
            lambda x: fla.chunk_kda(**x, g=x["q"], beta=x["q"][..., 0], use_gate_in_kernel=True),
            ValueError,
            "A_log: want a tensor, or a lower_bound",
        ),
        (
            lambda x: fla.chunk_kda(
                **x,
                g=x["q"],
                beta=x["q"][..., 0],
                use_gate_in_kernel=True,
                A_log=torch.zeros(2),
                safe_gate=True,
                lower_bound=-6.0,
            ),
            ValueError,
            "lower_bound .with safe_gate.: want -5",
        ),
        (
            lambda x: fla.chunk_kda(
                **x, g=x["q"], beta=x["q"][..., 0], use_gate_in_kernel=True, A_log=torch.zeros(3)
            ),
            ValueError,
            r"A_log: want \[2\], got \[3\]",
        ),
        (
            lambda x: fla.chunk_kda(**x, g=x["q"], beta=x["q"][..., 0], chunk_size=16),
            ValueError,
            "chunk_size: want one of 32, 64",
        ),
        (
            lambda x: fla.chunk_dplr_delta_rule(**x, a=x["q"], b=x["v"], gk=x["q"]),
            ValueError,
            r"b: want \[2, 9, 2, 5\], got \[2, 9, 2, 3\]",
        ),
        (
            lambda x: fla.chunk_dplr_delta_rule(
                **x, a=x["q"], b=x["q"], gk=x["q"], lower_bound=1.0
            ),
            ValueError,
            "lower_bound: want a number below 0, got 1.0",
        ),
        (
            lambda x: fla.chunk_rwkv7(x["q"], x["q"], x["k"], x["v"], x["q"], x["q"], cp_context=1),
            ValueError,
            "cp_context: want None",
        ),
        (lambda x: fla.chunk_gla(**x, g=x["v"]), ValueError, r"g: want \[2, 9, 2, 5\]"),
        (
            lambda x: fla.chunk_simple_gla(**x, cu_seqlens=torch.tensor([0, 9])),
            ValueError,
            "q .with cu_seqlens.: want a batch of 1, got 2",
        ),
        (
            lambda x: fla.chunk_simple_gla(
                *[one[:1] for one in x.values()],
                cu_seqlens=torch.tensor([0, 4, 9]),
                initial_state=torch.zeros(1, 2, 5, 3),
            ),
            ValueError,
            r"initial_state: want \[2, 2, 5, 3\], got \[1, 2, 5, 3\]",
        ),
        (
            lambda x: fla.chunk_simple_gla(
                **x, initial_state=torch.zeros(2, 2, 5, 3), state_v_first=True
            ),
            ValueError,
            r"initial_state: want \[2, 2, 3, 5\]",
        ),
        (
            lambda x: fla.chunk_simple_gla(x["q"], x["k"], x["v"].repeat(1, 1, 2, 1)),
            ValueError,
            r"v: want \[2, 9, 2, 3\], got \[2, 9, 4, 3\]",
        ),
        (lambda x: fla.chunk_simple_gla(x["q"], x["v"], x["v"]), ValueError, "k: want"),
        (
            lambda x: fla.chunk_rwkv6(x["q"], x["k"], x["v"], x["q"], x["q"]),
            ValueError,
            r"u: want \[2, 5\]",
        ),
    ],
)
def test_refusals(call, error_type, words):
    with pytest.raises(error_type, match=words):
        call(floats(draw("q, k, v", 9)))


def test_the_root_of_a_length_holds_its_eps():
    """Keys and queries far below 1e-3 stay short instead of being blown up to 1."""
    x = draw("q, k, v, g, beta", 9)
    x["q"], x["k"] = 1e-3 * x["q"], 1e-3 * x["k"]
    x["k"][:, 4] = 0
    out, _ = fla.chunk_gdn(**floats(x), use_qk_l2norm_in_kernel=True)
    o, _ = reference(unit(x["q"]), unit(x["k"]), x["v"], token=x["g"], beta=x["beta"])
    assert error(out, o) <= 2e-6
