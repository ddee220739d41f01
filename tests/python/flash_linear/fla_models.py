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
        "gated_deltanet": (models.GatedDeltaNetConfig, models.GatedDeltaNetForCausalLM,
                           dict(num_heads=2, head_dim=24)),
        "comba": (models.CombaConfig, models.CombaForCausalLM, dict(num_heads=2, head_dim=24)),
        "gated_deltaproduct": (models.GatedDeltaProductConfig, models.GatedDeltaProductForCausalLM,
                               dict(num_heads=2, head_dim=24)),
        "gsa": (models.GSAConfig, models.GSAForCausalLM, dict(num_heads=2, num_slots=16)),
        "lightnet": (models.LightNetConfig, models.LightNetForCausalLM, dict(expand_ratio=16)),
        "forgetting": (models.ForgettingTransformerConfig, models.ForgettingTransformerForCausalLM,
                       dict(num_heads=4, num_kv_heads=2, qk_norm=True, use_output_gate=True)),
        "kda": (models.KDAConfig, models.KDAForCausalLM, dict(num_heads=2, head_dim=16)),
        "rwkv6": (models.RWKV6Config, models.RWKV6ForCausalLM, dict(num_heads=2)),
        "rwkv7": (models.RWKV7Config, models.RWKV7ForCausalLM, dict(head_dim=32)),
        "mamba2": (models.Mamba2Config, models.Mamba2ForCausalLM,
                   dict(num_heads=8, head_dim=16, state_size=24, n_groups=2, chunk_size=32)),
        "linear_attn": (models.LinearAttentionConfig, models.LinearAttentionForCausalLM,
                        dict(num_heads=2)),
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


@torch.no_grad()
def ran(model, tokens):
    model.eval()
    start = model(tokens[:, :70], use_cache=True, logits_to_keep=None)
    steps, cache = [start.logits], start.past_key_values
    softmax = model.config.model_type == "forgetting_transformer"  # whose steps want a mask
    for t in range(70, TOKENS):
        mask = torch.ones_like(tokens[:, :t + 1]) if softmax else None
        step = model(tokens[:, t:t + 1], past_key_values=cache, use_cache=True, attention_mask=mask)
        steps.append(step.logits[:, -1:])
        cache = step.past_key_values
    mask = torch.ones_like(tokens)
    mask[1, :40] = 0
    return {
        "logits": model(tokens, logits_to_keep=None).logits,
        "steps": torch.cat(steps, 1),
        "short": model(tokens[1:, 40:], logits_to_keep=None).logits,
        "padded": model(tokens, attention_mask=mask, logits_to_keep=None).logits[1:, 40:],
        "packed": model(tokens.view(1, -1), logits_to_keep=None, use_cache=False,
                        cu_seqlens=torch.tensor([0, 100, 140, 200])).logits[:, 140:],
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
        with tarn.ops.composed_forms():
            told[name]["composed"] = trained(model, tokens)
        logits = model(tokens, logits_to_keep=None).logits
        told[name]["loss"] = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).detach()
    torch.save(told, path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
