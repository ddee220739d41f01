"""The forms that tarn.install_as_fla() gives to flash-linear-attention's modules against
the plain torch that a user would write, in each dtype, forward and in training."""

import harness
import limits
import results
import torch
import torch.nn.functional as F

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _tables(x):
    place = torch.arange(x.shape[1])[:, None]
    angles = place * torch.logspace(0, -4, x.shape[-1] // 2)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def _rotary(x, cos, sin):
    cos, sin = cos[:, None], sin[:, None]
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def _corrected(o, r, k, r_k, v, g):
    return (o + ((r * k * r_k).sum(-1, keepdim=True) * v).flatten(2)) * g


def _token_shift(x):
    return F.pad(x, (0, 0, 1, 0))[:, :-1] - x


def _channel_mix(x, weights, key, value):
    mixed = x + _token_shift(x) * weights
    return torch.relu(mixed @ key).square() @ value


def _powglu(x, y):
    base = x.clamp(min=1e-9)
    return torch.where(x > 0, base ** (3 / (base.sqrt() + 1)), x) * torch.sigmoid(x) * y


def _cases(ctx):
    """name: tarn's form, plain torch, shapes of the inputs that learn."""
    from tarn._fla_package import activations, losses, rotary, sequences

    tokens, width, heads = ctx.size((1024, 1024, 16), (8, 16, 2))
    rows, split = (1, tokens, width), (1, tokens, heads, width // heads)
    count, classes, narrow = ctx.size((256, 8192, 256), (4, 16, 8))
    target = torch.arange(count) * 7 % classes
    # Fewer tokens where there is a product: torch's in float16 takes seconds.
    few = tokens // 4
    targets = torch.arange(few) * 7 % classes
    none = torch.zeros(1, narrow)  # before the first token
    tables = {dtype: _tables(torch.empty(split, dtype=dtype)) for dtype in DTYPES}
    return {
        "swiglu": (activations.swiglu, lambda x, y: F.silu(x) * y, (rows, rows)),
        "sigmoidglu": (activations.sigmoidglu, lambda x, y: torch.sigmoid(x) * y, (rows, rows)),
        "powglu": (activations.powglu, _powglu, (rows, rows)),
        "elu_p1": (activations.elu_p1, lambda x: F.elu(x) + 1, (rows,)),
        "sigmoid": (activations.sigmoid, torch.sigmoid, (rows,)),
        "logsigmoid": (
            lambda x: activations.logsigmoid(x, 16.0),
            lambda x: F.logsigmoid(x) / 16,
            (rows,),
        ),
        "bias_gelu": (
            activations.bias_gelu_impl,
            lambda x, b: F.gelu(x + b, approximate="tanh"),
            (rows, (width,)),
        ),
        "rotary": (
            lambda x: rotary.rotary_embedding(x, *tables[x.dtype]),
            lambda x: _rotary(x, *tables[x.dtype]),
            (split,),
        ),
        "cross entropy": (
            lambda z: losses.cross_entropy_loss(z, target)[0],
            lambda z: F.cross_entropy(z, target, reduction="none"),
            ((count, classes),),
        ),
        "linear and cross entropy": (
            lambda x, w: losses.fused_linear_cross_entropy_loss(x, targets, w),
            lambda x, w: F.cross_entropy(x @ w.t(), targets),
            ((few, narrow), (classes, narrow)),
        ),
        "square relu": (activations.sqrelu, lambda x: F.relu(x).square(), (rows,)),
        "token shift": (sequences.token_shift, _token_shift, (rows,)),
        "RWKV-7 channel mix": (
            lambda x, *w: sequences.channel_mixing_rwkv7(x, none.to(x.dtype), *w)[0],
            _channel_mix,
            ((1, few, narrow), (narrow,), (narrow, 4 * narrow), (4 * narrow, narrow)),
        ),
        "RWKV-7 key update": (
            sequences.fused_k_rwkv7,
            lambda k, a, w: k * (1 + (a - 1) * w),
            (rows, rows, (width,)),
        ),
        "RWKV-7 mixes": (
            sequences.fused_addcmul_rwkv7,
            lambda x, d, *w: tuple(x + d * one for one in w),
            (rows, rows, *[(1, 1, width)] * 6),
        ),
        "RWKV-7 output correction": (
            sequences.gate_output_correction,
            _corrected,
            (rows, split, split, (heads, width // heads), split, rows),
        ),
    }


def _side(name, form, leaves, training, threads):
    def run():
        out = form(*leaves)
        if training:
            out = out if isinstance(out, tuple) else (out,)
            torch.autograd.grad(out, leaves, [torch.ones_like(one) for one in out])

    return harness.of_call(name, run, threads)


def measure(ctx):
    table = results.Table(
        "fla_forms",
        "flash-linear-attention's elementwise forms against plain torch",
        "1,024 tokens, 1,024 wide, 16 heads; cross entropy 256 x 8,192; with products (linear and "
        "cross entropy, channel mix) 256 tokens, 256 wide. over_torch: the median of "
        "pairs, tarn's time over that of plain torch, which rounds after each operator.",
    )
    names = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    for name, (ours, plain, shapes) in _cases(ctx).items():
        worst = {}
        for threads in sorted({1, ctx.threads}):
            sides = {}
            for dtype, kind in zip(DTYPES, names):
                for training in (False, True):
                    leaves = [
                        torch.randn(shape).to(dtype).requires_grad_(training) for shape in shapes
                    ]
                    what = f"{kind}, {'training' if training else 'forward'}"
                    sides[what] = [
                        _side(f"{name}, {what}, {who}", form, leaves, training, threads)
                        for who, form in (("tarn", ours), ("torch", plain))
                    ]
            flat = [side for pair in sides.values() for side in pair]
            samples, limit = limits.group(
                flat, min(ctx.rounds, 7), 1 << 24, threads, attempts=1, budget=8
            )
            for what, (own, other) in sides.items():
                quotient = harness.ratio(samples[own.name], samples[other.name])
                worst[f"{what}, {threads}"] = quotient
                own.facts |= {"form": name, "pass": what, "over_torch": quotient}
                other.facts |= {"form": name, "pass": what}
                for side in (own, other):
                    table.rows.append(limits.row(side, samples[side.name], limit))
        most = max(worst, key=lambda key: worst[key])
        table.goal(
            f"{name}: the slowest pass over plain torch",
            results.at_most(1.0),
            worst[most],
            valid=limit["valid"],
            remark=f"{most} threads",
        )
    return table
