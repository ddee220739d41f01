"""Random models of flash-linear-attention's own classes: their directories as the package
writes them, the logits that the package's own reference functions give, and the gradients
of published_loss.py; where a folder holds an exported model, its logits. A program,
since the package is changed for the whole process.

The layers and models are fla's, unchanged. Their kernels need a GPU. In their place stand,
on the CPU in float64: fla's reference functions of norms, rotary positions, token shifts,
RWKV-7's mixtures and of all recurrences (fla.ops.*.naive, which compute in float32); and,
where fla has none, a line or two of torch here (REPLACED). Nothing of tarn's takes part
but the stand-in for Triton with which the package loads."""

import importlib
import importlib.util
import pathlib
import sys
import types
import warnings

VOCAB, TOKENS = 97, 200
BASE = dict(
    vocab_size=VOCAB, hidden_size=48, num_hidden_layers=3, pad_token_id=None, eos_token_id=None
)
ATTN = dict(layers=[1], num_heads=6, num_kv_heads=2, qkv_bias=True, window_size=9)
# Class of fla.models, its options.
CASES = [
    ("GatedDeltaNet", dict(head_dim=10, num_heads=2, expand_v=1.5)),
    (
        "GatedDeltaNet",
        dict(head_dim=8, num_heads=2, num_v_heads=6, allow_neg_eigval=True, conv_size=3,
             output_gate_activation="sigmoid", tie_word_embeddings=True, hidden_ratio=3,
             intermediate_size=52),
    ),
    ("GatedDeltaNet", dict(head_dim=9, num_heads=3, use_gate=False, use_short_conv=False)),
    (
        "GatedDeltaNet",
        dict(head_dim=8, num_heads=2, fuse_norm=False, fuse_swiglu=False, attn=ATTN,
             norm_eps=1e-3),
    ),
    ("DeltaNet", dict(num_heads=2)),
    ("DeltaNet", dict(num_heads=3, expand_k=0.5, expand_v=1.5, use_gate=True, conv_size=2)),
    ("DeltaNet", dict(num_heads=4, use_beta=False, use_short_conv=False)),
    ("DeltaNet", dict(num_heads=2, allow_neg_eigval=True, tie_word_embeddings=True, attn=ATTN)),
    ("GLA", dict(num_heads=4)),
    ("GLA", dict(num_heads=6, num_kv_heads=2, expand_k=1.0, expand_v=2.0, fuse_norm=False)),
    ("GLA", dict(num_heads=2, use_output_gate=False, tie_word_embeddings=True)),
    ("GLA", dict(num_heads=3, elementwise_affine=False, expand_k=0.75, attn=ATTN)),
    ("RetNet", dict(num_heads=4)),
    ("RetNet", dict(num_heads=6, num_kv_heads=3, expand_v=1.5, fuse_norm=False)),
    ("RetNet", dict(num_heads=2, use_output_gate=False, elementwise_affine=False,
                    tie_word_embeddings=True)),
    ("RetNet", dict(num_heads=4, expand_k=0.5, expand_v=1.0, hidden_ratio=None)),
    ("RWKV7", dict(head_dim=12, hidden_ratio=3)),
    (
        "RWKV7",
        dict(head_dim=24, norm_first=False, norm_bias=False, fuse_norm=False,
             decay_low_rank_dim=7, gate_low_rank_dim=9, a_low_rank_dim=5, v_low_rank_dim=3,
             tie_word_embeddings=True, intermediate_size=50),
    ),
    (
        "RWKV7",
        dict(head_dim=None, num_heads=3, decay_low_rank_dim=None, gate_low_rank_dim=None,
             a_low_rank_dim=None, v_low_rank_dim=None, norm_eps=1e-3),
    ),
    ("RWKV6", dict(num_heads=4, expand_k=1.0)),
    (
        "RWKV6",
        dict(num_heads=3, expand_k=0.5, expand_v=0.5, norm_first=False, norm_bias=False,
             proj_low_rank_dim=5, gate_low_rank_dim=7, norm_eps=1e-3, hidden_ratio=3,
             tie_word_embeddings=True, fuse_norm=False),
    ),
    ("RWKV6", dict(num_heads=2, expand_k=1.0, intermediate_size=50, attn=ATTN)),
    ("KDA", dict(head_dim=10, num_heads=2)),
    ("KDA", dict(head_dim=8, num_heads=2, num_v_heads=4, expand_v=1.5, allow_neg_eigval=True)),
    ("KDA", dict(head_dim=9, num_heads=3, use_short_conv=False, tie_word_embeddings=True)),
    ("KDA", dict(head_dim=6, num_heads=4, conv_size=2, norm_eps=1e-3, attn=ATTN)),
    ("HGRN2", dict(expand_ratio=16)),
    ("HGRN2", dict(expand_ratio=None, num_heads=4, norm_eps=1e-3, tie_word_embeddings=True)),
    ("HGRN2", dict(expand_ratio=8, use_lower_bound=False, attn=ATTN)),
    ("HGRN2", dict(expand_ratio=12, attn=dict(layers=[0], num_heads=4, rope_theta=500.0))),
    ("LinearAttention", dict(num_heads=4)),
    (
        "LinearAttention",
        dict(num_heads=6, num_kv_heads=2, feature_map="hedgehog", expand_v=1.5,
             norm_feature_map=True, tie_word_embeddings=True),
    ),
    (
        "LinearAttention",
        dict(num_heads=3, feature_map="t2r", norm_q=True, norm_k=True, elementwise_affine=False,
             attn=ATTN),
    ),
    (
        "LinearAttention",
        dict(num_heads=2, feature_map="dpfp", expand_k=0.5, norm_eps=1e-3, fuse_norm=False),
    ),
    (
        "LinearAttention",
        dict(num_heads=4, feature_map="elu", norm_feature_map=True, norm_k=True, hidden_ratio=3),
    ),
    ("LinearAttention", dict(num_heads=2, feature_map="identity")),
    ("LinearAttention", dict(num_heads=2, feature_map="relu", norm_q=True)),
]  # fmt: skip
NAMES = [f"{kind}-{index}" for index, (kind, _) in enumerate(CASES)]


def load():
    """The package, with its kernels replaced."""
    import torch
    import torch.nn.functional as F
    import torch.utils._triton
    import transformers  # noqa: F401

    torch.utils._triton.has_triton_package()  # before the stand-in is there
    torch.compile(lambda x: x)
    path = pathlib.Path(__file__).parents[3] / "python/tarn/_fla_package/stand_in.py"
    spec = importlib.util.spec_from_file_location("stand_in", path)
    stand_in = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_in)
    with stand_in.triton_if_absent():
        importlib.import_module("fla.models")

    def fla(path):
        return importlib.import_module(f"fla.{path}")

    norms = fla("modules.norm.layernorm")

    def turn(x):
        return x.transpose(1, 2)

    def unit(x, eps=1e-6):
        return x / (x.square().sum(-1, keepdim=True) + eps).sqrt()

    def activated(x, name):
        return x * x.sigmoid() if name in ("swish", "silu") else x.sigmoid()

    def norm(reference):
        def form(x, weight, bias, residual=None, eps=1e-5, prenorm=False, **rest):
            kept = {name: rest[name] for name in ("num_groups", "is_rms_norm") if name in rest}
            if weight is None:
                weight = torch.ones(x.shape[-1], dtype=x.dtype)
            return reference(x, weight, bias, residual=residual, eps=eps, prenorm=prenorm, **kept)

        return form

    def gated_norm(x, g, weight, bias, activation="swish", eps=1e-5, **rest):
        weight = 1 if weight is None else weight
        rows = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight
        return rows * (g.sigmoid() if activation == "sigmoid" else activated(g, "silu"))

    def convolved(x, weight=None, bias=None, activation=None, **rest):
        width = weight.shape[-1]
        rows = F.conv1d(
            F.pad(turn(x), (width - 1, 0)), weight.view(-1, 1, width), bias, groups=len(weight)
        )
        return turn(rows if activation is None else activated(rows, activation)), None

    def shift(x, cu_seqlens=None, cache=None, output_cache=False):
        delta = fla("modules.token_shift").token_shift_ref(x)
        return (delta, None) if output_cache else delta

    def rotated(x, cos, sin, interleaved=False, **rest):
        cos, sin = cos[: x.shape[1]], sin[: x.shape[1]]
        return fla("modules.rotary.ops").rotary_embedding_ref(x, cos, sin, interleaved)

    def softmax(q, k, v, causal, window_size):
        group = q.shape[2] // k.shape[2]
        q, k, v = (turn(x) for x in (q, k, v))
        scores = q @ k.repeat_interleave(group, 1).mT * q.shape[-1] ** -0.5
        back = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])
        seen = (back >= 0) & ((back <= window_size[0]) | (window_size[0] < 0))
        scores = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return turn(scores @ v.repeat_interleave(group, 1))

    def gla(q, k, v, g, **rest):
        return fla("ops.gla.naive").naive_recurrent_gla(q, k, v, g)

    def retention(q, k, v, **rest):
        return turn(fla("ops.retention.naive").naive_retention(turn(q), turn(k), turn(v))), None

    def delta(q, k, v, beta, use_qk_l2norm_in_kernel=False, **rest):
        assert use_qk_l2norm_in_kernel
        rows = (turn(x) for x in (unit(q), unit(k), v, beta))
        out, state = fla("ops.delta_rule.naive").delta_rule_recurrence(*rows)
        return turn(out), state

    def betas(beta, allow_neg_eigval):
        return beta.sigmoid() * (2 if allow_neg_eigval else 1)

    def gated_delta(q, k, v, g, beta, A_log, dt_bias, allow_neg_eigval=False, **rest):
        group = v.shape[2] // q.shape[2]
        q, k = (unit(x).repeat_interleave(group, 2) for x in (q, k))
        gates = fla("ops.gated_delta_rule.gate").naive_gdn_gate(g, A_log, dt_bias)
        out, state = fla("ops.gated_delta_rule.naive").naive_recurrent_gated_delta_rule(
            q, k, v, betas(beta, allow_neg_eigval), gates
        )
        return out.to(v.dtype), state

    def kda(q, k, v, g, beta, A_log, dt_bias, allow_neg_eigval=False, **rest):
        assert rest["lower_bound"] is None and not rest["safe_gate"]
        gates = fla("ops.kda.gate").naive_kda_gate(g, A_log, dt_bias)
        return fla("ops.kda.naive").naive_recurrent_kda(
            unit(q), unit(k), v, gates, betas(beta, allow_neg_eigval)
        )

    def rwkv7(r, w, k, v, a, b, scale, **rest):
        rows = [turn(x).float() for x in (r * scale * r.shape[-1] ** 0.5, k, v, a, b, w)]
        out, state = fla("ops.generalized_delta_rule.dplr.naive").dplr_recurrence(*rows)
        return turn(out).to(v.dtype), state

    def linear(q, k, v, normalize=True, **rest):
        naive = fla("ops.linear_attn.naive").naive_recurrent_linear_attn
        return naive(q, k, v, normalize=normalize)

    def rwkv6(r, k, v, w, u, scale, **rest):
        rows = (turn(x) for x in (r, k, v, w))
        out, state = fla("ops.rwkv6.recurrent_naive").naive_recurrent_rwkv6(*rows, u, scale)
        return turn(out), state

    replaced = {
        "modules.norm.layernorm": dict(
            layer_norm=norm(norms.layer_norm_ref),
            group_norm=norm(norms.group_norm_ref),
            rms_norm=norm(norms.rms_norm_ref),
            rms_norm_linear=lambda x, w, b, w2, b2, eps=1e-5, **rest: F.linear(
                norm(norms.rms_norm_ref)(x, w, b, eps=eps), w2, b2
            ),
        ),
        "modules.norm.fused_norm_gate": dict(rms_norm_gated=gated_norm),
        "modules.norm.l2norm": dict(l2norm=unit),
        "modules.causal_conv1d.ops": dict(causal_conv1d=convolved),
        "modules.rotary.ops": dict(rotary_embedding=rotated),
        "modules.token_shift": dict(token_shift=shift),
        "modules.activations.ops": dict(
            swish=lambda x: activated(x, "swish"),
            sigmoid=torch.sigmoid,
            sqrelu=lambda x: x.relu().square(),
            swiglu=lambda x, y: activated(x, "swish") * y,
            swiglu_linear=lambda x, y, w, b: F.linear(activated(x, "swish") * y, w, b),
        ),
        "ops.rwkv7.fused_addcmul": dict(
            fused_addcmul_rwkv7=fla("ops.rwkv7.fused_addcmul").torch_addcmul_rwkv7
        ),
        "ops.rwkv7.fused_k_update": dict(
            fused_k_rwkv7=fla("ops.rwkv7.fused_k_update").k_update_ref
        ),
        "ops.rwkv7.gate_output_correction": dict(
            gate_output_correction=fla(
                "ops.rwkv7.gate_output_correction"
            ).gate_output_correction_ref
        ),
        "ops.gla": dict(chunk_gla=gla),
        "ops.retention": dict(chunk_retention=retention),
        "ops.delta_rule": dict(chunk_delta_rule=delta),
        "ops.gated_delta_rule": dict(chunk_gated_delta_rule=gated_delta),
        "ops.kda": dict(chunk_kda=kda),
        "ops.rwkv7": dict(chunk_rwkv7=rwkv7),
        "ops.rwkv6": dict(chunk_rwkv6=rwkv6),
        "ops.linear_attn": dict(chunk_linear_attn=linear),
    }
    new = {
        id(getattr(fla(path), name)): form
        for path, forms in replaced.items()
        for name, form in forms.items()
    }
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fla" and isinstance(module, types.ModuleType):
            for attribute, value in list(vars(module).items()):
                if id(value) in new:
                    setattr(module, attribute, new[id(value)])
    table = fla("modules.activations").ACT2FN
    for name, value in list(table.items()):
        table[name] = new.get(id(value), value)
    fla("layers.attn").flash_attn_func = softmax
    return fla("models")


def random_model(models, kind, options):
    import torch

    torch.manual_seed(0)
    config = getattr(models, f"{kind}Config")(**BASE | options)
    model = getattr(models, f"{kind}ForCausalLM")(config).float().eval()
    with torch.no_grad():  # away from gates of one value and projections of zeros
        for weight in model.parameters():
            size = 0.1 if weight.dim() < 2 else 0.7 * weight.shape[-1] ** -0.5
            weight.add_(size * torch.randn_like(weight))
    return model


def main(folder, names):
    import numpy as np
    import torch

    sys.path.append(str(pathlib.Path(__file__).parents[1]))
    from published_loss import loss_of, save_gradients

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    models = load()
    tokens = np.random.default_rng(1).integers(0, VOCAB, TOKENS)
    np.save(folder / "tokens.npy", tokens)

    def logits_of(model):
        out = model.double()(torch.tensor(tokens)[None], use_cache=False, logits_to_keep=None)
        return out.logits

    for name, (kind, options) in zip(NAMES, CASES, strict=True):
        if names and name not in names:
            continue
        path = folder / name
        if (path / "back").exists():
            model = getattr(models, f"{kind}ForCausalLM").from_pretrained(path / "back")
            logits = logits_of(model.eval())
            np.save(path / "back" / "logits.npy", logits[0].detach().numpy())
            continue
        model = random_model(models, kind, options)
        model.save_pretrained(path / "theirs")
        logits = logits_of(model)
        np.save(path / "logits.npy", logits[0].detach().numpy())
        loss_of(logits).backward()
        save_gradients(model.float(), path / "gradients")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
