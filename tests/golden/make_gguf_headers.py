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
# Vocabularies of all sorts that are small.
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
SCORES = {
    "pre": "default",
    "tokens": ["<unk>", "<s>", "</s>", "<0x41>", "\u2581", "a", "b", "ab", "\u2581a", "<x>", "[P]"],
    "token_type": [UNKNOWN, CONTROL, CONTROL, BYTE, *[NORMAL] * 5, USER, UNUSED],
    "scores": [0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -0.5, -0.25, -1000.0, -10000.0],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "unknown_token_id": 0,
    "add_space_prefix": True,
}
VOCABULARIES = {
    "gpt2": {
        "pre": "llama-bpe",
        "tokens": ["a", "b", "c", "ab", "abc", "\u0120", "<s>", "<|im_end|>", "<x>", "[P]", "d"],
        "token_type": [*[NORMAL] * 6, CONTROL, CONTROL, USER, UNUSED, NORMAL],
        "merges": ["a b", "ab c"],
        "bos_token_id": 6,
        "eos_token_id": 7,
        "add_eos_token": True,
    },
    "llama": SCORES,
    "t5": {**SCORES, "remove_extra_whitespaces": False, "add_bos_token": True},
}
CHAT = "{% for m in messages %}{{ bos_token + m.content }}{% endfor %}"
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


def with_vocabulary(path: pathlib.Path, model: str, keys: dict) -> pathlib.Path:
    """The file again, with keys of a tokenizer and a template."""
    reader = gguf.GGUFReader(path)
    out = path.with_suffix(".vocabulary.gguf")
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "tokenizer.", "general.architecture")):
            writer.add_key_value(name, field.contents(), field.types[0])
    for name, value in {"model": model, **keys}.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
        add.get(type(value), writer.add_array)(f"tokenizer.ggml.{name}", value)
    writer.add_chat_template(CHAT)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def write_header(path: pathlib.Path, out: pathlib.Path) -> None:
    reader = gguf.GGUFReader(path)
    start = int(reader.data_offset)
    data = path.read_bytes()
    found = {"data_bytes": len(data) - start, "header": data[:start].hex()}
    first = reader.tensors[0]
    if first.name == "rope_freqs.weight":
        found["data_begin"] = data[start : int(reader.tensors[1].data_offset)].hex()
    out.write_text(json.dumps(found, indent=1) + "\n")


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
            write_header(path, out / f"{name}.json")
            if name == "qwen2":
                for model, texts in VOCABULARIES.items():
                    file = with_vocabulary(path, model, texts)
                    write_header(file, out / f"vocabulary_{model}.json")


if __name__ == "__main__":
    main()
