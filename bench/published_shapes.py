"""Model directories in the shapes of published models with drawn weights, float32 (MIXTURE:
bfloat16).

transformers' own classes make them, except RWKV-7, of which it has no class. All are in
Hugging Face's form. Sizes are those of the published config.json files. As a program, makes
one of them in TARN_BENCH_MODELS and prints its path:

    python bench/published_shapes.py NAME [--quick]
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import models

import native

# The models whose names begin with that of a size are compared by it.
NAMES = (
    "mamba2-130m",
    "lfm2-350m",
    "granite-h-350m",
    "rwkv7-0.4b",
    "mamba2-780m",
    "qwen3.5-0.8b",
)
# Raced against llama.cpp as well: 3 B parameters, of which a token reads 0.4 B and the head.
# The form is Qwen3-Next's, whose experts are many and small: the hardest products for a CPU.
# Granite's mixtures would add its Mamba-2 layers, which other models here have.
MIXTURE = "qwen3-next-3b"
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _qwen3_5(transformers, quick):
    sizes = {
        "vocab_size": 248320,
        "hidden_size": 1024,
        "intermediate_size": 3584,
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "tie_word_embeddings": True,
    }
    if quick:
        sizes |= {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128}
        sizes |= {"num_hidden_layers": 4, "num_attention_heads": 2, "head_dim": 32}
        sizes |= {"linear_key_head_dim": 32, "linear_value_head_dim": 32}
        sizes |= {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
    config = transformers.Qwen3_5TextConfig(**sizes, **_TOKENS)
    return transformers.Qwen3_5ForCausalLM(config)


def _lfm2(transformers, quick):
    sizes = {
        "vocab_size": 65536,
        "hidden_size": 1024,
        "intermediate_size": 6656,  # two thirds of it, in multiples of 256
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        "conv_L_cache": 3,
    }
    if quick:
        sizes |= {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 384}
        sizes |= {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
        sizes |= {"full_attn_idxs": [2]}
    return transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**sizes, **_TOKENS))


def _mamba2(width, layers):
    def make(transformers, quick):
        d_model, depth = (64, 2) if quick else (width, layers)
        config = transformers.Mamba2Config(
            vocab_size=512 if quick else 50288,
            hidden_size=d_model,
            num_hidden_layers=depth,
            num_heads=d_model // 32,
            head_dim=64,
            state_size=32 if quick else 128,
            n_groups=1,
            tie_word_embeddings=True,
            **_TOKENS,
        )
        return transformers.Mamba2ForCausalLM(config)

    return make


def _granite(transformers, quick):
    sizes = {
        "vocab_size": 100352,
        "hidden_size": 768,
        "num_hidden_layers": 32,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "shared_intermediate_size": 2048,
        "mamba_n_heads": 48,
        "mamba_d_head": 32,
        "mamba_d_state": 128,
        "mamba_n_groups": 1,
    }
    attention = [10, 13, 17, 27]
    if quick:
        sizes |= {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3}
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "mamba_n_heads": 4}
        sizes |= {"shared_intermediate_size": 128, "mamba_d_state": 32}
        attention = [1]
    depth = sizes["num_hidden_layers"]
    config = transformers.GraniteMoeHybridConfig(
        **sizes,
        **_TOKENS,
        intermediate_size=sizes["shared_intermediate_size"],
        layer_types=["attention" if i in attention else "mamba" for i in range(depth)],
        num_local_experts=0,
        num_experts_per_tok=0,
        position_embedding_type="nope",
        embedding_multiplier=12.0,
        attention_multiplier=0.015625,
        residual_multiplier=0.246,
        logits_scaling=3.0,
        tie_word_embeddings=True,
    )
    return transformers.GraniteMoeHybridForCausalLM(config)


def _qwen3_next(transformers, quick):
    import torch

    sizes = {
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3584,
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 8,
        "linear_num_value_heads": 16,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 256,
        "shared_expert_intermediate_size": 256,
    }
    if quick:
        sizes |= {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128}
        sizes |= {"num_hidden_layers": 4, "num_attention_heads": 2, "head_dim": 32}
        sizes |= {"linear_key_head_dim": 32, "linear_value_head_dim": 32}
        sizes |= {"linear_num_key_heads": 1, "linear_num_value_heads": 2}
        sizes |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
        sizes |= {"shared_expert_intermediate_size": 64}
    config = transformers.Qwen3NextConfig(**sizes, **_TOKENS)
    torch.set_default_dtype(torch.bfloat16)  # 12 GB in float32
    try:
        return transformers.Qwen3NextForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)


_MAKERS = {
    "mamba2-130m": _mamba2(768, 24),
    "lfm2-350m": _lfm2,
    "granite-h-350m": _granite,
    "mamba2-780m": _mamba2(1536, 48),
    "qwen3.5-0.8b": _qwen3_5,
    MIXTURE: _qwen3_next,
}


def has_class(name):
    """Whether transformers has a class of such a model."""
    return name in _MAKERS


def is_bfloat16(name):
    """Whether the directory's weights are bfloat16, and none float32."""
    return name == MIXTURE


def _rwkv7(path, quick):
    """A model of tarn's, exported: transformers has no class of the type."""
    import tarn

    sizes = {"vocab_size": 65536, "d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096}
    if quick:
        sizes = {"vocab_size": 512, "d_model": 64, "n_layers": 2, "n_heads": 1, "d_ff": 128}
    model = tarn.models.LanguageModel(
        attention="rwkv7",
        feed_forward="channel-mix",
        positions="none",
        norm="pre",
        norm_kind="layer",
        input_norm=True,
        head_bias=False,
        value_residual=True,
        gate_rank=64,
        rate_rank=64,
        output_gate_rank=128,
        value_rank=32,
        **sizes,
    )
    program = native.ROOT / os.environ.get("TARN_BUILD", "build") / "tarn"
    with tempfile.TemporaryDirectory(dir=path.parent) as own:
        tarn.save_model(model, own)
        words = ["export", own, "--to", "hf", "--type", "rwkv7", "--out", path]
        subprocess.run([program, *words], check=True, capture_output=True)


def folder(name, quick=False):
    """The directory of a model, written once."""
    path = models.folder() / f"{'quick-' if quick else ''}{name}"
    if (path / "model.safetensors").is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    if not has_class(name):
        _rwkv7(path, quick)
        return path
    import torch
    import transformers

    torch.manual_seed(1)
    model = _MAKERS[name](transformers, quick)
    model.save_pretrained(path, max_shard_size="20GB")
    if name.startswith("granite"):
        _name_layers(path / "config.json")
    return path


def _name_layers(file):
    """As published files name them, which llama.cpp's converter wants."""
    config = json.loads(file.read_text())
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    config["layer_types"] = [names.get(one, one) for one in config["layer_types"]]
    file.write_text(json.dumps(config))


def shapes(path):
    """{name: shape} of a directory's tensors, from the header of its file."""
    with open(pathlib.Path(path) / "model.safetensors", "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    return {name: one["shape"] for name, one in header.items() if name != "__metadata__"}


def matrices(path):
    """([outputs, inputs] of every matrix that meets each row of a prompt, those of the
    head). A tied head is the embedding."""
    layers, head, embedding = [], [], []
    for name, shape in shapes(path).items():
        if len(shape) != 2 or "conv" in name and "proj" not in name:
            continue
        if "embed" in name:
            embedding.append(shape)
        elif name.startswith(("lm_head", "head.")) or name == "lm_head.weight":
            head.append(shape)
        elif min(shape) > 8:  # rows of a vector per head are no product
            layers.append(shape)
    return layers, head or embedding


if __name__ == "__main__":
    print(folder(sys.argv[1], "--quick" in sys.argv))
