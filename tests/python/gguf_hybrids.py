"""GGUF files of hybrids whose layers differ by their heads of keys, by the rules of llama.cpp's
converter (conversion/nemotron.py, lfm2.py, jamba.py, kimi_linear.py of llama-cpp-python
0.3.36). Nothing of tarn's takes part. The rules are among those of gguf_files.RULES. Imports
torch and gguf: for test files that skip first.

convert_hf_to_gguf.py itself gives the same: test_gguf_hybrids.py runs it where TARN_LLAMA_CPP
names a folder of llama.cpp's sources."""

import json
import re

import gguf
import gguf_files
import gguf_recurrent as recurrent
import safetensors.torch
import torch

ARCH = gguf.MODEL_ARCH
SIGMOID = gguf.ExpertGatingFuncType.SIGMOID
# What some published files have and classes of transformers do not write, or write otherwise.
LETTERS = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
ALWAYS_F32 = (*recurrent.ALWAYS_F32, "shortconv.conv")


def mixed(c):
    return c.get("num_experts_per_tok") is not None and "moe" in c.get("layers_block_type", ())


def nemotron_keys(w, c):
    """NemotronHModel.set_gguf_parameters, over GraniteHybridModel's."""
    blocks = c["layers_block_type"]
    w.add_block_count(len(blocks))
    w.add_context_length(recurrent.ANY_LENGTH)
    w.add_embedding_length(c["hidden_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_layer_norm_eps(c["layer_norm_epsilon"])
    w.add_vocab_size(c["vocab_size"])
    w.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    w.add_rope_scaling_finetuned(False)
    w.add_ssm_conv_kernel(c["conv_kernel"])
    w.add_ssm_state_size(c["ssm_state_size"])
    w.add_ssm_group_count(c["n_groups"])
    w.add_ssm_inner_size(c["mamba_num_heads"] * c["mamba_head_dim"])
    w.add_ssm_time_step_rank(c["mamba_num_heads"])
    heads = c["num_key_value_heads"]
    w.add_head_count_kv([heads if block == "full_attention" else 0 for block in blocks])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    part = "moe" if mixed(c) else "mlp"
    width = c["moe_intermediate_size"] if mixed(c) else c["intermediate_size"]
    w.add_feed_forward_length([width if block == part else 0 for block in blocks])
    if not mixed(c):
        return
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(width)
    w.add_expert_shared_feed_forward_length(c["moe_shared_expert_intermediate_size"])
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_shared_count(c.get("n_shared_experts", 1))
    w.add_expert_weights_norm(c["norm_topk_prob"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_group_count(c.get("n_group", 1))


def nemotron_tensors(c, weights):
    weights = stacked(weights, r"(backbone\.layers\.(\d+)\.mixer\.)experts\.(\d+)\.(\w+)\.weight",
                      "model.layers.{1}.mlp.experts.{3}.weight")  # fmt: skip
    for name, x in weights.items():
        yield recurrent.mamba2_mixer(biased(name), x, c["n_groups"])


def lfm_keys(w, c):
    """LFM2Model's, which find_hparam's rules decide, and TextModel's."""
    layers = c["layer_types"]
    w.add_block_count(len(layers))
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_head_count(c["num_attention_heads"])
    heads = c["num_key_value_heads"]
    w.add_head_count_kv([heads if layer == "full_attention" else 0 for layer in layers])
    rope = c["rope_parameters"]
    w.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    w.add_layer_norm_rms_eps(c["norm_eps"])
    if c.get("head_dim") is not None:
        w.add_key_length(c["head_dim"])
        w.add_value_length(c["head_dim"])
    w.add_vocab_size(c["vocab_size"])
    w.add_shortconv_l_cache(c["conv_L_cache"])


def lfm2_keys(w, c):
    lfm_keys(w, c)
    width = c["intermediate_size"]
    if c["block_auto_adjust_ff_dim"]:
        width = int(c["block_ffn_dim_multiplier"] * int(2 * width / 3))
        width = -(width // -c["block_multiple_of"]) * c["block_multiple_of"]
    w.add_feed_forward_length(width)


def lfm2_moe_keys(w, c):
    lfm_keys(w, c)
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_expert_count(c["num_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_leading_dense_block_count(c["num_dense_layers"])
    w.add_expert_gating_func(SIGMOID)


def lfm_tensors(c, weights):
    weights = stacked(weights, r"(model\.layers\.(\d+)\.feed_forward\.)experts\.(\d+)\.(\w+)\.weight",
                      "model.layers.{1}.feed_forward.experts.{3}.weight",
                      {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"})  # fmt: skip
    for name, x in weights.items():
        name = name.replace(".expert_bias", ".expert_bias.bias")
        yield name, x.squeeze(1) if "conv.conv" in name else x


def jamba_keys(w, c):
    layers = range(c["num_hidden_layers"])
    w.add_block_count(len(layers))
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    offset, period = c["attn_layer_offset"], c["attn_layer_period"]
    heads = c["num_key_value_heads"]
    full = [i >= offset and (i - offset) % period == 0 for i in layers]
    w.add_head_count_kv([heads if one else 0 for one in full])
    w.add_ssm_conv_kernel(c["mamba_d_conv"])
    w.add_ssm_inner_size(c["mamba_expand"] * c["hidden_size"])
    w.add_ssm_state_size(c["mamba_d_state"])
    rank = c["mamba_dt_rank"]
    w.add_ssm_time_step_rank(-(c["hidden_size"] // -16) if rank == "auto" else rank)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_expert_count(c["num_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])


def jamba_tensors(c, weights):
    weights = stacked(weights, r"(model\.layers\.(\d+)\.feed_forward\.)experts\.(\d+)\.(\w+)\.weight",
                      "model.layers.{1}.mlp.experts.{3}.weight")  # fmt: skip
    for name, x in weights.items():
        if name.endswith("conv1d.weight"):
            x = x.squeeze()
        yield name, -x.exp() if name.endswith(".A_log") else x


def kimi_keys(w, c):
    layers = c["layer_types"]
    w.add_block_count(len(layers))
    w.add_context_length(c["model_max_length"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_expert_count(c["num_experts"])
    w.add_expert_used_count(c["num_experts_per_token"])
    w.add_expert_gating_func(SIGMOID)
    w.add_vocab_size(c["vocab_size"])
    w.add_head_count_kv([int(layer == "full_attention") for layer in layers])
    w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
    w.add_kda_head_dim(c["linear_head_dim"])
    if c.get("q_lora_rank") is not None:
        w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_key_length(c["kv_lora_rank"] + c["qk_rope_head_dim"])
    w.add_key_length_mla(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
    w.add_value_length_mla(c["v_head_dim"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_count(c["num_shared_experts"])
    w.add_leading_dense_block_count(sum(word == "dense" for word in c["mlp_layer_types"]))
    w.add_expert_weights_scale(c["routed_scaling_factor"])


def kimi_tensors(c, weights):
    """Of published names; those of transformers call dense parts as mixtures."""
    weights = {
        re.sub(r"block_sparse_moe\.((gate|up|down)_proj)", r"mlp.\1", name): x
        for name, x in weights.items()
    }
    weights = stacked(
        weights, r"(model\.layers\.(\d+)\.block_sparse_moe\.)experts\.(\d+)\.(\w+)\.weight",
        "model.layers.{1}.mlp.experts.{3}.weight",
        {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"},
    )  # fmt: skip
    heads, keys, values = c["num_attention_heads"], c["qk_nope_head_dim"], c["v_head_dim"]
    for name, x in weights.items():
        name = biased(name)
        if name.endswith("_conv1d.weight"):
            x = x.reshape(1, x.shape[0], 1, x.shape[-1])
        if name.endswith(".dt_bias"):
            name = name.removesuffix(".dt_bias") + ".dt_proj.bias"
        if name.endswith("kv_b_proj.weight"):
            k, v = x.view(heads, keys + values, x.shape[-1]).split([keys, values], 1)
            yield name.replace("kv_b_proj", "k_b_proj"), k.transpose(1, 2)
            yield name.replace("kv_b_proj", "v_b_proj"), v
            continue
        yield name, -x.exp() if name.endswith(".A_log") else x


def biased(name):
    """ModelBase: what ends in _bias is the bias of what comes before."""
    name = name.replace("block_sparse_moe.gate.e_score", "block_sparse_moe.e_score")
    return name.replace("e_score_correction_bias", "e_score_correction.bias")


def stacked(weights, pattern, whole, words=None):
    """Tensors of experts as one of all. pattern: a name's groups; whole: the name of all."""
    out, parts = {}, {}
    for name, x in weights.items():
        found = re.fullmatch(pattern, name)
        if found is None:
            out[name] = x
            continue
        groups = list(found.groups())
        groups[3] = (words or {}).get(groups[3], groups[3])
        parts.setdefault(whole.format(*groups), {})[int(groups[2])] = x
    return out | {
        name: torch.stack([rows[e] for e in range(len(rows))]) for name, rows in parts.items()
    }


# model_type -> keys, tensors.
FAMILIES = {
    "nemotron_h": (nemotron_keys, nemotron_tensors),
    "lfm2": (lfm2_keys, lfm_tensors),
    "lfm2_moe": (lfm2_moe_keys, lfm_tensors),
    "jamba": (jamba_keys, jamba_tensors),
    "kimi_linear": (kimi_keys, kimi_tensors),
}


def architecture(c):
    if c["model_type"] == "nemotron_h":
        return ARCH.NEMOTRON_H_MOE if mixed(c) else ARCH.NEMOTRON_H
    names = {"lfm2": "LFM2", "lfm2_moe": "LFM2MOE", "jamba": "JAMBA", "kimi_linear": "KIMI_LINEAR"}
    return ARCH[names[c["model_type"]]]


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def tensors_of(c, weights):
    """The file's tensors, float32, by their names."""
    names = gguf.get_tensor_name_map(architecture(c), 64)
    _, change = FAMILIES[c["model_type"]]
    return {
        recurrent.file_name(names, name): x.float().contiguous() for name, x in change(c, weights)
    }


def file_tensors(folder):
    return tensors_of(config_of(folder), safetensors.torch.load_file(folder / "model.safetensors"))


def rule(c, tensors):
    """Of gguf_files.RULES."""
    keys, _ = FAMILIES[c["model_type"]]
    return recurrent.file_of(architecture(c), keys, tensors_of, c, tensors)


gguf_files.RULES.update({kind: rule for kind in FAMILIES})


def stored_type(name, x, kind):
    if any(part in name for part in ALWAYS_F32):
        return gguf.GGMLQuantizationType.F32
    return recurrent.stored_type(name, x, kind)


def convert(folder, path, kind=gguf.GGMLQuantizationType.F32, edit=None):
    """Writes the GGUF file of a published directory. kind: of matrices; edit: changes keys (a
    dict) and tensors (a dict) before they are written."""
    c = config_of(folder)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture(c)])
    keys, _ = FAMILIES[c["model_type"]]
    keys(writer, c)
    tensors = file_tensors(folder)
    if edit is not None:
        edit(writer.kv_data[0], tensors)
    for name, x in tensors.items():
        stored = stored_type(name, x, kind)
        writer.add_tensor(name, gguf.quants.quantize(x.numpy(), stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
