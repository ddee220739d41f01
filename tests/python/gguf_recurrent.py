"""GGUF files of recurrent models and hybrids, by the rules of llama.cpp's converter
(conversion/*.py of llama-cpp-python 0.3.36): keys and names by gguf-py, numbers changed as
the converter changes them. Nothing of tarn's takes part. The rules are among those of
gguf_files.RULES. Imports torch and gguf: for test files that skip first."""

import json

import gguf
import gguf_files
import safetensors.torch
import torch

ARCH = gguf.MODEL_ARCH
ANY_LENGTH = 2**20
ALWAYS_F32 = ("ssm_conv1d", "time_mix_lerp", "time_mix_w1", "time_mix_w2", "ffn_gate_inp")


def text_keys(w, c):
    """TextModel.set_gguf_parameters."""
    rope = dict(c.get("rope_parameters") or {})
    if "rope_theta" in c:
        rope.setdefault("rope_theta", c["rope_theta"])
    w.add_block_count(c["num_hidden_layers"])
    if c.get("max_position_embeddings") is not None:
        w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    if c.get("intermediate_size") is not None:
        w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    if rope.get("rope_type") == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    if "mrope_section" in rope:
        w.add_rope_dimension_sections([*rope["mrope_section"], 0][:4])
    if "rope_theta" in rope:
        w.add_rope_freq_base(rope["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    experts = c.get("num_local_experts", c.get("num_experts"))
    if experts is not None:
        w.add_expert_count(experts)
    if c.get("num_experts_per_tok") is not None:
        w.add_expert_used_count(c["num_experts_per_tok"])
    if c.get("head_dim") is not None:
        w.add_key_length(c["head_dim"])
        w.add_value_length(c["head_dim"])
    return rope


def mamba_keys(w, c):
    inner = c["intermediate_size"]
    assert inner == 2 * c["hidden_size"]
    w.add_context_length(ANY_LENGTH)
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(0)
    w.add_head_count(0)
    w.add_block_count(c["num_hidden_layers"])
    w.add_ssm_conv_kernel(c["conv_kernel"])
    w.add_ssm_inner_size(inner)
    w.add_ssm_state_size(c["state_size"])
    w.add_ssm_time_step_rank(c["time_step_rank"])
    w.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    w.add_ssm_dt_b_c_rms(c["model_type"] == "falcon_mamba")


def mamba_tensors(c, name, x):
    if name.endswith(".A_log"):
        x = -x.exp()
    yield name, x.squeeze() if "conv1d.weight" in name else x


def mamba2_mixer(name, x, groups):
    """Mamba2Model.modify_tensors."""
    if name.endswith(".dt_bias"):
        name = name.removesuffix(".dt_bias") + ".dt_proj.bias"
    if name.endswith("conv1d.weight"):
        x = x.squeeze()
    elif name.endswith((".A_log", ".D")):
        x = x.reshape(*x.shape, 1)
    elif name.endswith((".mixer.norm.weight", ".mamba.norm.weight")):
        x = x.reshape(groups, -1)
    return name, -x.exp() if name.endswith(".A_log") else x


def mamba2_keys(w, c):
    inner = c["expand"] * c["hidden_size"]
    w.add_context_length(ANY_LENGTH)
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(0)
    w.add_head_count(0)
    w.add_block_count(c["num_hidden_layers"])
    w.add_ssm_conv_kernel(c["conv_kernel"])
    w.add_ssm_inner_size(inner)
    w.add_ssm_state_size(c["state_size"])
    w.add_ssm_time_step_rank(inner // c["head_dim"])
    w.add_ssm_group_count(c["n_groups"])
    w.add_layer_norm_rms_eps(c["layer_norm_epsilon"])


def mamba2_tensors(c, name, x):
    yield mamba2_mixer(name, x, c["n_groups"])


def falcon_keys(w, c):
    w.add_embedding_length(c["hidden_size"])
    w.add_ssm_conv_kernel(c["mamba_d_conv"])
    w.add_ssm_inner_size(c["mamba_d_ssm"])
    w.add_ssm_state_size(c["mamba_d_state"])
    w.add_ssm_time_step_rank(c["mamba_d_ssm"] // c["mamba_d_head"])
    w.add_ssm_group_count(c["mamba_n_groups"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_freq_base(c["rope_parameters"]["rope_theta"])


def falcon_tensors(c, name, x):
    name, x = mamba2_mixer(name, x, c["mamba_n_groups"])
    inside = c["attention_in_multiplier"]
    factors = {
        "down_proj": c["mlp_multipliers"][1],
        "gate_proj": c["mlp_multipliers"][0],
        "k_proj": c["key_multiplier"],
        "q_proj": inside,
        "v_proj": inside,
        "o_proj": c["attention_out_multiplier"],
        "out_proj": c["ssm_out_multiplier"],
        "in_proj": c["ssm_in_multiplier"],
        "lm_head": c["lm_head_multiplier"],
        "embed_tokens": c["embedding_multiplier"],
    }
    x = x * next((factor for part, factor in factors.items() if part in name), 1.0)
    if "k_proj" in name:
        x = x * inside
    if "in_proj" in name:
        inner = c["mamba_d_ssm"]
        keys = c["mamba_n_groups"] * c["mamba_d_state"]
        parts = x.split([inner, inner, keys, keys, x.shape[0] - 2 * inner - 2 * keys])
        x = torch.cat([m * part for m, part in zip(c["ssm_multipliers"], parts, strict=True)])
    yield name, x


def permuted(x, heads):
    """LlamaModel.permute."""
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def is_attention(c, layer):
    return c["layer_types"][layer] in ("attention", "full_attention")


def granite_keys(w, c):
    c = {name: value for name, value in c.items() if name != "head_dim"}
    layers = range(c["num_hidden_layers"])
    text_keys(w, {**c, "max_position_embeddings": None})
    w.add_vocab_size(c["vocab_size"])
    w.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    w.add_attention_scale(c["attention_multiplier"])
    w.add_embedding_scale(c["embedding_multiplier"])
    w.add_residual_scale(c["residual_multiplier"])
    w.add_logit_scale(c["logits_scaling"])
    w.add_expert_shared_feed_forward_length(c["shared_intermediate_size"])
    w.add_ssm_conv_kernel(c["mamba_d_conv"])
    w.add_ssm_state_size(c["mamba_d_state"])
    w.add_ssm_group_count(c["mamba_n_groups"])
    w.add_ssm_inner_size(c["mamba_expand"] * c["hidden_size"])
    w.add_ssm_time_step_rank(c["mamba_n_heads"])
    heads = c["num_key_value_heads"]
    w.add_head_count_kv([heads if is_attention(c, layer) else 0 for layer in layers])
    # The converter gives no hybrid positions; those of llama.cpp may have some.
    w.add_rope_scaling_finetuned(c["position_embedding_type"] == "rope")
    w.add_context_length(ANY_LENGTH)


def granite_tensors(c, name, x):
    """GraniteHybridModel.modify_tensors."""
    experts = c["num_local_experts"] > 0
    layer = f"blk.{name.split('.')[2]}." if ".layers." in name else ""
    ending = "_shexp.weight" if experts else ".weight"
    if name.endswith("block_sparse_moe.input_linear.weight"):
        gate, up = x.chunk(2, 1)
        yield layer + "ffn_gate_exps.weight", gate
        yield layer + "ffn_up_exps.weight", up
    elif name.endswith("shared_mlp.input_linear.weight"):
        gate, up = x.chunk(2)
        yield f"{layer}ffn_gate{ending}", gate
        yield f"{layer}ffn_up{ending}", up
    elif name.endswith("shared_mlp.output_linear.weight"):
        yield f"{layer}ffn_down{ending}", x
    elif ".mamba." in name:
        yield mamba2_mixer(name, x, c["mamba_n_groups"])
    elif name.endswith(("q_proj.weight", "q_proj.bias")):
        yield name, permuted(x, c["num_attention_heads"])
    elif name.endswith(("k_proj.weight", "k_proj.bias")):
        yield name, permuted(x, c["num_key_value_heads"])
    else:
        yield name, x


def qwen_keys(w, c):
    rope = text_keys(w, c)
    w.add_head_count_kv(c["num_key_value_heads"])
    if c.get("moe_intermediate_size") is not None:
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    if c.get("shared_expert_intermediate_size") is not None:
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
    w.add_ssm_state_size(c["linear_key_head_dim"])
    w.add_ssm_group_count(c["linear_num_key_heads"])
    w.add_ssm_time_step_rank(c["linear_num_value_heads"])
    w.add_ssm_inner_size(c["linear_value_head_dim"] * c["linear_num_value_heads"])
    later = c.get("later_layers", 0)  # of those that predict later tokens
    if later:
        w.add_block_count(c["num_hidden_layers"] + later)
        w.add_nextn_predict_layers(later)
    recurrent = [word == "linear_attention" for word in c["layer_types"]]
    w.add_array(f"{w.arch}.attention.recurrent_layers", recurrent + [False] * later)
    w.add_full_attention_interval(c.get("full_attention_interval", 4))
    part = rope.get("partial_rotary_factor", c.get("partial_rotary_factor", 0.25))
    w.add_rope_dimension_count(int(c["head_dim"] * part))
    if c["model_type"] != "qwen3_next" and "mrope_section" not in rope:
        w.add_rope_dimension_sections([11, 11, 10, 0])


def tiled(x, dim, c, width):
    """_reorder_v_heads."""
    shape, keys = x.shape, c["linear_num_key_heads"]
    apart = (*shape[:dim], keys, c["linear_num_value_heads"] // keys, width, *shape[dim + 1 :])
    return x.reshape(apart).transpose(dim, dim + 1).reshape(shape)


def qwen_delta(c, name, x):
    """_LinearAttentionVReorderBase.modify_tensors."""
    keys = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]
    width = c["linear_value_head_dim"]
    if ".in_proj_qkv." in name or ".conv1d" in name:
        x = x.squeeze()
        return torch.cat([x[:keys], tiled(x[keys:], 0, c, width)])
    if ".in_proj_z." in name:
        return tiled(x, 0, c, width)
    if ".out_proj." in name:
        return tiled(x, 1, c, width)
    if ".norm." in name:
        return x
    return tiled(x, 0, c, 1)


def qwen_tensors(c, name, x):
    """Qwen3NextModel.modify_tensors and, before, that of Qwen3.5."""
    layer = f"blk.{name.split('.')[2]}." if ".layers." in name else ""
    if c["model_type"] != "qwen3_next" and "linear_attn." in name:
        x = qwen_delta(c, name, x)
    if name.endswith(".A_log"):
        x = -x.exp()
    elif name.endswith(".dt_bias"):
        name = name.removesuffix(".dt_bias") + ".dt_proj.bias"
    elif "conv1d" in name:
        x = x.squeeze()
    elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        x = x + 1
    if "in_proj_qkvz.weight" in name:
        heads, d_key = c["linear_num_key_heads"], c["linear_key_head_dim"]
        values = c["linear_num_value_heads"] // heads * c["linear_value_head_dim"]
        rows = x.reshape(heads, -1, x.shape[1])
        q, k, v, z = (
            part.reshape(-1, x.shape[1]) for part in rows.split([d_key, d_key, values, values], 1)
        )
        yield layer + "attn_qkv.weight", torch.cat([q, k, v])
        yield layer + "attn_gate.weight", z
    elif name.endswith("mlp.experts.gate_up_proj"):
        gate, up = x.chunk(2, 1)
        yield name.replace("gate_up_proj", "gate_proj.weight"), gate
        yield name.replace("gate_up_proj", "up_proj.weight"), up
    elif name.endswith("mlp.experts.down_proj"):
        yield name + ".weight", x
    else:
        yield name, x


def rwkv_keys(w, c):
    assert c["intermediate_size"] is not None
    w.add_context_length(ANY_LENGTH)
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_layer_norm_eps(c["norm_eps"])
    w.add_wkv_head_size(c["head_dim"])
    w.add_decay_lora_rank(c["decay_low_rank_dim"])
    w.add_iclr_lora_rank(c["a_low_rank_dim"])
    w.add_value_residual_mix_lora_rank(c["v_low_rank_dim"])
    w.add_gate_lora_rank(c["gate_low_rank_dim"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(0)


def rwkv_tensors(c, name, x):
    """Rwkv7Model.filter_tensors and modify_tensors, but for the shares of the row before."""
    if name.startswith("blk."):
        yield name, x
        return
    name = name.replace("ffn", "feed_forward").replace("attn", "attention")
    name = name.replace("feed_forward_norm", "ln2").replace("g_norm", "ln_x")
    name = name.replace("_lora.lora.0.weight", "1.weight")
    name = name.replace("_lora.lora.2.weight", "2.weight")
    name = name.replace("_lora.lora.2.bias", "0.weight")
    x = x.squeeze()
    if name.endswith("attention.r_k"):
        x = x.flatten()
    for number in "012":
        if name == f"model.layers.0.attention.a{number}.weight":
            yield name.replace(f".a{number}.", f".v{number}."), x
    yield name, x


# model_type -> architecture, keys, tensors.
FAMILIES = {
    "mamba": (ARCH.MAMBA, mamba_keys, mamba_tensors),
    "falcon_mamba": (ARCH.MAMBA, mamba_keys, mamba_tensors),
    "mamba2": (ARCH.MAMBA2, mamba2_keys, mamba2_tensors),
    "falcon_h1": (ARCH.FALCON_H1, falcon_keys, falcon_tensors),
    "granitemoehybrid": (ARCH.GRANITE_HYBRID, granite_keys, granite_tensors),
    "qwen3_5_text": (ARCH.QWEN35, qwen_keys, qwen_tensors),
    "qwen3_5_moe_text": (ARCH.QWEN35MOE, qwen_keys, qwen_tensors),
    "qwen3_next": (ARCH.QWEN3NEXT, qwen_keys, qwen_tensors),
    "rwkv7": (ARCH.RWKV7, rwkv_keys, rwkv_tensors),
}


def merged(weights):
    """Tensors of experts and of RWKV-7's shares that the converter makes one of."""
    out = dict(weights)
    for name in weights:
        if ".mlp.experts.0." in name:
            first, last = name.split("experts.0.")
            parts = []
            while f"{first}experts.{len(parts)}.{last}" in out:
                parts.append(out.pop(f"{first}experts.{len(parts)}.{last}"))
            out[f"{first}experts.{last}"] = torch.stack(parts)
        if name.endswith("attn.x_r"):
            prefix = name.removesuffix("r")
            rows = [out.pop(prefix + one) for one in "rwkvag"]
            layer = name.split(".")[2]
            out[f"blk.{layer}.time_mix_lerp_fused.weight"] = torch.stack(rows)
    return out


def file_name(names, name):
    """By gguf-py's map; names of files are kept."""
    if name.startswith("blk."):
        return name
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, name
    return found


def later_layers(c):
    """Tensors of layers that predict later tokens, which no reader here runs."""
    generator = torch.Generator().manual_seed(5)
    for layer in range(c["num_hidden_layers"], c["num_hidden_layers"] + c.get("later_layers", 0)):
        for name in ("attn_norm", "attn_q", "nextn.enorm", "nextn.eh_proj"):
            yield f"blk.{layer}.{name}.weight", torch.randn(3, 5, generator=generator)


def tensors_of(c, weights):
    """The file's tensors, float32, by their names."""
    arch, _, change = FAMILIES[c["model_type"]]
    names = gguf.get_tensor_name_map(arch, c["num_hidden_layers"])
    out = {}
    for name, weight in merged(weights).items():
        for changed, x in change(c, name, weight.float()):
            own = file_name(names, changed)
            if c["model_type"] == "rwkv7" and not own.endswith((".weight", ".bias")):
                own += ".weight"
            out[own] = x.contiguous()
    out.update(later_layers(c))
    return out


def stored_type(name, x, kind):
    """As the converter decides: vectors, norms and some small tensors are always F32."""
    small = x.dim() < 2 or name.endswith("_norm.weight") or not name.endswith(".weight")
    if small or any(part in name for part in ALWAYS_F32):
        return gguf.GGMLQuantizationType.F32
    block = gguf.GGML_QUANT_SIZES[kind][0]
    return kind if x.shape[-1] % block == 0 else gguf.GGMLQuantizationType.F16


def convert(folder, path, kind=gguf.GGMLQuantizationType.F32, edit=None, **changes):
    """Writes the GGUF file of a published directory. kind: of matrices; changes: of
    config.json; edit: changes keys (a dict) and tensors (a dict) before they are written."""
    c = {**json.loads((folder / "config.json").read_text()), **changes}
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    arch, keys, _ = FAMILIES[c["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    keys(writer, c)
    tensors = tensors_of(c, weights)
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


def file_of(arch, keys, tensors_of, c, tensors):
    """What a rule of gguf_files.RULES gives: name, keys and tensors of the file, from the
    functions of a family."""
    name = gguf.MODEL_ARCH_NAMES[arch]
    writer = gguf.GGUFWriter(None, name)
    keys(writer, c)
    real = gguf.GGUFValueType.FLOAT32
    found = {
        key.removeprefix(f"{name}."): float(value.value) if value.type == real else value.value
        for key, value in writer.kv_data[0].items()
        if key.startswith(f"{name}.")
    }
    weights = {key: torch.from_numpy(tensor) for key, tensor in tensors.items()}
    return name, found, {key: x.numpy() for key, x in tensors_of(c, weights).items()}


def rule(c, tensors):
    """Of gguf_files.RULES."""
    arch, keys, _ = FAMILIES[c["model_type"]]
    return file_of(arch, keys, tensors_of, c, tensors)


gguf_files.RULES.update({kind: rule for kind in FAMILIES})


def rwkv_folder(folder, keys, seed=0):
    """A directory of RWKV-7 as flash-linear-attention writes it, of random numbers."""
    generator = torch.Generator().manual_seed(seed)
    d, heads = keys["hidden_size"], keys["hidden_size"] // keys["head_dim"]
    weights = {}

    def add(name, *shape, around=0.0):
        size = shape[-1] ** -0.5 if len(shape) > 1 else 0.2
        weights[name] = around + size * torch.randn(shape, generator=generator)

    def norm(name):
        add(f"{name}.weight", d, around=1.0)
        add(f"{name}.bias", d)

    add("model.embeddings.weight", keys["vocab_size"], d)
    if not keys.get("tie_word_embeddings"):
        add("lm_head.weight", keys["vocab_size"], d)
    norm("model.layers.0.pre_norm")
    norm("model.norm")
    for layer in range(keys["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        norm(at + "attn_norm")
        norm(at + "ffn_norm")
        norm(at + "attn.g_norm")
        for one in "rwkvag":
            add(f"{at}attn.x_{one}", 1, 1, d, around=0.5)
        for one in "rkvo":
            add(f"{at}attn.{one}_proj.weight", d, d)
        for one, rank in (("w", "decay"), ("a", "a"), ("v", "v"), ("g", "gate")):
            if one == "v" and layer == 0:
                continue
            width = keys[f"{rank}_low_rank_dim"]
            add(f"{at}attn.{one}_lora.lora.0.weight", width, d)
            add(f"{at}attn.{one}_lora.lora.2.weight", d, width)
            if one != "g":
                add(f"{at}attn.{one}_lora.lora.2.bias", d)
        add(f"{at}attn.k_k", d, around=0.8)
        add(f"{at}attn.k_a", d, around=1.0)
        add(f"{at}attn.r_k", heads, keys["head_dim"])
        add(f"{at}ffn.x_k", d, around=0.5)
        add(f"{at}ffn.key.weight", keys["intermediate_size"], d)
        add(f"{at}ffn.value.weight", d, keys["intermediate_size"])
    folder.mkdir(exist_ok=True)
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(keys))
    return folder
