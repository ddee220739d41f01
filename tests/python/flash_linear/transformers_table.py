"""Tiny configurations of transformers' recurrent text models, by the names of their folders:
the stem of their classes, what the configuration's class ends in, and its arguments."""

VOCABULARY = 97

_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
_STACK = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    **_ENDS,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_GATED_DELTA = {
    "head_dim": 16,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
_MLA = {"kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
_KDA_LAYERS = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
_SSD = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 32,
}
_MAMBA = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "state_size": 16,
    **_ENDS,
}
_CONVOLUTIONS = ["conv", "full_attention", "conv", "conv"]

MODELS = {
    "qwen3_5": ("Qwen3_5", "TextConfig", _STACK | _GATED_DELTA),
    "qwen3_5_moe": (
        "Qwen3_5Moe",
        "TextConfig",
        _STACK | _GATED_DELTA | _EXPERTS | {"shared_expert_intermediate_size": 32},
    ),
    "qwen3_next": (
        "Qwen3Next",
        "Config",
        _STACK | _GATED_DELTA | _EXPERTS | {"shared_expert_intermediate_size": 32},
    ),
    "qwen4_exp": (
        "Qwen4Exp",
        "TextConfig",
        _STACK
        | _GATED_DELTA
        | _EXPERTS
        | {
            "shared_expert_intermediate_size": 32,
            "hc_count": 2,
            "hc_lowrank": 8,
            "ngram_vocab_size_base": 100,
            "make_ngram_vocab_size_divisible_by": 4,
            "split_ngram_parts": 1,
            "heads_per_ngram": 2,
            "ple_layer_ids": [2],
            "eos_token_id": 2,  # its embeddings of n-grams begin again after it
            "indexer_n_heads": 2,
            "indexer_kv_heads": 1,
            "indexer_head_dim": 16,
            "indexer_budget": 32,
            "indexer_compress_ratio": 4,
        },
    ),
    "olmo_hybrid": (
        "OlmoHybrid",
        "Config",
        _STACK
        | {
            "linear_num_key_heads": 4,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 12,
            "linear_value_head_dim": 24,
        },
    ),
    "kimi_linear": (
        "KimiLinear",
        "Config",
        _STACK
        | _MLA
        | {
            "num_key_value_heads": 4,
            "layer_types": _KDA_LAYERS,
            "mlp_layer_types": ["dense"] * 4,
            "head_dim": 16,
            "linear_head_dim": 16,
            "linear_num_heads": 4,
        },
    ),
    "bailing_hybrid": (
        "BailingHybrid",
        "Config",
        _STACK
        | _MLA
        | {
            "num_key_value_heads": 4,
            "layer_types": _KDA_LAYERS,
            "moe_intermediate_size": 32,
            "num_local_experts": 8,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
            "head_dim": 16,
            "num_mtp_layers": 0,
        },
    ),
    "glm5_next": (
        "Glm5Next",
        "TextConfig",
        _STACK
        | {
            "num_key_value_heads": 4,
            "layer_types": _KDA_LAYERS,
            "mlp_layer_types": ["dense"] * 4,
            "kv_lora_rank": 24,
            "q_lora_rank": 24,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
            "index_head_dim": 16,
            "index_n_heads": 2,
            "linear_head_dim": 16,
            "linear_num_heads": 4,
            "hc_mult": 2,
        },
    ),
    "mamba": ("Mamba", "Config", _MAMBA),
    "falcon_mamba": ("FalconMamba", "Config", _MAMBA),
    "jamba": (
        "Jamba",
        "Config",
        _STACK
        | {
            "attn_layer_period": 4,
            "attn_layer_offset": 2,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "mamba_d_state": 16,
        },
    ),
    "zamba": (
        "Zamba",
        "Config",
        _STACK
        | {
            "num_key_value_heads": 4,
            "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
        },
    ),
    "mamba2": (
        "Mamba2",
        "Config",
        _MAMBA
        | {"num_hidden_layers": 4, "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 32},
    ),
    "zamba2": (
        "Zamba2",
        "Config",
        _STACK
        | {
            "num_key_value_heads": 4,
            "layers_block_type": ["mamba", "mamba", "hybrid", "mamba"],
            "mamba_d_state": 16,
            "mamba_ngroups": 2,
            "n_mamba_heads": 8,
            "chunk_size": 32,
        },
    ),
    "bamba": ("Bamba", "Config", _STACK | _SSD | {"attn_layer_indices": [2]}),
    "granitemoehybrid": (
        "GraniteMoeHybrid",
        "Config",
        _STACK
        | _SSD
        | {
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 96,
            "layer_types": ["mamba", "mamba", "attention", "mamba"],
        },
    ),
    "falcon_h1": (
        "FalconH1",
        "Config",
        _STACK | _SSD | {"num_hidden_layers": 3, "head_dim": 16, "mamba_d_ssm": 128},
    ),
    "nemotron_h": (
        "NemotronH",
        "Config",
        _STACK
        | {
            "layers_block_type": ["mamba", "mlp", "attention", "mamba"],
            "head_dim": 16,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 2,
            "chunk_size": 32,
        },
    ),
    "lfm2": ("Lfm2", "Config", _STACK | {"layer_types": _CONVOLUTIONS}),
    "lfm2_moe": (
        "Lfm2Moe",
        "Config",
        _STACK | _EXPERTS | {"layer_types": _CONVOLUTIONS, "num_dense_layers": 1},
    ),
    "lfm3": ("Lfm3", "Config", _STACK | {"layer_types": _CONVOLUTIONS, "head_dim": 16}),
    "inkling": (
        "Inkling",
        "TextConfig",
        _STACK
        | {
            "head_dim": 16,
            "swa_num_attention_heads": 4,
            "swa_num_key_value_heads": 2,
            "swa_head_dim": 16,
            "sliding_window_size": 32,
            "d_rel": 4,
            "rel_extent": 64,
            "mlp_layer_types": ["dense"] * 4,
            "moe_intermediate_size": 32,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
    "inkling2": (
        "Inkling2",
        "TextConfig",
        _STACK
        | {
            "head_dim": 16,
            "swa_num_attention_heads": 4,
            "swa_num_key_value_heads": 2,
            "swa_head_dim": 16,
            "sliding_window_size": 32,
            "d_rel": 4,
            "rel_extent": 64,
            "unpadded_vocab_size": VOCABULARY,
            "moe_intermediate_size": 32,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_layers_per_attn_res_block": 2,
        },
    ),
    "minimax": (
        "MiniMax",
        "Config",
        _STACK
        | {
            "head_dim": 16,
            "num_local_experts": 4,
            "block_size": 32,
            "layer_types": _KDA_LAYERS,
        },
    ),
    "recurrent_gemma": (
        "RecurrentGemma",
        "Config",
        _STACK | {"intermediate_size": 192, "attention_window_size": 64},
    ),
    "xlstm": (
        "xLSTM",
        "Config",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "num_heads": 2,
            "chunk_size": 32,
            **_ENDS,
        },
    ),
    "rwkv": (
        "Rwkv",
        "Config",
        {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 3, **_ENDS},
    ),
}


# The tensors of these states are not reordered by generate, which refuses beams for them.
WITHOUT_BEAMS = {"rwkv", "xlstm"}


# What grows with a model's width.
_WIDTHS = {
    "block_size",
    "hidden_size",
    "index_head_dim",
    "indexer_head_dim",
    "intermediate_size",
    "mamba_d_ssm",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
}
_STATES = {"mamba_d_state", "ssm_state_size", "state_size"}
_SELECTIVE = {"mamba", "falcon_mamba", "jamba", "zamba"}  # their states are narrow


def _wider(name: str, arguments: dict, times: int) -> dict:
    def grows(key: str) -> bool:
        wide = key in _WIDTHS or key.endswith(("head_dim", "d_head", "lora_rank"))
        return wide or (key in _STATES and name not in _SELECTIVE)

    return {key: value * times if grows(key) else value for key, value in arguments.items()}


def model(name: str, times: int = 1):
    """The model of this folder with its weights as its class draws them, so many times as
    wide."""
    import transformers

    stem, kind, arguments = MODELS[name]
    arguments = _wider(name, arguments, times)
    config = getattr(transformers, stem + kind)(**arguments)
    if name == "glm5_next":  # it has no class for text alone
        whole = transformers.Glm5NextConfig(
            text_config=config.to_dict(),
            vision_config={
                "depth": 1,
                "hidden_size": 16,
                "num_heads": 2,
                "intermediate_size": 16,
                "out_hidden_size": 64 * times,
                "projection_intermediate_size": 16,
            },
            image_token_id=VOCABULARY - 1,
            video_token_id=VOCABULARY - 2,
        )
        return transformers.Glm5NextForConditionalGeneration(whole)
    return getattr(transformers, stem + "ForCausalLM")(config)
