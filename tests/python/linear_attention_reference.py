"""Independent reference of linear attention: one loop over tokens in float64,
which torch's autograd follows. Also the random problems and error measures of
the tests. Shares no code with tarn."""

import dataclasses
from typing import Optional

import tarn
import torch

# r and m (see assert_close). Output rounding alone gives r = 1.7e-3 (bfloat16)
# and 2.1e-4 (float16); float32 is 3 to 4 times what a correct kernel gives.
OUTPUT_TOLERANCE = {
    torch.float32: (2e-6, 5e-5),
    torch.bfloat16: (2e-3, 3e-2),
    torch.float16: (3e-4, 4e-3),
    torch.float64: (1e-13, 1e-11),
}
GRADIENT_TOLERANCE = {**OUTPUT_TOLERANCE, torch.float32: (3e-6, 1e-4)}


def feature(name, x):
    if name in ("relu", "relu2"):
        positive = torch.where(x > 0, x, 0)
        return positive if name == "relu" else positive * positive
    if name == "softplus":
        return (1 + x.exp()).log()
    return x if name == "identity" else torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def divide(numerator, denominator, kind, eps):
    if kind == "none":
        return numerator
    if kind == "compat":
        return numerator / (denominator + eps)
    positive = denominator > 0
    return torch.where(positive, numerator / denominator.where(positive, 1), 0)


def token_loop(
    queries,
    keys,
    values,
    state=None,
    *,
    causal=True,
    causal_offset=0,
    feature_map="elu1",
    keep=None,
    denominator="exact",
    eps=1e-6,
    scale=1.0,
    constant_denominator=False,
):
    """queries [B, T, H, K], keys [B, S, H, K], values [B, S, HV, V], float64;
    keep [B, S] bool. Returns out [B, T, HV, V], S [B, HV, K, V], z [B, HV, K].
    With constant_denominator no gradient passes through denominators."""
    batch, seq_len = queries.shape[:2]
    seq_len_k, value_heads = values.shape[1:3]
    group = value_heads // queries.shape[2]
    keep = torch.ones(batch, seq_len_k, dtype=torch.bool) if keep is None else keep
    keep = keep[:, :, None, None]
    phi_q = feature(feature_map, queries).repeat_interleave(group, 2) * scale
    phi_k = feature(feature_map, keys.where(keep, 0)).where(keep, 0)
    phi_k = phi_k.repeat_interleave(group, 2)
    # Unbound once, since the gradient of an index is as long as the whole tensor.
    phi_q, phi_k = phi_q.unbind(1), phi_k.unbind(1)
    values_of = values.where(keep, 0).unbind(1)
    if state is None:
        shape = (batch, value_heads, keys.shape[3])
        state = (queries.new_zeros(*shape, values.shape[3]), queries.new_zeros(shape))
    S, z = state
    rows, read = [], 0

    def read_key(S, z, j):
        return S + phi_k[j][..., None] * values_of[j][:, :, None, :], z + phi_k[j]

    for i in range(seq_len):
        end = i + causal_offset + 1 if causal else seq_len_k
        while read < min(end, seq_len_k):
            S, z = read_key(S, z, read)
            read += 1
        numerator = (phi_q[i][..., None] * S).sum(2)
        total = (phi_q[i] * z).sum(2, keepdim=True)
        if constant_denominator:
            total = total.detach()
        rows.append(divide(numerator, total, denominator, eps))
    for j in range(read, seq_len_k):
        S, z = read_key(S, z, j)
    empty = queries.new_zeros(batch, 0, value_heads, values.shape[3])
    return torch.stack(rows, 1) if rows else empty, S, z


@dataclasses.dataclass
class Problem:
    """The inputs of one call, which are leaves that record gradients."""

    tensors: dict
    options: dict
    key_mask: Optional[torch.Tensor] = None
    key_lengths: Optional[torch.Tensor] = None
    cu_seqlens: Optional[torch.Tensor] = None

    def run(self, **more):
        """tarn's result: out, S, z."""
        t = self.tensors
        state = (t["S"], t["z"]) if "S" in t else None
        out, final = tarn.ops.linear_attention(
            t["queries"],
            t["keys"],
            t["values"],
            key_mask=self.key_mask,
            key_lengths=self.key_lengths,
            cu_seqlens=self.cu_seqlens,
            initial_state=state,
            return_state=True,
            **{**self.options, **more},
        )
        return out, final.S, final.z

    def reference(self, **more):
        """The token loop's result on the same rounded inputs, and its leaves."""
        leaves = {
            name: tensor.detach().double().requires_grad_() for name, tensor in self.tensors.items()
        }
        q, k, v = leaves["queries"], leaves["keys"], leaves["values"]
        state = (leaves["S"], leaves["z"]) if "S" in leaves else None
        options = {n: v for n, v in self.options.items() if n != "chunk_size"}
        options.update(more)
        keep = self.key_mask
        if self.key_lengths is not None:
            within = torch.arange(k.shape[1]) < self.key_lengths[:, None]
            keep = within if keep is None else keep & within
        if self.cu_seqlens is None:
            return token_loop(q, k, v, state, keep=keep, **options), leaves
        bounds = self.cu_seqlens.tolist()
        results = []
        for n, (begin, end) in enumerate(zip(bounds, bounds[1:])):
            results.append(
                token_loop(
                    q[:, begin:end],
                    k[:, begin:end],
                    v[:, begin:end],
                    None if state is None else (state[0][n : n + 1], state[1][n : n + 1]),
                    keep=None if keep is None else keep[:, begin:end],
                    **options,
                )
            )
        if not results:
            out, S, z = token_loop(q, k, v)
            return (out, S[:0], z[:0]), leaves
        outs, S, z = zip(*results)
        return (torch.cat(outs, 1), torch.cat(S), torch.cat(z)), leaves


def make_problem(
    B=1,
    T=1,
    S=None,
    H=1,
    HV=None,
    K=4,
    V=4,
    dtype=torch.float32,
    state=False,
    mask=False,
    lengths=False,
    cu_seqlens=None,
    layout="dense",
    **options,
):
    """Random normal inputs. layout: "dense", "transposed" (heads before time in
    memory, as torch's attention has it) or "strided" (last axis not dense)."""
    S = T if S is None else S
    HV = H if HV is None else HV

    def random(*shape):
        if layout == "transposed":
            b, t, h, w = shape
            x = torch.randn(b, h, t, w).to(dtype).transpose(1, 2)
        elif layout == "strided":
            x = torch.randn(*shape, 2).to(dtype)[..., 0]
        else:
            x = torch.randn(shape).to(dtype)
        positive = options.get("feature_map") == "identity"
        # Signed features have no positive denominator.
        return x.abs() + 0.1 if positive and options.get("denominator") != "none" else x

    tensors = {
        "queries": random(B, T, H, K),
        "keys": random(B, S, H, K),
        "values": random(B, S, HV, V),
    }
    rows = B if cu_seqlens is None else len(cu_seqlens) - 1
    if state:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        tensors["S"] = torch.randn(rows, HV, K, V, dtype=wide)
        tensors["z"] = torch.rand(rows, HV, K, dtype=wide) + 0.5
    for tensor in tensors.values():
        tensor.requires_grad_()
    return Problem(
        tensors,
        options,
        key_mask=torch.rand(B, S) > 0.3 if mask else None,
        key_lengths=torch.randint(0, S + 1, (B,)) if lengths else None,
        cu_seqlens=None if cu_seqlens is None else torch.tensor(cu_seqlens),
    )


def rms(x, *axes):
    return x.square().mean(axes or None).sqrt()


def assert_close(given, wanted, tolerance, what, terms=None):
    """r: RMS of the error over RMS of the reference, over the tensor; m: largest
    error of a row (last axis) over the RMS of that row: a global RMS alone would
    hide a wrong row. Where `wanted` is the difference of terms that cancel, both
    are measured against `terms` if those are larger. Rows far below the tensor's
    scale count as 1e-3 of it, rows of few numbers, which may be near zero by
    chance, as 1e-1."""
    assert given.shape == wanted.shape, what
    if given.numel() == 0:
        return
    wanted = wanted.detach()
    error = given.detach().double() - wanted
    assert not error.isnan().any(), f"{what}: NaN"
    terms = wanted if terms is None else terms
    scale = max(rms(wanted).item(), rms(terms).item())
    r, m = tolerance
    assert rms(error).item() <= r * scale + 1e-30, f"{what}: r {rms(error) / scale}"
    least = (1e-3 if wanted.shape[-1] >= 8 else 1e-1) * scale
    rows = torch.maximum(rms(wanted, -1), rms(terms, -1)).clamp(min=max(least, 1e-30))
    worst = (error.abs().amax(-1) / rows).max().item()
    assert worst <= m, f"{what}: m {worst}"


def same_bits(a, b):
    """Bit equality: NaN equals NaN, 0 differs from -0."""
    integer = torch.int16 if a.element_size() == 2 else torch.int32
    return torch.equal(a.contiguous().view(integer), b.contiguous().view(integer))
