"""The recurrences of flash-linear-attention's functions, token by token in float64, and
what the arguments of each function mean in them. Nothing here is tarn's."""

import torch
from torch.nn.functional import logsigmoid

HEADS, K, V = 2, 5, 3


def reference(
    q,
    k,
    v,
    *,
    head=None,
    token=None,
    key=None,
    value=None,
    beta=None,
    at=None,
    bonus=None,
    pair=None,
    state=None,
    scale=None,
    reverse=False,
):
    """(o [B, T, HV, V], state [B, HV, K, V]) of whole rows. Gates are logarithms: of heads
    [HV], tokens [B, T, HV], channels of keys [B, T, HV, K] and of values [B, T, HV, V].
    at: where beta's rule looks the value up, if not at the key."""
    batch, tokens, heads, width = v.shape
    group = heads // q.shape[2]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    S = v.new_zeros(batch, heads, q.shape[-1], width) if state is None else state
    rows = [None] * tokens
    for t in reversed(range(tokens)) if reverse else range(tokens):
        decay = torch.ones_like(S)
        if head is not None:
            decay = decay * head.exp().view(1, -1, 1, 1)
        if token is not None:
            decay = decay * token[:, t].exp()[..., None, None]
        if key is not None:
            decay = decay * key[:, t].exp().unsqueeze(-1)
        if value is not None:
            decay = decay * value[:, t].exp().unsqueeze(-2)
        q_t = scale * q[:, t].repeat_interleave(group, 1)
        k_t = k[:, t].repeat_interleave(group, 1)
        seen = S
        S = S * decay
        if pair is not None:
            found = torch.einsum("bhkv,bhk->bhv", seen, pair[0][:, t])
            S = S + torch.einsum("bhk,bhv->bhkv", pair[1][:, t], found)
        written = v[:, t]
        if beta is not None:
            rate = beta[:, t] if beta.dim() == 4 else beta[:, t].unsqueeze(-1)
            at_t = k_t if at is None else at[:, t].repeat_interleave(group, 1)
            written = rate * (written - torch.einsum("bhkv,bhk->bhv", S, at_t))
        product = torch.einsum("bhk,bhv->bhkv", k_t, written)
        S = S + product
        seen = S if bonus is None else seen + bonus.unsqueeze(-1) * product
        rows[t] = torch.einsum("bhkv,bhk->bhv", seen, q_t)
    return (torch.stack(rows, 1) if tokens else torch.zeros_like(v)), S


def unit(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def draw(names, tokens, batch=2, heads=HEADS, value_heads=HEADS, seed=0):
    """Arguments by name, float64; the sizes are those of each name."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    row = (batch, tokens)
    make = {
        "q": lambda: normal(*row, heads, K),
        "r": lambda: normal(*row, heads, K),
        "k": lambda: normal(*row, heads, K),
        "p": lambda: 0.7 * unit(normal(*row, heads, K)),
        "v": lambda: normal(*row, value_heads, V),
        "g": lambda: logsigmoid(normal(*row, value_heads)),
        "g raw": lambda: normal(*row, value_heads),
        "g channel": lambda: logsigmoid(normal(*row, value_heads, K)),
        "g channel raw": lambda: normal(*row, value_heads, K),
        "g_gamma": lambda: -normal(value_heads).abs(),
        "gk": lambda: logsigmoid(normal(*row, value_heads, K)),
        "gv": lambda: logsigmoid(normal(*row, value_heads, V)),
        "w": lambda: -normal(*row, heads, K).exp(),
        "a": lambda: -unit(normal(*row, heads, K)),
        "b": lambda: unit(normal(*row, heads, K)) * normal(*row, heads, K).sigmoid(),
        "kk": lambda: unit(normal(*row, heads, K)),
        "a share": lambda: normal(*row, heads, K).sigmoid(),
        "u": lambda: normal(heads, K),
        "beta": lambda: normal(*row, value_heads).sigmoid(),
        "beta raw": lambda: normal(*row, value_heads),
        "beta channel": lambda: normal(*row, value_heads, V).sigmoid(),
        "A_log": lambda: normal(value_heads),
        "dt_bias": lambda: normal(value_heads),
        "dt_bias channel": lambda: normal(value_heads * K),
    }
    found = {}
    for name in names.split(", "):
        found[name.split(" ")[0]] = make[name]()
    if "beta" in found and "q" in found:  # keys of length 1, as the delta rule wants them
        found["k"] = unit(found["k"])
    return found


def softplus_gate(g, A_log, dt_bias):
    rate = A_log.exp() if g.dim() == 3 else A_log.exp().unsqueeze(-1)
    return -rate * torch.log1p((g + dt_bias.view(g.shape[2:])).exp())


def bounded_gate(g, A_log, dt_bias, bound):
    return bound * torch.sigmoid(A_log.exp().unsqueeze(-1) * (g + dt_bias.view(g.shape[2:])))


_RETENTION = torch.log(1 - 2.0 ** (-5 - torch.arange(HEADS, dtype=torch.float64)))
_LIGHTNING = -(8 / HEADS) * (1 - 1 / 4) * torch.arange(HEADS, dtype=torch.float64)
_RAW = dict(use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True)

# name -> (function, its tensors, its other arguments, value heads, tensors by what they mean)
CASES = {
    "chunk simple": (
        "chunk_simple_gla",
        "q, k, v, g, g_gamma",
        {},
        2,
        lambda x: dict(token=x["g"], head=x["g_gamma"]),
    ),
    "chunk simple constant": (
        "chunk_simple_gla",
        "q, k, v, g_gamma",
        {},
        2,
        lambda x: dict(head=x["g_gamma"]),
    ),
    "chunk simple without": ("chunk_simple_gla", "q, k, v", {}, 2, lambda x: {}),
    "fused chunk simple": (
        "fused_chunk_simple_gla",
        "q, k, v, g",
        {},
        2,
        lambda x: dict(token=x["g"]),
    ),
    "recurrent simple": (
        "fused_recurrent_simple_gla",
        "q, k, v, g, g_gamma",
        {},
        2,
        lambda x: dict(token=x["g"], head=x["g_gamma"]),
    ),
    "chunk retention": ("chunk_retention", "q, k, v", {}, 2, lambda x: dict(head=_RETENTION)),
    "fused chunk retention": (
        "fused_chunk_retention",
        "q, k, v",
        {},
        2,
        lambda x: dict(head=_RETENTION),
    ),
    "recurrent retention": (
        "fused_recurrent_retention",
        "q, k, v",
        {},
        2,
        lambda x: dict(head=_RETENTION),
    ),
    "chunk lightning": (
        "chunk_lightning_attn",
        "q, k, v",
        dict(layer_idx=1, num_layers=4),
        2,
        lambda x: dict(head=_LIGHTNING),
    ),
    "recurrent lightning": (
        "fused_recurrent_lightning_attn",
        "q, k, v",
        dict(layer_idx=1, num_layers=4),
        2,
        lambda x: dict(head=_LIGHTNING),
    ),
    "chunk linear": ("chunk_linear_attn", "q, k, v", dict(normalize=False), 2, lambda x: {}),
    "fused chunk linear": (
        "fused_chunk_linear_attn",
        "q, k, v",
        dict(normalize=False),
        2,
        lambda x: {},
    ),
    "recurrent linear": ("fused_recurrent_linear_attn", "q, k, v", {}, 2, lambda x: {}),
    "chunk gla": ("chunk_gla", "q, k, v, g channel", {}, 2, lambda x: dict(key=x["g"])),
    "fused chunk gla": ("fused_chunk_gla", "q, k, v, g channel", {}, 2, lambda x: dict(key=x["g"])),
    "recurrent gla": ("fused_recurrent_gla", "q, k, v, gk", {}, 2, lambda x: dict(key=x["gk"])),
    "recurrent gla both": (
        "fused_recurrent_gla",
        "q, k, v, gk, gv",
        {},
        2,
        lambda x: dict(key=x["gk"], value=x["gv"]),
    ),
    "recurrent gla values": (
        "fused_recurrent_gla",
        "q, k, v, gv",
        {},
        2,
        lambda x: dict(value=x["gv"]),
    ),
    "chunk delta": ("chunk_delta_rule", "q, k, v, beta", {}, 2, lambda x: dict(beta=x["beta"])),
    "fused chunk delta": (
        "fused_chunk_delta_rule",
        "q, k, v, beta",
        dict(use_qk_l2norm_in_kernel=True),
        2,
        lambda x: dict(beta=x["beta"]),
    ),
    "recurrent delta": (
        "fused_recurrent_delta_rule",
        "q, k, v, beta",
        {},
        2,
        lambda x: dict(beta=x["beta"]),
    ),
    "recurrent delta channels": (
        "fused_recurrent_delta_rule",
        "q, k, v, beta channel",
        {},
        2,
        lambda x: dict(beta=x["beta"]),
    ),
    "chunk gated delta": (
        "chunk_gated_delta_rule",
        "q, k, v, g, beta",
        {},
        4,
        lambda x: dict(token=x["g"], beta=x["beta"]),
    ),
    "chunk gated delta raw": (
        "chunk_gdn",
        "q, k, v, g raw, beta raw, A_log, dt_bias",
        _RAW,
        4,
        lambda x: dict(
            token=softplus_gate(x["g"], x["A_log"], x["dt_bias"]), beta=x["beta"].sigmoid()
        ),
    ),
    "recurrent gated delta": (
        "fused_recurrent_gated_delta_rule",
        "q, k, v, g, beta",
        {},
        4,
        lambda x: dict(token=x["g"], beta=x["beta"]),
    ),
    "recurrent gated delta all": (
        "fused_recurrent_gdn",
        "q, k, v, g, gk, gv, beta channel",
        {},
        4,
        lambda x: dict(token=x["g"], key=x["gk"], value=x["gv"], beta=x["beta"]),
    ),
    "recurrent gated delta raw": (
        "fused_recurrent_gdn",
        "q, k, v, g raw, beta raw, A_log, dt_bias",
        dict(_RAW, allow_neg_eigval=True),
        4,
        lambda x: dict(
            token=softplus_gate(x["g"], x["A_log"], x["dt_bias"]), beta=2 * x["beta"].sigmoid()
        ),
    ),
    "chunk comba": (
        "chunk_comba",
        "q, k, v, p, g, beta",
        {},
        4,
        lambda x: dict(token=x["g"], beta=x["beta"], at=x["p"]),
    ),
    "chunk comba lengths": (
        "chunk_comba",
        "q, k, v, p, g, beta",
        dict(use_qk_l2norm_in_kernel=True),
        2,
        lambda x: dict(token=x["g"], beta=x["beta"], at=unit(x["p"])),
    ),
    "chunk comba keys": (
        "chunk_comba",
        "q, k, v, g, beta",
        dict(p=None),
        2,
        lambda x: dict(token=x["g"], beta=x["beta"]),
    ),
    "recurrent comba": (
        "fused_recurrent_comba",
        "q, k, p, v, g",
        {},
        4,
        lambda x: dict(token=x["g"], beta=torch.ones_like(x["g"]), at=x["p"]),
    ),
    "recurrent comba channels": (
        "fused_recurrent_comba",
        "q, k, p, v, g, beta channel",
        {},
        4,
        lambda x: dict(token=x["g"], beta=x["beta"], at=x["p"]),
    ),
    "chunk kda": (
        "chunk_kda",
        "q, k, v, g channel, beta",
        {},
        4,
        lambda x: dict(key=x["g"], beta=x["beta"]),
    ),
    "chunk kda raw": (
        "chunk_kda",
        "q, k, v, g channel raw, beta raw, A_log, dt_bias channel",
        dict(_RAW, allow_neg_eigval=True),
        4,
        lambda x: dict(
            key=softplus_gate(x["g"], x["A_log"], x["dt_bias"]), beta=2 * x["beta"].sigmoid()
        ),
    ),
    "recurrent kda": (
        "fused_recurrent_kda",
        "q, k, v, g channel, beta",
        {},
        4,
        lambda x: dict(key=x["g"], beta=x["beta"]),
    ),
    "recurrent kda bounded": (
        "fused_recurrent_kda",
        "q, k, v, g channel raw, beta raw, A_log, dt_bias channel",
        dict(_RAW, lower_bound=-5.0),
        4,
        lambda x: dict(
            key=bounded_gate(x["g"], x["A_log"], x["dt_bias"], -5.0), beta=x["beta"].sigmoid()
        ),
    ),
    "chunk rwkv6": (
        "chunk_rwkv6",
        "r, k, v, w, u",
        {},
        2,
        lambda x: dict(key=x["w"], bonus=x["u"]),
    ),
    "recurrent rwkv6": (
        "fused_recurrent_rwkv6",
        "r, k, v, w, u",
        {},
        2,
        lambda x: dict(key=x["w"], bonus=x["u"]),
    ),
    "chunk dplr": (
        "chunk_dplr_delta_rule",
        "q, k, v, a, b, gk",
        {},
        2,
        lambda x: dict(key=x["gk"], pair=(x["a"], x["b"])),
    ),
    "recurrent dplr": (
        "fused_recurrent_dplr_delta_rule",
        "q, k, v, a, b, gk",
        {},
        2,
        lambda x: dict(key=x["gk"], pair=(x["a"], x["b"])),
    ),
    "chunk iplr": (
        "chunk_iplr_delta_rule",
        "q, k, v, a, b",
        {},
        2,
        lambda x: dict(pair=(x["a"], x["b"])),
    ),
    "recurrent iplr": (
        "fused_recurrent_iplr_delta_rule",
        "q, k, v, a, b",
        {},
        2,
        lambda x: dict(pair=(x["a"], x["b"])),
    ),
    "chunk rwkv7": (
        "chunk_rwkv7",
        "r, w, k, v, a, b",
        dict(scale=None),
        2,
        lambda x: dict(key=x["w"], pair=(x["a"], x["b"])),
    ),
    "recurrent rwkv7": (
        "fused_recurrent_rwkv7",
        "r, w, k, v, a, b",
        {},
        2,
        lambda x: dict(key=x["w"], pair=(x["a"], x["b"])),
    ),
    "recurrent rwkv7 shares": (
        "fused_mul_recurrent_rwkv7",
        "r, w, k, v, kk, a share",
        dict(scale=None),
        2,
        lambda x: dict(key=x["w"], pair=(-x["kk"], x["kk"] * x["a"])),
    ),
}


def wanted(name, x, **options):
    """The reference's (o, state) of a case's tensors in float64."""
    _, _, fixed, _, meaning = CASES[name]
    q, k = x.get("q", x.get("r")), x["k"]
    if fixed.get("use_qk_l2norm_in_kernel"):
        q, k = unit(q), unit(k)
    return reference(q, k, x["v"], **meaning(x), **options)
