"""Tiny models of transformers' own classes, with drawn weights: their logits, their
gradients and what they generate, with tarn's kernels or without. A program, since a
process can have them in one way alone."""

import sys

import torch

TOKENS = 100
VOCABULARY = 97


def _qwen(transformers):
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    config = Qwen3_5TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        linear_key_head_dim=16,
        linear_value_head_dim=24,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    return Qwen3_5ForCausalLM(config)


def _olmo(transformers):
    from transformers import OlmoHybridConfig, OlmoHybridForCausalLM

    config = OlmoHybridConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        linear_num_key_heads=4,
        linear_num_value_heads=4,
        linear_key_head_dim=12,
        linear_value_head_dim=24,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return OlmoHybridForCausalLM(config)


def _kimi(transformers):
    from transformers import KimiLinearConfig, KimiLinearForCausalLM

    layers = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
    config = KimiLinearConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        layer_types=layers,
        mlp_layer_types=["dense"] * 4,
        kv_lora_rank=24,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        head_dim=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return KimiLinearForCausalLM(config)


def _mamba2(transformers):
    from transformers import Mamba2Config, Mamba2ForCausalLM

    config = Mamba2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=4,
        num_heads=8,
        head_dim=16,
        state_size=16,
        n_groups=2,
        chunk_size=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return Mamba2ForCausalLM(config)


def _granite(transformers):
    from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM

    config = GraniteMoeHybridConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=0,
        num_experts_per_tok=0,
        shared_intermediate_size=96,
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=16,
        mamba_n_groups=2,
        mamba_chunk_size=32,
        layer_types=["mamba", "mamba", "attention", "mamba"],
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return GraniteMoeHybridForCausalLM(config)


def _falcon(transformers):
    from transformers import FalconH1Config, FalconH1ForCausalLM

    config = FalconH1Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        mamba_d_ssm=128,
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=16,
        mamba_n_groups=2,
        mamba_chunk_size=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return FalconH1ForCausalLM(config)


def _nemotron(transformers):
    from transformers import NemotronHConfig, NemotronHForCausalLM

    config = NemotronHConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        layers_block_type=["mamba", "mlp", "attention", "mamba"],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        mamba_num_heads=8,
        mamba_head_dim=16,
        ssm_state_size=16,
        n_groups=2,
        chunk_size=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return NemotronHForCausalLM(config)


def _mamba(transformers):
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=3,
        state_size=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return MambaForCausalLM(config)


def _falcon_mamba(transformers):
    from transformers import FalconMambaConfig, FalconMambaForCausalLM

    config = FalconMambaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=3,
        state_size=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return FalconMambaForCausalLM(config)


def _jamba(transformers):
    from transformers import JambaConfig, JambaForCausalLM

    config = JambaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_layer_period=4,
        attn_layer_offset=2,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=4,
        num_experts_per_tok=2,
        mamba_d_state=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return JambaForCausalLM(config)


MODELS = {
    "qwen3_5": _qwen,
    "olmo_hybrid": _olmo,
    "kimi_linear": _kimi,
    "mamba2": _mamba2,
    "granitemoehybrid": _granite,
    "falcon_h1": _falcon,
    "nemotron_h": _nemotron,
    "mamba": _mamba,
    "falcon_mamba": _falcon_mamba,
    "jamba": _jamba,
}


def _drawn(model):
    """Weights large enough that logits and gates differ from token to token."""
    draw = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        spread = 0.1 if parameter.dim() == 1 else 0.7 / parameter.shape[-1] ** 0.5
        noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float32)
        parameter.data += spread * noise
    return model


def told(make, transformers):
    torch.manual_seed(3)
    model = _drawn(make(transformers)).eval()
    draw = torch.Generator().manual_seed(7)
    tokens = torch.randint(3, VOCABULARY, (2, TOKENS), generator=draw)
    logits = model(input_ids=tokens, use_cache=False).logits
    logits.square().mean().backward()
    gradients = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    with torch.no_grad():
        written = model.generate(
            tokens[:, :20],
            max_new_tokens=30,
            min_new_tokens=30,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    return {
        "logits": logits.detach(),
        "gradients": gradients,
        "tokens": written.sequences,
        "steps": torch.stack(written.logits),
    }


def main(way, path):
    if way == "tarn":
        import tarn

        tarn.accelerate_transformers()
    torch.set_num_threads(2)
    import transformers

    transformers.logging.set_verbosity_error()
    torch.save({name: told(make, transformers) for name, make in MODELS.items()}, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
