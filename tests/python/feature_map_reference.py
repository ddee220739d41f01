"""Feature maps and linear attention with them by definition, in float64 and
without any code of tarn."""

import math

import torch

NAMED = (
    "elu1",
    "identity",
    "relu",
    "relu2",
    "softplus",
    "poly2",
    "favor",
    "favor-positive",
    "rff",
    "smoothed-rff",
    "grf",
)
RANDOM = NAMED[5:]
SIGNED = ("identity", "poly2", "rff", "smoothed-rff")


def tempered(x, softmax_temp):
    if softmax_temp is None:
        softmax_temp = 1 / math.sqrt(x.shape[-1])
    return math.sqrt(softmax_temp) * x


def poly2(x, softmax_temp=None, coefficients=(1, 2, 1)):
    x, (a0, a1, a2) = tempered(x, softmax_temp), coefficients
    entries = x.unbind(-1)
    columns = []
    if a0:
        columns.append(torch.full_like(entries[0], math.sqrt(a0)))
    if a1:
        columns += [math.sqrt(a1) * e for e in entries]
    if a2:
        columns += [math.sqrt(a2) * e * e for e in entries]
        columns += [
            math.sqrt(2 * a2) * entries[i] * entries[j]
            for i in range(len(entries))
            for j in range(i + 1, len(entries))
        ]
    return torch.stack(columns, -1)


def project(x, omega):
    return torch.stack([(x * w).sum(-1) for w in omega.double().unbind(1)], -1)


def favor(x, omega, softmax_temp=None, positive=False):
    x = tempered(x, softmax_temp)
    u = project(x, omega)
    parts = torch.exp(u) if positive else torch.cat([torch.exp(u), torch.exp(-u)], -1)
    norm = (x * x).sum(-1, keepdim=True)
    return torch.exp(-norm / 2) * parts / math.sqrt(parts.shape[-1])


def rff(x, omega, softmax_temp=None, smoothing=None):
    u = project(tempered(x, softmax_temp), omega)
    features = torch.cat([torch.cos(u), torch.sin(u)], -1) / math.sqrt(u.shape[-1])
    if smoothing is None:
        return features
    return torch.cat([features, torch.full_like(features[..., :1], smoothing)], -1)


def features(name, x, omega=None):
    """phi(x) under the defaults of the operators."""
    if name == "elu1":
        return torch.where(x > 0, x + 1, x.clamp(max=0).exp())
    if name == "identity":
        return x
    if name in ("relu", "relu2"):
        positive = x.where(x > 0, 0)
        return positive if name == "relu" else positive**2
    if name == "softplus":
        return (1 + x.exp()).log()
    if name == "poly2":
        return poly2(x)
    if name in ("favor", "favor-positive"):
        return favor(x, omega, positive=name == "favor-positive")
    if name in ("rff", "smoothed-rff"):
        return rff(x, omega, smoothing=1 if name == "smoothed-rff" else None)
    return project(x, omega).clamp(min=0)


def allowed_pairs(T, S, causal=True, causal_offset=0, keep=None, cu_seqlens=None):
    """[B or 1, T, S] bool."""
    i, j = torch.arange(T)[:, None], torch.arange(S)[None]
    pairs = (j <= i + causal_offset) if causal else torch.ones(T, S, dtype=torch.bool)
    if cu_seqlens is not None:
        sequence = torch.searchsorted(cu_seqlens, torch.arange(S), right=True)
        pairs = pairs & (sequence[:, None] == sequence[None])
    pairs = pairs[None]
    return pairs if keep is None else pairs & keep[:, None]


def attend(phi_q, phi_k, values, pairs, denominator="exact", eps=1e-6, scale=1.0, state=None):
    """Output, and S and z over all kept keys, by definition; phi_q [B, T, H, C],
    phi_k [B, S, H, C], values [B, S, HV, V], pairs [B or 1, T, S]. `state`: (S, z, n)
    with n the sum of key norms [B, H]."""
    group = values.shape[2] // phi_q.shape[2]
    norms_k = phi_k.square().sum(-1).sqrt()  # [B, S, H]
    bound = torch.einsum("bts,bsh->bth", pairs.to(norms_k), norms_k)
    if state is not None and state[2] is not None:
        bound = bound + state[2][:, None]
    bound = phi_q.square().sum(-1).sqrt() * bound * scale
    phi_q, phi_k = (x.repeat_interleave(group, 2) for x in (phi_q, phi_k))
    bound = bound.repeat_interleave(group, 2)[..., None]
    weights = scale * torch.einsum("bthc,bshc->bhts", phi_q, phi_k) * pairs[:, None]
    num = torch.einsum("bhts,bshv->bthv", weights, values)
    den = weights.sum(-1).transpose(1, 2)[..., None]
    if state is not None:
        num = num + scale * torch.einsum("bthc,bhcv->bthv", phi_q, state[0])
        den = den + scale * torch.einsum("bthc,bhc->bth", phi_q, state[1])[..., None]
    if denominator == "none":
        return num
    if denominator == "compat":
        return num / (den + eps)
    if denominator == "signed":
        least = 1e-6 * bound.detach()
        sign = torch.where(den.detach() < 0, -1.0, 1.0)
        den = torch.where(den.detach().abs() < least, sign * least, den)
        return torch.where(den == 0, 0, num / den.where(den != 0, 1))
    return torch.where(den > 0, num / den.where(den > 0, 1), 0)


def stabilised(queries, keys, values, omega, pairs, positive=False):
    """Favor attention through the logarithms of its weights, which cannot
    underflow: log w_ij = logsumexp_c (a_ic + e_jc)."""
    group = values.shape[2] // queries.shape[2]
    q, k = tempered(queries, None), tempered(keys, None)
    u_q, u_k = project(q, omega), project(k, omega)
    if not positive:
        u_q, u_k = torch.cat([u_q, -u_q], -1), torch.cat([u_k, -u_k], -1)
    e = u_k - (k * k).sum(-1, keepdim=True) / 2
    logits = torch.logsumexp(u_q[:, :, None] + e[:, None], -1)  # [B, T, S, H]
    logits = logits.masked_fill(~pairs[..., None], -math.inf)
    weights = torch.softmax(logits, 2).nan_to_num(0)  # empty rows: 0
    weights = weights.repeat_interleave(group, 3)
    return torch.einsum("btsh,bshv->bthv", weights, values)
