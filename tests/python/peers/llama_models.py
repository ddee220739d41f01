"""Random small models of the architectures that llama.cpp and tarn both run: rows of
(llama.cpp's name, what is special, a maker of the directory in Hugging Face's form).

A row of another architecture is a line here. Imports torch and transformers."""

import dataclasses
import json
import pathlib
import re
import subprocess
from collections.abc import Callable

import programs
import published
import safetensors.torch
import torch

WORDS = dict(vocab_size=97, pad_token_id=None, bos_token_id=None, eos_token_id=None)
STACK = dict(WORDS, hidden_size=64, num_hidden_layers=3, num_attention_heads=4)
DECODER = dict(STACK, intermediate_size=96, num_key_value_heads=2)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32)
MAMBA = dict(WORDS, hidden_size=32, num_hidden_layers=3)
MAMBA2 = dict(MAMBA, num_heads=8, head_dim=8, state_size=16)
# llama.cpp's delta rule wants keys as wide as values.
QWEN = dict(
    DECODER,
    num_hidden_layers=4,
    head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
)
SHARED = dict(EXPERTS, shared_expert_intermediate_size=48)
MROPE = dict(
    rope_type="default", rope_theta=300.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1],
    mrope_interleaved=True,
)  # fmt: skip
GRANITE = dict(
    DECODER,
    num_hidden_layers=4,
    shared_intermediate_size=96,
    layer_types=["mamba", "attention", "mamba", "mamba"],
    mamba_n_heads=8,
    mamba_d_head=16,
    mamba_d_state=16,
    num_local_experts=0,
    attention_multiplier=0.3,
    embedding_multiplier=2.5,
    residual_multiplier=0.4,
    logits_scaling=3.0,
)
FALCON = dict(
    DECODER,
    head_dim=16,
    mamba_n_heads=8,
    mamba_d_head=16,
    mamba_d_state=16,
    mamba_d_ssm=128,
    attention_in_multiplier=0.7,
    attention_out_multiplier=0.9375,
    embedding_multiplier=5.5,
    key_multiplier=0.39,
    lm_head_multiplier=0.3,
    mlp_multipliers=[0.88, 0.5859375],
    ssm_in_multiplier=1.25,
    ssm_multipliers=[0.35, 0.25, 0.45, 0.5, 0.55],
    ssm_out_multiplier=0.236,
)
NEMOTRON = dict(
    WORDS,
    hidden_size=64,
    intermediate_size=96,
    layers_block_type=["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"],
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    mamba_num_heads=8,
    mamba_head_dim=16,
    ssm_state_size=16,
    n_groups=2,
)
LFM2 = dict(
    DECODER,
    num_hidden_layers=4,
    layer_types=["conv", "full_attention", "conv", "conv"],
    block_multiple_of=8,
)
LFM2_MOE = dict(
    DECODER,
    **EXPERTS,
    num_dense_layers=1,
    layer_types=["conv", "full_attention", "conv"],
)
JAMBA = dict(
    DECODER,
    num_hidden_layers=4,
    attn_layer_period=4,
    attn_layer_offset=1,
    num_experts=4,
    mamba_d_state=16,
)
KIMI = dict(
    DECODER,
    num_key_value_heads=4,
    moe_intermediate_size=32,
    kv_lora_rank=32,
    qk_rope_head_dim=16,
    qk_nope_head_dim=16,
    v_head_dim=16,
    num_local_experts=6,
    num_experts_per_tok=2,
    linear_num_heads=4,
    linear_head_dim=16,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
)
LLAMA3 = dict(
    rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=64,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """make(folder) writes the directory."""

    architecture: str
    special: str
    make: Callable[[pathlib.Path], None]

    @property
    def name(self):
        return f"{self.architecture}-{self.special}"


def _of(architecture, kind, special, edit=None, **keys):
    """A model of transformers' class. edit(config): what published files write, where that
    differs from what transformers 5 writes."""

    def make(folder):
        published.random_model(kind, keys).save_pretrained(folder)
        if edit is not None:
            path = folder / "config.json"
            config = json.loads(path.read_text())
            edit(config)
            path.write_text(json.dumps(config))

    return Case(architecture, special, make)


def _granite(config):
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    config["layer_types"] = [names[one] for one in config["layer_types"]]
    if config["num_local_experts"] == 0:
        config["num_experts_per_tok"] = 0


def _nemotron(config):
    signs = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}
    kinds = config.pop("layers_block_type")
    config["hybrid_override_pattern"] = "".join(signs[one] for one in kinds)
    config["num_hidden_layers"] = len(kinds)
    config["time_step_min"] = 0.0  # the least step, of which a file says nothing
    experts = ("moe", "expert", "mtp", "n_group", "topk", "routed", "nextn")
    for key in [key for key in config if any(part in key for part in experts)]:
        if key != "n_groups":
            del config[key]


def _kimi(special, **keys):
    """transformers writes other keys and names than the published files have."""

    def make(folder):
        model = published.random_model("kimi_linear", keys)
        model.save_pretrained(folder)
        path = folder / "config.json"
        config = json.loads(path.read_text())
        kinds = config.pop("layer_types")
        dense = config.pop("mlp_layer_types").count("dense")
        config["linear_attn_config"] = {
            "num_heads": config.pop("linear_num_heads"),
            "head_dim": config.pop("linear_head_dim"),
            "short_conv_kernel_size": config.pop("linear_conv_kernel_dim"),
            "full_attn_layers": [i + 1 for i, one in enumerate(kinds) if one == "full_attention"],
            "kda_layers": [i + 1 for i, one in enumerate(kinds) if one != "full_attention"],
        }
        config |= {"first_k_dense_replace": dense, "moe_router_activation_func": "sigmoid"}
        path.write_text(json.dumps(config))
        path = folder / "model.safetensors"
        tensors = {
            re.sub(r"block_sparse_moe\.(\w+_proj)", r"mlp.\1", name): tensor
            for name, tensor in safetensors.torch.load_file(path).items()
        }
        safetensors.torch.save_file(tensors, path, {"format": "pt"})

    return Case("kimi-linear", special, make)


def _rwkv7(special, **keys):
    """transformers has no class: a model of tarn's, exported as flash-linear-attention's.
    Heads of 64: the eps of llama.cpp's norm of a head is that of this width."""

    def make(folder):
        import tarn

        torch.manual_seed(0)
        model = tarn.models.LanguageModel(
            attention="rwkv7", feed_forward="channel-mix", positions="none", norm="pre",
            norm_kind="layer", head_bias=False, input_norm=True, value_residual=True,
            vocab_size=97, d_model=128, n_layers=3, n_heads=2, d_ff=192, **keys,
        )  # fmt: skip
        tarn.save_model(published.disturb(model), folder / "own")
        words = ["export", folder / "own", "--to", "hf", "--type", "rwkv7", "--out", folder]
        subprocess.run([programs.BUILD / "tarn", *words], check=True, capture_output=True)

    return Case("rwkv7", special, make)


CASES = [
    _of("llama", "llama", "grouped", **DECODER),
    _of("llama", "llama", "tied-biases", **DECODER, attention_bias=True, tie_word_embeddings=True),
    _of("llama", "llama", "scaled", **DECODER, rope_parameters=LLAMA3),
    _of("qwen2", "qwen2", "grouped", **DECODER),
    _of("qwen3", "qwen3", "wide", **DECODER, head_dim=32),
    _of("gemma3", "gemma3_text", "windows", **{**DECODER, "num_hidden_layers": 7}, head_dim=16,
        query_pre_attn_scalar=16, sliding_window=32),
    _of("mamba", "mamba", "plain", **MAMBA, state_size=16),
    _of("mamba", "falcon_mamba", "falcon", **MAMBA, state_size=16, mixer_rms_eps=1e-5),
    _of("mamba2", "mamba2", "one-group", **MAMBA2, n_groups=1),
    _of("mamba2", "mamba2", "groups-tied", **MAMBA2, n_groups=2, tie_word_embeddings=True),
    _of("qwen35", "qwen3_5_text", "twice-values", **QWEN, rope_parameters=MROPE),
    _of("qwen35", "qwen3_5_text", "tied-sections", **{**QWEN, "linear_num_key_heads": 4},
        tie_word_embeddings=True, rope_parameters=MROPE),
    _of("qwen35moe", "qwen3_5_moe_text", "experts", **QWEN, **SHARED,
        rope_parameters=MROPE),
    _of("qwen3next", "qwen3_next", "experts", **QWEN, **SHARED),
    _rwkv7("plain"),
    _of("falcon-h1", "falcon_h1", "factors", **FALCON),
    _of("falcon-h1", "falcon_h1", "norm", **FALCON, mamba_rms_norm=True, mamba_n_groups=2,
        mamba_norm_before_gate=False),
    _of("granitehybrid", "granitemoehybrid", "dense", _granite, **GRANITE),
    _of("granitehybrid", "granitemoehybrid", "experts", _granite,
        **{**GRANITE, "num_local_experts": 6}, num_experts_per_tok=2),
    _of("granitehybrid", "bamba", "bamba", **DECODER, mamba_n_heads=8, mamba_d_head=16,
        mamba_d_state=16, mamba_n_groups=1, attn_layer_indices=[1],
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0)),
    _of("nemotron_h", "nemotron_h", "dense", _nemotron, **NEMOTRON),
    _of("lfm2", "lfm2", "plain", **LFM2),
    _of("lfm2moe", "lfm2_moe", "experts", **LFM2_MOE),
    _of("jamba", "jamba", "experts", **JAMBA),
    _kimi("experts", **KIMI),
]  # fmt: skip
