"""Random calls of the operators that have CUDA kernels, their results by the composed form
in float64 on the CPU, and how far results may be from them."""

import dataclasses
import math

import torch

from tarn import ops

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# (r, m) of a result against float64: the RMS of the error over that of the result, and the
# largest error of a row over the row's RMS. 16-bit numbers are rounded on their way into
# products, states among them; float32 is split into three products.
_OUT = {
    torch.float32: (2e-6, 5e-5),
    torch.bfloat16: (4e-3, 4e-2),
    torch.float16: (1e-3, 1e-2),
}
_DELTA_OUT = {
    **_OUT,
    torch.bfloat16: (5e-3, 5e-2),
    torch.float16: (1.5e-3, 1.5e-2),
}
_GRADIENT = {
    torch.float32: (3e-6, 1e-4),
    torch.bfloat16: (8e-3, 6e-2),
    torch.float16: (2e-3, 2e-2),
}
_SMALL = {  # of gates and betas: a row is a head
    torch.float32: (1e-5, 2e-4),
    torch.bfloat16: (1.5e-2, 1e-1),
    torch.float16: (4e-3, 4e-2),
}


@dataclasses.dataclass
class Problem:
    """Tensors of one call on the CPU, and its options. `exact`: the names of tensors that
    stay float32 whatever the dtype."""

    op: str  # "linear", "decay" or "delta"
    tensors: dict
    options: dict = dataclasses.field(default_factory=dict)

    def on(self, device, dtype, gradients=True):
        """The tensors there, rounded to dtype where the operator's are; leaves."""
        found = {}
        for name, x in self.tensors.items():
            floating = x.is_floating_point()
            kind = x.dtype
            if floating:
                wide = torch.float64 if dtype == torch.float64 else torch.float32
                kept = name in ("gates", "betas", "bonus", "initial_state", "S", "z")
                kind = wide if kept else dtype
            x = x.detach().to(device, kind, copy=True)
            found[name] = x.requires_grad_(gradients) if floating else x
        return found

    def call(self, x):
        """(out, states...) with the tensors x."""
        rest = dict(x)
        main = [rest.pop(name) for name in ("queries", "keys", "values")]
        if self.op == "linear":
            if "S" in rest:
                rest["initial_state"] = (rest.pop("S"), rest.pop("z"))
            out, state = ops.linear_attention(*main, return_state=True, **rest, **self.options)
            return out, state.S, state.z
        if self.op == "delta":
            main.append(rest.pop("betas"))
        function = ops.delta_attention if self.op == "delta" else ops.decay_attention
        return function(*main, return_state=True, **rest, **self.options)

    def rounded(self, dtype):
        """The same call with the numbers that a call in dtype sees."""
        x = {name: t.detach() for name, t in self.on("cpu", dtype, gradients=False).items()}
        return Problem(self.op, x, self.options)


def weights_of(results, seed=7):
    """One random tensor for each result, by which a loss multiplies it; in the values that
    bfloat16 and float16 both have, so that every dtype's gradient begins the same."""
    draw = torch.Generator().manual_seed(seed)
    return [
        (torch.randint(-16, 17, r.shape, generator=draw) / 8).to(torch.float64) for r in results
    ]


def differentiate(problem, x):
    """Results of the call and the gradients of its floating tensors, all on the CPU in
    float64."""
    results = problem.call(x)
    for_loss = weights_of(results)
    loss = sum((r * w.to(r.device, r.dtype)).sum() for r, w in zip(results, for_loss, strict=True))
    loss.backward()
    outs = [r.detach().cpu().double() for r in results]
    grads = {
        name: t.grad.detach().cpu().double()
        for name, t in x.items()
        if t.is_floating_point() and t.grad is not None
    }
    return outs, grads


def measures(ours, wanted, rows_from):
    """(r, m); a row is what has the axes from rows_from on."""
    if wanted.numel() == 0:
        return 0.0, 0.0
    error = (ours - wanted).flatten(0, rows_from - 1) if rows_from else (ours - wanted)[None]
    wanted = wanted.flatten(0, rows_from - 1) if rows_from else wanted[None]
    error, wanted = error.flatten(1), wanted.flatten(1)
    size = wanted.square().mean().sqrt().clamp_min(1e-30)
    # Rows that cancel are measured by the others, and so are rows of few numbers, which often do.
    least = size if wanted.shape[1] < 8 else 1e-2 * size
    row = wanted.square().mean(1).sqrt().clamp_min(least)
    return float(error.square().mean().sqrt() / size), float((error.abs().amax(1) / row).max())


def _bound(problem, name, dtype):
    if name == "out":
        return (_DELTA_OUT if problem.op == "delta" else _OUT)[dtype]
    if name in ("gates", "betas", "bonus"):
        return _SMALL[dtype]
    if name in ("state 0", "state 1", "initial_state", "S", "z"):
        return _OUT[dtype]
    return _GRADIENT[dtype]


def assert_close(problem, dtype, name, ours, wanted, factor=1.0, of_rows=1.0):
    assert ours.shape == wanted.shape, (name, ours.shape, wanted.shape)
    assert bool(torch.isfinite(ours).all()), f"{name}: not finite"
    if name in ("gates", "betas") and wanted.dim() > 1:
        ours, wanted = ours.movedim(2, 0), wanted.movedim(2, 0)
        rows_from = 1
    else:
        rows_from = max(wanted.dim() - 1, 0)
    r, m = measures(ours, wanted, rows_from)
    most_r, most_m = (factor * bound for bound in _bound(problem, name, dtype))
    most_m *= of_rows
    assert r <= most_r and m <= most_m, (
        f"{problem.op} {dtype} {name}: r {r:.2e} of {most_r:.2e}, m {m:.2e} of {most_m:.2e}"
    )


def check(problem, dtype, factor=1.0, gradients=True):
    """The call on CUDA against the same numbers in float64 on the CPU."""
    same = problem.rounded(dtype)
    if not gradients:
        with torch.no_grad():
            outs = same.call(same.on("cuda", dtype, gradients=False))
            wanted = same.call(same.on("cpu", torch.float64, gradients=False))
        outs = [x.cpu().double() for x in outs]
        grads = wanted_grads = {}
    else:
        outs, grads = differentiate(same, same.on("cuda", dtype))
        wanted, wanted_grads = differentiate(same, same.on("cpu", torch.float64))
        assert grads.keys() == wanted_grads.keys()
    names = ["out"] + [f"state {i}" for i in range(len(outs) - 1)]
    for name, ours, theirs in zip(names, outs, wanted, strict=True):
        assert_close(problem, dtype, name, ours, theirs, factor)
    for name in grads:
        assert_close(problem, dtype, name, grads[name], wanted_grads[name], factor)


def draw(seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    return normal


def gated(
    op,
    tokens,
    *,
    batch=2,
    heads=2,
    group=1,
    d_key=64,
    d_value=64,
    gates="token",
    size=0.1,
    resets=False,
    state=True,
    bonus=False,
    seed=0,
):
    """gates: "none", "head", "token", "channel"; size: of their logarithms."""
    normal = draw(seed)
    value_heads = heads * group
    x = {
        "queries": normal(batch, tokens, heads, d_key),
        "keys": normal(batch, tokens, heads, d_key),
        "values": normal(batch, tokens, value_heads, d_value),
    }
    shape = {
        "head": (value_heads,),
        "token": (batch, tokens, value_heads),
        "channel": (batch, tokens, value_heads, d_key),
    }
    if gates != "none":
        x["gates"] = -size * normal(*shape[gates]).abs()
        if resets and gates != "head" and tokens > 12:
            x["gates"][:, 3] = -math.inf
            x["gates"][:, 9] = -1e4
            x["gates"][:, 12] = -104.0
    if op == "delta":
        x["keys"] = torch.nn.functional.normalize(x["keys"], dim=-1)
        x["betas"] = normal(batch, tokens, value_heads).sigmoid()
    if bonus:
        x["bonus"] = normal(value_heads, d_key)
    if state:
        x["initial_state"] = normal(batch, value_heads, d_key, d_value)
    return Problem(op, x)


def linear(
    tokens,
    *,
    batch=2,
    heads=2,
    group=1,
    d_key=64,
    d_value=64,
    keys=None,
    state=True,
    seed=0,
    **options,
):
    normal = draw(seed)
    value_heads, keys = heads * group, tokens if keys is None else keys
    x = {
        "queries": normal(batch, tokens, heads, d_key),
        "keys": normal(batch, keys, heads, d_key),
        "values": normal(batch, keys, value_heads, d_value),
    }
    if state:
        x["S"] = normal(batch, value_heads, d_key, d_value)
        x["z"] = normal(batch, value_heads, d_key).abs() + 1
    return Problem("linear", x, options)


def with_tensors(problem, **more):
    return Problem(problem.op, {**problem.tensors, **more}, problem.options)


def one_of_each(tokens=100, **sizes):
    """A call of each operator that has kernels."""
    return {
        "linear": linear(tokens, **sizes),
        "decay": gated("decay", tokens, **sizes),
        "gated delta": gated("delta", tokens, **sizes),
        "kda": gated("delta", tokens, gates="channel", **sizes),
    }
