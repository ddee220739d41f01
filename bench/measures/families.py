"""Decay and delta families: their kernels against the ungated one and sgemm, their
operators against transformers' torch forms and the plain chunked form."""

import functools

import harness
import limits
import native
import results
import torch
import torch_recurrences as plain

SEQ_LEN, HEADS = 16384, 8
# Case, gate, widths; least share of sgemm of the forward pass and the gradient.
KERNELS = [
    ("delta_attention", "token", 64, 0.40, 0.30),
    ("delta_attention", "token", 128, 0.50, 0.40),
    ("delta_attention", "channel", 64, None, 0.30),
    ("delta_attention", "channel", 128, None, 0.40),
    ("dplr_attention", "channel", 64, 0.25, 0.20),
]
# Name, least quotient against transformers' form.
FORMS = [("GDN", 8.0), ("SSD", 20.0), ("KDA", 60.0)]


def _case(name, threads, **params):
    return native.Case(name, threads, **params)


def _ungated(table, ctx):
    """Class A and vector decay over the time of linear attention."""
    size = {"seq_len": ctx.size(SEQ_LEN, 64), "heads": HEADS}
    for suffix in ("forward", "gradient"):
        cases = {
            "none": _case(f"linear_attention_{suffix}", ctx.threads, **size),
            "token": _case(f"decay_attention_{suffix}", ctx.threads, gate="token", **size),
            "channel": _case(f"decay_attention_{suffix}", ctx.threads, gate="channel", **size),
        }
        sides = [harness.of_case(case, name, gate=name) for name, case in cases.items()]
        samples, limit = limits.group(sides, min(ctx.rounds, 9), cases["none"].bytes, ctx.threads)
        for side in sides:
            table.rows.append(limits.row(side, samples[side.name], limit))
        for gate, bound in (("token", 1.25), ("channel", 2.0)):
            table.goal(
                f"decay_attention {suffix}, a decay per {gate}, over linear_attention",
                results.at_most(bound),
                harness.ratio(samples[gate], samples["none"]),
                valid=limit["valid"],
            )
        for case in cases.values():
            case.close()


def _shares(table, ctx):
    for name, gate, width, forward, gradient in KERNELS:
        for suffix, bound in (("forward", forward), ("gradient", gradient)):
            params = {"seq_len": ctx.size(SEQ_LEN, 64), "heads": HEADS, "d_key": width}
            if name != "dplr_attention":
                params["gate"] = gate
            with _case(f"{name}_{suffix}", ctx.threads, **params) as case:
                sides = [harness.of_case(case, gate=gate), limits.sgemm_side(ctx.threads)]
                samples, limit = limits.group(sides, min(ctx.rounds, 9), case.bytes, ctx.threads)
                row = limits.row(sides[0], samples["tarn"], limit, samples["sgemm"])
                table.rows.append(row)
                rate = [side.useful_flop / samples[side.name].median for side in sides]
                if bound is not None:
                    table.goal(
                        f"{name}_{suffix}, a decay per {gate}, {width} wide: of sgemm",
                        results.at_least(100 * bound),
                        100 * rate[0] / rate[1],
                        unit="%",
                        valid=limit["valid"],
                    )


def _long(table, ctx):
    """The time of a token at 65,536 tokens over that at 4,096."""
    for name in ("decay_attention", "delta_attention", "dplr_attention"):
        lengths = ctx.size((4096, 65536), (64, 128))
        cases = [_case(f"{name}_forward", ctx.threads, seq_len=n) for n in lengths]
        sides = [harness.of_case(case, str(n)) for case, n in zip(cases, lengths)]
        samples, limit = limits.group(sides, min(ctx.rounds, 9), cases[1].bytes, ctx.threads)
        value = harness.ratio(samples[str(lengths[1])], samples[str(lengths[0])])
        table.goal(
            f"{name}_forward: a token at {lengths[1]:,} over {lengths[0]:,}",
            results.at_most(1.10),
            value * lengths[0] / lengths[1],
            valid=limit["valid"],
        )
        for case in cases:
            case.close()


def kernels(ctx):
    table = results.Table(
        "families",
        "Decay and delta kernels",
        f"1 x {HEADS} x {SEQ_LEN:,}, float32, 64 wide unless stated; useful FLOP are those of "
        "chunks of 16 tokens.",
    )
    _ungated(table, ctx)
    _shares(table, ctx)
    _long(table, ctx)
    return table


def _unit(x):
    return torch.nn.functional.normalize(x, dim=-1)


class _Operands:
    """Tensors of one operator, time first, mild gates."""

    def __init__(self, seq_len, width):
        torch.manual_seed(1)
        shape = (1, seq_len, HEADS, width)
        self.q, self.k = _unit(torch.randn(shape)), _unit(torch.randn(shape))
        self.v = torch.randn(shape)
        self.token = -0.1 * torch.rand(shape[:3])
        self.channel = -0.1 * torch.rand(shape)
        self.beta = torch.rand(shape[:3])
        self.grad = torch.randn(shape)


def _calls(name, o):
    """tarn's operator, transformers' function, the plain form; the tensors they read."""
    import tarn

    if name == "GDN":
        from transformers.models.qwen3_5 import modeling_qwen3_5 as theirs

        reads = [o.q, o.k, o.v, o.token, o.beta]
        return reads, {
            "tarn": lambda q, k, v, g, b: tarn.ops.gated_delta_rule(q, k, v, g, b),
            "transformers": lambda q, k, v, g, b: theirs.torch_chunk_gated_delta_rule(
                q, k, v, g, b
            )[0],
            "plain torch": plain.delta,
        }
    if name == "KDA":
        from transformers.models.kimi_linear import modeling_kimi_linear as theirs

        reads = [o.q, o.k, o.v, o.channel, o.beta]
        return reads, {
            "tarn": lambda q, k, v, g, b: tarn.ops.kda(q, k, v, g, b),
            "transformers": lambda q, k, v, g, b: theirs.chunk_kimi_delta_attention(q, k, v, g, b)[
                0
            ],
            "plain torch": plain.delta,
        }
    from transformers.models.mamba2 import modeling_mamba2 as theirs

    A = -torch.ones(HEADS)
    reads = [o.v, -o.token, o.k, o.q]
    return reads, {
        "tarn": lambda x, dt, B, C: tarn.ops.ssd(x, dt, A, B, C),
        "transformers": lambda x, dt, B, C: theirs.mamba2_chunk_scan(
            x, dt, A, B, C, chunk_size=256
        ),
        "plain torch": lambda x, dt, B, C: plain.decay(C, B, x * dt.unsqueeze(-1), -dt),
    }


def _side(name, call, reads, grad, with_gradient, threads):
    leaves = [x.clone().requires_grad_(with_gradient) for x in reads]

    def run():
        out = call(*leaves)
        if with_gradient:
            torch.autograd.grad(out, leaves, grad)

    return harness.of_call(name, run, threads)


def forms(ctx):
    table = results.Table(
        "recurrent_forms",
        "Operators against torch forms",
        f"1 x 2,048 tokens, {HEADS} heads, float32. transformers: its own chunked torch "
        "functions (SSD in chunks of 256, its default); plain torch: bench/torch_recurrences.py.",
    )
    for name, bound in FORMS:
        for width in ctx.size((64, 128), (16,)):
            o = _Operands(ctx.size(2048, 128), width)
            reads, calls = _calls(name, o)
            for gradient in (False, True):
                sides = [
                    _side(key, call, reads, o.grad, gradient, ctx.threads)
                    for key, call in calls.items()
                ]
                samples, limit = limits.group(
                    sides, min(ctx.rounds, 7), 1 << 26, ctx.threads, budget=25
                )
                what = "forward + gradient" if gradient else "forward"
                told = f"{samples['tarn'].median * 1e3:.2f} ms"
                for side in sides:
                    side.facts |= {"model": f"{name}, {what}", "width": width}
                    table.rows.append(limits.row(side, samples[side.name], limit))
                quotient = functools.partial(harness.ratio, faster=samples["tarn"])
                if gradient:
                    table.goal(
                        f"{name}, {width} wide, {what}, against transformers",
                        results.at_least(bound),
                        quotient(samples["transformers"]),
                        valid=limit["valid"],
                        remark=told,
                    )
                table.goal(
                    f"{name}, {width} wide, {what}, against plain torch",
                    results.at_least(3.0),
                    quotient(samples["plain torch"]),
                    valid=limit["valid"],
                    remark=told,
                )
    return table
