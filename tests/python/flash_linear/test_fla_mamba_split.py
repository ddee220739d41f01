"""mamba_split_conv1d_scan_combined against a loop over tokens in float64: values, final
states, and gradients of every input."""

import pytest
import torch

from tarn import fla

HEADS, WIDTH, GROUPS, STATES, TAPS, TOKENS = 4, 3, 2, 5, 4, 9
INNER, CHANNELS = HEADS * WIDTH, HEADS * WIDTH + 2 * GROUPS * STATES


def problem(spare=0, wide_d=False, norm=True, product=True, states=False):
    draws = torch.Generator().manual_seed(3)

    def normal(*sizes):
        return torch.randn(*sizes, generator=draws, dtype=torch.float64)

    found = dict(
        zxbcdt=normal(2, TOKENS, 2 * spare + INNER + CHANNELS + HEADS),
        conv1d_weight=normal(CHANNELS, TAPS),
        conv1d_bias=normal(CHANNELS),
        dt_bias=normal(HEADS),
        A=-normal(HEADS).exp(),
        D=normal(HEADS, WIDTH) if wide_d else normal(HEADS),
    )
    if states:
        found |= dict(initial_states=normal(2, HEADS, WIDTH, STATES))
    if norm:
        found |= dict(rmsnorm_weight=normal(INNER))
    if product:
        found |= dict(outproj_weight=normal(7, spare + INNER), outproj_bias=normal(7))
    return found


def silu(x):
    return x / (1 + (-x).exp())


def normed(x, weight):
    rows = x.view(GROUPS, -1)
    return (rows / (rows.square().mean(-1, keepdim=True) + 1e-6).sqrt()).flatten() * weight


def loop(x, spare=0, before=True, activation=True, limit=(0.0, float("inf")), numbers=None):
    D = x["D"] if x["D"].dim() == 2 else x["D"][:, None]
    rows, states = [], []
    for b, row in enumerate(x["zxbcdt"]):
        S = x["initial_states"][b] if "initial_states" in x else row.new_zeros(HEADS, WIDTH, STATES)
        outs = []
        for t in range(TOKENS):
            number = 0 if numbers is None else int(numbers[b][t])
            seen = x["conv1d_bias"]
            for tap in range(TAPS):
                at = t - (TAPS - 1) + tap
                if at >= 0 and (numbers is None or int(numbers[b][at]) == number):
                    past = row[at, 2 * spare + INNER : 2 * spare + INNER + CHANNELS]
                    seen = seen + past * x["conv1d_weight"][:, tap]
            seen = silu(seen) if activation else seen
            value = seen[:INNER].view(HEADS, WIDTH)
            B, C = (
                one.view(GROUPS, STATES).repeat_interleave(HEADS // GROUPS, 0)
                for one in seen[INNER:].chunk(2)
            )
            step = torch.log1p((row[t, -HEADS:] + x["dt_bias"]).exp()).clamp(*limit)
            if numbers is not None and t > 0 and int(numbers[b][t - 1]) != number:
                S = torch.zeros_like(S)
            S = (step * x["A"]).exp()[:, None, None] * S + (step[:, None] * value)[..., None] * B[
                :, None
            ]
            y = ((S * C[:, None]).sum(-1) + D * value).flatten()
            z = row[t, 2 * spare : 2 * spare + INNER]
            if "rmsnorm_weight" not in x:
                y = y * silu(z)
            elif before:
                y = normed(y, x["rmsnorm_weight"]) * silu(z)
            else:
                y = normed(y * silu(z), x["rmsnorm_weight"])
            y = torch.cat([silu(row[t, :spare]) * row[t, spare : 2 * spare], y])
            if "outproj_weight" in x:
                y = x["outproj_weight"] @ y + x["outproj_bias"]
            outs.append(y)
        rows.append(torch.stack(outs))
        states.append(S)
    return torch.stack(rows), torch.stack(states)


NUMBERS = [[0] * 4 + [1] * 2 + [2] * 3, [3] * TOKENS]
CASES = {
    "plain": (dict(), dict()),
    "gate first": (dict(), dict(before=False)),
    "no norm": (dict(norm=False, wide_d=True), dict()),
    "no product": (dict(product=False), dict(limit=(0.2, 0.9))),
    "no activation": (dict(), dict(activation=False)),
    "gated part": (dict(spare=6, states=True), dict()),
    "numbered": (dict(norm=False), dict(numbers=NUMBERS)),
}


@pytest.mark.parametrize("name", CASES)
def test_split(name):
    drawn, meant = CASES[name]
    double = {n: one.requires_grad_() for n, one in problem(**drawn).items()}
    single = {n: one.detach().float().requires_grad_() for n, one in double.items()}
    options = dict(
        ngroups=GROUPS,
        chunk_size=4,
        norm_before_gate=meant.get("before", True),
        headdim=None if "wide_d" in drawn else WIDTH,
    )
    if "limit" in meant:
        options |= dict(dt_limit=meant["limit"])
    if not meant.get("activation", True):
        options |= dict(activation=None)
    if "numbers" in meant:
        options |= dict(seq_idx=torch.tensor(NUMBERS, dtype=torch.int32))
    wanted, states = loop(double, drawn.get("spare", 0), **meant)
    out, last = fla.mamba_split_conv1d_scan_combined(**single, return_final_states=True, **options)
    torch.testing.assert_close(out.double(), wanted, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(last.double(), states, rtol=2e-5, atol=2e-5)
    assert torch.equal(fla.mamba_split_conv1d_scan_combined(**single, **options), out)
    flows = torch.randn_like(wanted), torch.randn_like(states)
    ours = torch.autograd.grad((out, last), list(single.values()), [x.float() for x in flows])
    theirs = torch.autograd.grad((wanted, states), list(double.values()), flows)
    for which, one, other in zip(single, ours, theirs, strict=True):
        room = 2e-5 * float(other.norm()) + 1e-5
        assert float((one.double() - other).norm()) <= room, which


def test_split_of_16_bits_and_no_tokens():
    x = {
        n: one.bfloat16() if n in ("zxbcdt", "conv1d_weight", "conv1d_bias") else one.float()
        for n, one in problem(product=False).items()
    }
    options = dict(ngroups=GROUPS, chunk_size=4, headdim=WIDTH)
    out = fla.mamba_split_conv1d_scan_combined(**x, **options)
    wanted, _ = loop({n: one.double() for n, one in x.items()})
    assert out.dtype == torch.bfloat16
    assert float((out.double() - wanted).norm()) <= 2e-2 * float(wanted.norm())
    x["zxbcdt"] = x["zxbcdt"][:, :0]
    assert fla.mamba_split_conv1d_scan_combined(**x, **options).shape == (2, 0, INNER)


def test_refusals():
    given = {n: one.float() for n, one in problem().items()}
    options = dict(ngroups=GROUPS, chunk_size=4, headdim=WIDTH)

    def refused(match, **changed):
        with pytest.raises(ValueError, match="mamba_split_conv1d_scan_combined: " + match):
            fla.mamba_split_conv1d_scan_combined(**given | options | changed)

    refused("headdim: want a width with D", headdim=None)
    refused("activation: want None, silu or swish, got gelu", activation="gelu")
    refused("ngroups: want a divisor of 4, got 3", ngroups=3)
    refused("zxbcdt: want a width of", zxbcdt=given["zxbcdt"][..., 1:])
    refused("conv1d_weight: want 12 channels", conv1d_weight=given["conv1d_weight"][1:])
    refused("dt_bias", dt_bias=given["dt_bias"][1:])
    refused("rmsnorm_weight", rmsnorm_weight=given["rmsnorm_weight"][1:])
