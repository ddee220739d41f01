"""GGUF files for tests, written with gguf-py from models of transformers by the rules of
llama.cpp's converter (conversion/ there), and by that converter itself where
TARN_LLAMA_CPP names a checkout. Imports gguf and torch: for test files that skip first.

A rule is a function of (keys of config.json, tensors by Hugging Face's names) that returns
the architecture, its keys without the architecture's name, and the file's tensors. RULES has
one for each model_type; other files add theirs."""

import json
import math
import os
import pathlib
import subprocess
import sys

import gguf
import numpy as np


LLAMA_CPP = os.environ.get("TARN_LLAMA_CPP")


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def rope(config):
    """The parameters of layers of full attention."""
    parameters = config.get("rope_parameters") or {}
    return parameters.get("full_attention", parameters)


def stack_keys(config):
    """What conversion/base.py writes for every model."""
    keys = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
    }
    if config.get("head_dim"):
        keys["attention.key_length"] = keys["attention.value_length"] = config["head_dim"]
    scaling = rope(config)
    keys["rope.freq_base"] = float(scaling.get("rope_theta", 10000.0))
    if scaling.get("rope_type") in ("linear", "yarn"):
        keys["rope.scaling.type"] = scaling["rope_type"]
        keys["rope.scaling.factor"] = float(scaling["factor"])
    if scaling.get("rope_type") == "yarn":
        keys["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
        for name in ("beta_fast", "beta_slow"):
            if scaling.get(name) is not None:
                keys[f"rope.scaling.yarn_{name}"] = float(scaling[name])
        if scaling.get("attention_factor") is not None:
            keys["rope.scaling.yarn_attn_factor"] = float(scaling["attention_factor"])
    return keys


STACK_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
END_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def renamed(name, names=None, ends=None):
    """model.layers.3.NAME.weight -> blk.3.OTHER.weight."""
    if name in (ends or END_NAMES):
        return (ends or END_NAMES)[name]
    _, _, layer, rest = name.split(".", 3)
    part, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{(names or STACK_NAMES)[part]}.{kind}"


def permuted(weight, heads):
    """LlamaModel.permute: rows of a head from [2][d / 2] to [d / 2][2]."""
    rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)


def llama3_factors(config):
    """LlamaModel.generate_extra_tensors."""
    scaling, width = rope(config), head_dim(config)
    base = scaling.get("rope_theta", 10000.0)
    factors = []
    for i in range(0, width, 2):
        frequency = float(np.float32(1.0) / np.float32(base) ** np.float32(i / width))
        length = 2 * math.pi / frequency
        low = scaling["low_freq_factor"]
        high = scaling["high_freq_factor"]
        old = scaling["original_max_position_embeddings"]
        if length < old / high:
            factors.append(1.0)
        elif length > old / low:
            factors.append(scaling["factor"])
        else:
            smooth = (old / length - low) / (high - low)
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, np.float32)


def llama(config, tensors):
    keys = stack_keys(config)
    keys["vocab_size"] = config["vocab_size"]
    keys["rope.dimension_count"] = head_dim(config)
    made = {}
    if rope(config).get("rope_type") == "llama3":
        made["rope_freqs.weight"] = llama3_factors(config)
    for name, tensor in tensors.items():
        if ".q_proj." in name:
            tensor = permuted(tensor, config["num_attention_heads"])
        if ".k_proj." in name:
            tensor = permuted(tensor, config["num_key_value_heads"])
        made[renamed(name)] = tensor
    return "llama", keys, made


def qwen2(config, tensors):
    return "qwen2", stack_keys(config), {renamed(n): t for n, t in tensors.items()}


def qwen3(config, tensors):
    return "qwen3", stack_keys(config), {renamed(n): t for n, t in tensors.items()}


def gemma3(config, tensors):
    names = {
        **STACK_NAMES,
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
    keys = stack_keys(config)
    keys["attention.sliding_window"] = config["sliding_window"]
    sliding = (config.get("rope_parameters") or {}).get("sliding_attention", {})
    if sliding.get("rope_theta") is not None:
        keys["rope.freq_base_swa"] = float(sliding["rope_theta"])
    if config.get("final_logit_softcapping"):
        keys["final_logit_softcapping"] = float(config["final_logit_softcapping"])
    made = {
        renamed(name, names): tensor + np.float32(1) if name.endswith("norm.weight") else tensor
        for name, tensor in tensors.items()
    }
    return "gemma3", keys, made


RULES = {"llama": llama, "qwen2": qwen2, "qwen3": qwen3, "gemma3_text": gemma3}


def stored(name, tensor, kind):
    """The tensor's bytes and type in a file of this type: conversion/base.py."""
    single = tensor.ndim <= 1 or name.endswith("_norm.weight") or not name.endswith(".weight")
    single = single or any(part in name for part in ("conv1d", "ffn_gate_inp", "shortconv.conv"))
    if single or kind == gguf.GGMLQuantizationType.F32:
        return tensor.astype(np.float32), gguf.GGMLQuantizationType.F32
    try:
        return gguf.quants.quantize(tensor.astype(np.float32), kind), kind
    except gguf.QuantError:
        return tensor.astype(np.float16), gguf.GGMLQuantizationType.F16


def add_keys(writer, architecture, keys):
    """Python's types as the converter's: int u32, float f32; lists of these."""
    for name, value in keys.items():
        key = f"{architecture}.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)


def write_file(path, architecture, keys, tensors, kind=gguf.GGMLQuantizationType.F32):
    """One file without a tokenizer: texts are ids."""
    writer = gguf.GGUFWriter(path, architecture)
    add_keys(writer, architecture, keys)
    writer.add_tokenizer_model("none")
    for name, tensor in tensors.items():
        data, own = stored(name, np.ascontiguousarray(tensor), kind)
        writer.add_tensor(name, data, raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def published_parts(folder):
    """config.json and the tensors, float32, of a directory of one safetensors file."""
    import safetensors.torch

    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    tensors = safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")
    return config, {name: tensor.float().numpy() for name, tensor in tensors.items()}


def write_model(folder, path, kind=gguf.GGMLQuantizationType.F32):
    """The GGUF file of a directory that transformers wrote."""
    config, tensors = published_parts(folder)
    return write_file(path, *RULES[config["model_type"]](config, tensors), kind)


# The converter takes any tokenizer: texts are ids. importing conversion's modules registers
# their classes.
CONVERTER = """
import importlib, pathlib, sys
root, folder, out, kind = sys.argv[1:]
sys.path[:0] = [root, root + "/gguf-py"]
from conversion.base import ModelBase, ModelType, gguf
for file in sorted((pathlib.Path(root) / "conversion").glob("*.py")):
    if file.stem not in ("__init__", "base"):
        importlib.import_module("conversion." + file.stem)
hparams = ModelBase.load_hparams(pathlib.Path(folder), False)
model = ModelBase.from_model_architecture(hparams["architectures"][0], model_type=ModelType.TEXT)
model.set_vocab = lambda self: self.gguf_writer.add_tokenizer_model("none")
model.no_mtp = True  # no layers that predict later tokens
model(pathlib.Path(folder), gguf.LlamaFileType[kind], pathlib.Path(out)).write()
"""


def convert(folder, path, kind="ALL_F32"):
    """The same by llama.cpp's converter."""
    assert LLAMA_CPP is not None
    # Gemma's rule counts the tokens of a directory's tokenizer.
    tokenizer = pathlib.Path(folder) / "tokenizer.json"
    made = not tokenizer.exists()
    if made:
        vocab = json.loads((pathlib.Path(folder) / "config.json").read_text())["vocab_size"]
        tokens = {str(i): i for i in range(vocab)}
        tokenizer.write_text(json.dumps({"model": {"vocab": tokens}, "added_tokens": []}))
    done = subprocess.run(
        [sys.executable, "-c", CONVERTER, LLAMA_CPP, str(folder), str(path), kind],
        capture_output=True,
        text=True,
    )
    if made:
        tokenizer.unlink()
    assert done.returncode == 0, done.stderr[-4000:]
    return path


def read_tensors(path):
    """Name -> float32 numbers, as gguf-py reads the file."""
    reader = gguf.GGUFReader(path)
    found = {}
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        found[tensor.name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
    return found


def read_keys(path):
    """Key -> value, as gguf-py reads the file."""
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
