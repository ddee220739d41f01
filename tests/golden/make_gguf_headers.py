"""Writes gguf_headers/ARCHITECTURE.json: what precedes the data of a small GGUF file of each
architecture that tarn reads, as hexadecimal bytes, and the bytes of its data, which are
float32, with those that may not be any numbers. tests/hostile mutates them.

    PYTHONPATH=python TARN_LIBRARY=build/libtarn_pytorch.so \\
        .venv/bin/python tests/golden/make_gguf_headers.py
"""

import json
import pathlib
import sys
import tempfile

import gguf
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
import gguf_files  # noqa: E402
import gguf_hybrids  # noqa: E402
import gguf_recurrent  # noqa: E402
import published  # noqa: E402

DECODER = dict(
    vocab_size=11,
    hidden_size=8,
    intermediate_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    pad_token_id=None,
    eos_token_id=None,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=100.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
WORDS = dict(vocab_size=11, pad_token_id=None, bos_token_id=None, eos_token_id=None)
MAMBA = dict(WORDS, hidden_size=6, num_hidden_layers=1, state_size=3, time_step_rank=2)
HYBRID = dict(
    WORDS,
    hidden_size=8,
    intermediate_size=12,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    mamba_n_heads=4,
    mamba_d_head=4,
    mamba_d_state=3,
    mamba_d_conv=2,
)
QWEN = dict(
    WORDS,
    **{key: HYBRID[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers",
                                    "num_attention_heads", "num_key_value_heads")},
    head_dim=8,
    layer_types=["linear_attention", "full_attention"],
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=3,
    linear_value_head_dim=3,
    linear_conv_kernel_dim=2,
)  # fmt: skip
EXPERTS = dict(
    num_experts=3,
    num_experts_per_tok=2,
    moe_intermediate_size=5,
    shared_expert_intermediate_size=4,
)
RWKV = dict(
    architectures=["RWKV7ForCausalLM"],
    model_type="rwkv7",
    vocab_size=11,
    hidden_size=8,
    num_hidden_layers=2,
    intermediate_size=12,
    head_dim=4,
    norm_eps=16e-5,
    fuse_norm=False,
    decay_low_rank_dim=2,
    gate_low_rank_dim=3,
    a_low_rank_dim=2,
    v_low_rank_dim=2,
)
NEMOTRON = dict(
    WORDS,
    hidden_size=8,
    intermediate_size=12,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    mamba_num_heads=4,
    mamba_head_dim=3,
    ssm_state_size=3,
    n_groups=2,
    time_step_min=1e-9,
    n_routed_experts=3,
    num_experts_per_tok=2,
    moe_intermediate_size=5,
    moe_shared_expert_intermediate_size=4,
)
LFM2 = dict(
    WORDS,
    hidden_size=8,
    intermediate_size=12,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    layer_types=["conv", "full_attention"],
    block_multiple_of=4,
)
JAMBA = dict(
    WORDS,
    hidden_size=8,
    intermediate_size=12,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    num_experts=3,
    mamba_d_state=3,
)
KIMI = dict(
    WORDS,
    hidden_size=8,
    intermediate_size=12,
    moe_intermediate_size=5,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    kv_lora_rank=5,
    qk_rope_head_dim=2,
    qk_nope_head_dim=3,
    v_head_dim=4,
    num_local_experts=3,
    num_experts_per_tok=2,
    linear_num_heads=2,
    linear_head_dim=3,
    layer_types=["linear_attention", "full_attention"],
)
# The model of each architecture. Every kind of key that a row reads is in one of them.
MODELS = [
    ("llama", {**DECODER, "attention_bias": True, "rope_parameters": LLAMA3}),
    ("qwen2", {**DECODER, "tie_word_embeddings": True}),
    ("qwen3", DECODER),
    (
        "gemma3_text",
        {
            **DECODER,
            "num_hidden_layers": 2,
            "query_pre_attn_scalar": 4,
            "sliding_window": 3,
            "sliding_window_pattern": 2,
        },
    ),
    ("mamba", MAMBA),
    (
        "mamba2",
        {**WORDS, "hidden_size": 6, "num_hidden_layers": 1, "num_heads": 4, "head_dim": 3,
         "state_size": 3, "n_groups": 2},
    ),
    (
        "falcon_h1",
        {**HYBRID, "num_hidden_layers": 1, "head_dim": 4, "mamba_d_ssm": 16,
         "mamba_rms_norm": True, "mamba_norm_before_gate": False},
    ),
    (
        "granitemoehybrid",
        {**HYBRID, "shared_intermediate_size": 4, "layer_types": ["mamba", "attention"],
         "num_local_experts": 3, "num_experts_per_tok": 2, "logits_scaling": 2.0,
         "residual_multiplier": 0.5},
    ),
    ("qwen3_5_text", {**QWEN, "later_layers": 1}),
    ("qwen3_5_moe_text", {**QWEN, **EXPERTS}),
    ("qwen3_next", {**QWEN, **EXPERTS}),
    ("rwkv7", RWKV),
    ("nemotron_h", {**NEMOTRON, "layers_block_type": ["linear_attention", "full_attention",
                    "mlp"]}),
    ("nemotron_h", {**NEMOTRON, "layers_block_type": ["linear_attention", "full_attention",
                    "moe"]}),
    ("lfm2", LFM2),
    ("lfm2_moe", {**LFM2, "moe_intermediate_size": 5, "num_dense_layers": 1, "num_experts": 3,
                  "num_experts_per_tok": 2}),
    ("jamba", {**JAMBA, "attn_layer_period": 2, "attn_layer_offset": 1}),
    ("kimi_linear", KIMI),
]  # fmt: skip
HYBRIDS = {kind for kind, _ in MODELS[-6:]}


def main() -> None:
    transformers.utils.logging.set_verbosity_error()
    out = pathlib.Path(__file__).parent / "gguf_headers"
    out.mkdir(exist_ok=True)
    for kind, keys in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            if kind == "rwkv7":
                gguf_recurrent.rwkv_folder(pathlib.Path(folder), keys)
            else:
                published.random_model(kind, keys).save_pretrained(folder)
            path = pathlib.Path(folder) / "m.gguf"
            if kind in HYBRIDS:
                gguf_hybrids.convert(pathlib.Path(folder), path)
            else:
                gguf_files.write_model(folder, path)
            reader = gguf.GGUFReader(path)
            name = reader.fields["general.architecture"].contents()
            start = int(reader.data_offset)
            data = path.read_bytes()
        found = {"data_bytes": len(data) - start, "header": data[:start].hex()}
        first = reader.tensors[0]
        if first.name == "rope_freqs.weight":
            found["data_begin"] = data[start : int(reader.tensors[1].data_offset)].hex()
        (out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
