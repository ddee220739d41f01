"""Tiny models of flash-linear-attention's own classes on the CPU, after
tarn.install_as_fla(): what they compute in several ways. A program, since the package
stays changed for the whole process."""

import sys
import warnings

import torch

import tarn

VOCABULARY = 97
TOKENS = 100
SIZES = dict(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=3)


def build(name, **options):
    """K and V differ where the class lets them; RWKV-7 counts heads by their width."""
    from fla import models

    kinds = {
        "retnet": (models.RetNetConfig, models.RetNetForCausalLM, dict(num_heads=2)),
        "gla": (models.GLAConfig, models.GLAForCausalLM, dict(num_heads=2)),
        "hgrn2": (models.HGRN2Config, models.HGRN2ForCausalLM, dict(expand_ratio=16)),
        "hgrn": (models.HGRNConfig, models.HGRNForCausalLM, dict()),
        "delta_net": (models.DeltaNetConfig, models.DeltaNetForCausalLM, dict(num_heads=2)),
        "gated_deltanet": (
            models.GatedDeltaNetConfig,
            models.GatedDeltaNetForCausalLM,
            dict(num_heads=2, head_dim=24),
        ),
        "comba": (models.CombaConfig, models.CombaForCausalLM, dict(num_heads=2, head_dim=24)),
        "gated_deltaproduct": (
            models.GatedDeltaProductConfig,
            models.GatedDeltaProductForCausalLM,
            dict(num_heads=2, head_dim=24),
        ),
        "gsa": (models.GSAConfig, models.GSAForCausalLM, dict(num_heads=2, num_slots=16)),
        "lightnet": (models.LightNetConfig, models.LightNetForCausalLM, dict(expand_ratio=16)),
        "forgetting": (
            models.ForgettingTransformerConfig,
            models.ForgettingTransformerForCausalLM,
            dict(num_heads=4, num_kv_heads=2, qk_norm=True, use_output_gate=True),
        ),
        "kda": (models.KDAConfig, models.KDAForCausalLM, dict(num_heads=2, head_dim=16)),
        "rwkv6": (models.RWKV6Config, models.RWKV6ForCausalLM, dict(num_heads=2)),
        "rwkv7": (models.RWKV7Config, models.RWKV7ForCausalLM, dict(head_dim=32)),
        "mamba2": (
            models.Mamba2Config,
            models.Mamba2ForCausalLM,
            dict(num_heads=8, head_dim=16, state_size=24, n_groups=2, chunk_size=32),
        ),
        "linear_attn": (
            models.LinearAttentionConfig,
            models.LinearAttentionForCausalLM,
            dict(num_heads=2),
        ),
    }
    config, model, own = kinds[name]
    torch.manual_seed(5)
    built = model(config(**SIZES, **own | options)).float()
    with torch.no_grad():  # away from gates of one value and projections of zeros
        for weight in built.parameters():
            size = 0.1 if weight.dim() < 2 else 0.7 * weight.shape[-1] ** -0.5
            weight.add_(size * torch.randn_like(weight))
    return built


def trained(model, tokens):
    model.train()
    model.zero_grad()
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    return loss.detach(), {name: weight.grad for name, weight in model.named_parameters()}


def loops():
    """Has tarn.fla's recurrences computed token by token in float64 from here on. Returns the
    names of the functions that called."""
    from fla_reference import reference

    from tarn.fla import _call

    called = set()

    def recurrence(
        op,
        q,
        k,
        v,
        *,
        gates=None,
        value_gates=None,
        betas=None,
        bonus=None,
        pair=None,
        scale=None,
        output_final_state=False,
        reverse=False,
        **rest,
    ):
        assert rest.get("initial_state") is None and rest.get("cu_seqlens") is None
        called.add(op)
        given = dict(value=value_gates, beta=betas, bonus=bonus)
        if gates is not None:
            given[{1: "head", 3: "token", 4: "key"}[gates.dim()]] = gates
        given = {name: None if one is None else one.double() for name, one in given.items()}
        pair = None if pair is None else tuple(one.double() for one in pair)
        out, state = reference(
            q.double(), k.double(), v.double(), pair=pair, scale=scale, reverse=reverse, **given
        )
        state = state.mT if rest.get("state_v_first") else state
        return out.to(v.dtype), state.float() if output_final_state else None

    def decay(q, k, v, *, gates, scale, initial_state, return_state):
        assert initial_state is None and return_state  # as Mamba-2's scan calls
        called.add("decay_attention")
        k, q = (one.repeat_interleave(v.shape[2] // k.shape[2], 2).double() for one in (k, q))
        out, state = reference(q, k, v.double(), token=gates.double(), scale=scale)
        return out.to(v.dtype), state.float()

    def elementwise(x, g, *, initial_state, cu_seqlens, return_state):
        assert initial_state is None and cu_seqlens is None and return_state
        called.add("elementwise_recurrence")
        h, rows = torch.zeros_like(x[:, 0]).double(), []
        for t in range(x.shape[1]):
            h = g[:, t].double().exp() * h + x[:, t].double()
            rows.append(h)
        return torch.stack(rows, 1).to(x.dtype), h.float()

    _call.recurrence = recurrence
    tarn.ops.decay_attention, tarn.ops.elementwise_recurrence = decay, elementwise
    return called


@torch.no_grad()
def ran(model, tokens):
    model.eval()
    start = model(tokens[:, :70], use_cache=True, logits_to_keep=None)
    steps, cache = [start.logits], start.past_key_values
    softmax = model.config.model_type == "forgetting_transformer"  # whose steps want a mask
    for t in range(70, TOKENS):
        mask = torch.ones_like(tokens[:, : t + 1]) if softmax else None
        step = model(
            tokens[:, t : t + 1], past_key_values=cache, use_cache=True, attention_mask=mask
        )
        steps.append(step.logits[:, -1:])
        cache = step.past_key_values
    mask = torch.ones_like(tokens)
    mask[1, :40] = 0
    return {
        "logits": model(tokens, logits_to_keep=None).logits,
        "steps": torch.cat(steps, 1),
        "short": model(tokens[1:, 40:], logits_to_keep=None).logits,
        "padded": model(tokens, attention_mask=mask, logits_to_keep=None).logits[1:, 40:],
        "packed": model(
            tokens.view(1, -1),
            logits_to_keep=None,
            use_cache=False,
            cu_seqlens=torch.tensor([0, 100, 140, 200]),
        ).logits[:, 140:],
    }


def main(path, names):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # for models as small as these a second one only waits
    tarn.install_as_fla()
    told = {}
    for name in names:
        model = build(name)
        tokens = torch.randint(VOCABULARY, (2, TOKENS))
        told[name] = ran(model, tokens)
        told[name]["kernels"] = trained(model, tokens)
        told[name]["later"] = model, tokens
        logits = model(tokens, logits_to_keep=None).logits
        told[name]["loss"] = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        ).detach()
    called = loops()
    for found in told.values():
        called.clear()
        with tarn.ops.composed_forms():
            found["loops"] = trained(*found.pop("later"))
        found["called"] = sorted(called)
    torch.save(told, path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
