// `kimi-linear`: conversion/kimi_linear.py and src/models/kimi-linear.cpp of
// llama.cpp. Layers without heads of keys are Kimi Delta Attention; of latent
// attention the file has the keys' product transposed, head by head.
#include <algorithm>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/gguf/layer_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kKimiSigmoid = 2;  // expert_gating_func

void ReadKimiGgufLatent(GgufKeys& from, PublishedKeys& to) {
  const int64_t shared = from.Integer("rope.dimension_count", 0, kMostSize);
  const int64_t rank = from.Integer("attention.kv_lora_rank", 1, kMostSize);
  const int64_t keys =
      from.Integer("attention.key_length_mla", shared + 1, kMostSize);
  to["num_key_value_heads"] = to["num_attention_heads"];
  to["kv_lora_rank"] = rank;
  to["qk_rope_head_dim"] = shared;
  to["qk_nope_head_dim"] = keys - shared;
  to["v_head_dim"] = from.Integer("attention.value_length_mla", 1, kMostSize);
  to["q_lora_rank"] = nullptr;
  if (from.Has("attention.q_lora_rank")) {
    to["q_lora_rank"] = from.Integer("attention.q_lora_rank", 1, kMostSize);
  }
  // Of the cache that llama.cpp keeps, and of positions, which there are none.
  from.Ignore({"attention.key_length", "attention.value_length",
               "rope.freq_base", "rope.scaling.type", "rope.scaling.factor"});
}

void ReadKimiGgufExperts(GgufKeys& from, PublishedKeys& to) {
  to["num_local_experts"] = from.Integer("expert_count", 1, 4096);
  to["num_experts_per_tok"] = from.Integer("expert_used_count", 1, 256);
  to["moe_intermediate_size"] =
      from.Integer("expert_feed_forward_length", 1, kMostSize);
  to["n_shared_experts"] = from.Integer("expert_shared_count", 1, 1 << 10, 1);
  to["first_k_dense_replace"] =
      from.Integer("leading_dense_block_count", 0, kMaxLayers, 0);
  from.Integer("expert_gating_func", kKimiSigmoid, kKimiSigmoid);
  from.Integer("expert_group_count", 1, 1, 1);
  from.Integer("expert_group_used_count", 1, 1, 1);
  to["routed_scaling_factor"] = GgufExpertScale(from);
  to["norm_topk_prob"] = true;
}

void ReadGgufKimi(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "kimi_linear";
  const int64_t layers = ReadGgufSizes(from, to);
  to.erase("tie_word_embeddings");
  const int64_t heads = from.Integer("attention.head_count", 1, kMostSize);
  to["num_attention_heads"] = heads;
  to["intermediate_size"] = from.Integer("feed_forward_length", 1, kMostSize);
  ReadGgufNorm(from, to);
  to["layer_types"] = PublishedKeys::array();
  for (const int64_t count :
       from.PerLayer("attention.head_count_kv", 0, kMostSize, layers)) {
    to["layer_types"].push_back(count == 0 ? "linear_attention"
                                           : "full_attention");
  }
  to["linear_num_heads"] = heads;
  to["linear_head_dim"] = from.Integer("kda.head_dim", 1, kMostSize);
  to["linear_conv_kernel_dim"] = from.Integer("ssm.conv_kernel", 1, kMostSize);
  ReadKimiGgufLatent(from, to);
  ReadKimiGgufExperts(from, to);
}

void MoveKimiDelta(const ModelConfig& view, const std::string& theirs,
                   const std::string& own, GgufTensors& tensors) {
  constexpr const char* kMaps[][2] = {
      {"q_proj", "attn_q"},    {"k_proj", "attn_k"},
      {"v_proj", "attn_v"},    {"f_a_proj", "ssm_f_a"},
      {"f_b_proj", "ssm_f_b"}, {"g_a_proj", "ssm_g_a"},
      {"g_b_proj", "ssm_g_b"}, {"b_proj", "ssm_beta"},
      {"o_norm", "ssm_norm"},  {"o_proj", "attn_output"}};
  for (const auto& [published, name] : kMaps) {
    tensors.Move(StrCat(theirs, published, ".weight"),
                 StrCat(own, name, ".weight"));
  }
  const int64_t heads = view.n_heads, channels = heads * view.d_key;
  const int64_t width = KeyOf<int64_t>(view, "conv_width");
  for (const char* kind : {"q", "k", "v"}) {
    tensors.Add(StrCat(theirs, kind, "_conv1d.weight"),
                tensors.Numbers(StrCat(own, "ssm_conv1d_", kind, ".weight"),
                                {channels, 1, width}, {1, channels, 1, width}));
  }
  tensors.Add(theirs + "A_log",
              tensors.Numbers(own + "ssm_a", {1, 1, heads, 1}, {1, 1, heads, 1})
                  .LogOfNegated());
  tensors.Move(theirs + "dt_bias", own + "ssm_dt.bias");
}

// kv_b_proj has a head's keys, then its values. llama.cpp's keys are
// transposed, as it multiplies queries by them.
WeightPart KimiLatentRows(const ModelConfig& view, const std::string& own,
                          int64_t rank, int64_t keys, GgufTensors& tensors) {
  const int64_t heads = view.n_heads, values = view.d_value;
  const WeightPart k = tensors(own + "attn_k_b.weight", {heads, rank, keys})
                           .Reshaped({heads * rank, keys});
  const WeightPart v = tensors(own + "attn_v_b.weight", {heads, values, rank})
                           .Reshaped({heads * values, rank});
  std::vector<WeightPart> parts;
  for (int64_t h = 0; h < heads; ++h) {
    parts.push_back(k.Rows({h * rank, (h + 1) * rank}).Transposed());
    parts.push_back(v.Rows({h * values, (h + 1) * values}));
  }
  return WeightPart::Stacked(parts);
}

void MoveKimiLatent(const ModelConfig& view, const std::string& theirs,
                    const std::string& own, GgufTensors& tensors) {
  constexpr const char* kMaps[][2] = {{"kv_a_proj_with_mqa", "attn_kv_a_mqa"},
                                      {"kv_a_layernorm", "attn_kv_a_norm"},
                                      {"o_proj", "attn_output"}};
  constexpr const char* kQueries[][2] = {{"q_a_proj", "attn_q_a"},
                                         {"q_a_layernorm", "attn_q_a_norm"},
                                         {"q_b_proj", "attn_q_b"}};
  const auto move = [&](const auto& map) {
    tensors.Move(StrCat(theirs, map[0], ".weight"),
                 StrCat(own, map[1], ".weight"));
  };
  for (const auto& map : kMaps) move(map);
  if (KeyOf<int64_t>(view, "query_latent_width") > 0) {
    for (const auto& map : kQueries) move(map);
  } else {
    tensors.Move(theirs + "q_proj.weight", own + "attn_q.weight");
  }
  const std::string both = own + "attn_kv_b.weight";
  if (!tensors.writes() && tensors.Has(theirs + "kv_b_proj.weight", both)) {
    tensors.Move(theirs + "kv_b_proj.weight", both);  // of older files
    return;
  }
  const int64_t rank = KeyOf<int64_t>(view, "latent_width");
  const int64_t keys = view.d_key - KeyOf<int64_t>(view, "shared_key_width");
  tensors.Add(theirs + "kv_b_proj.weight",
              KimiLatentRows(view, own, rank, keys, tensors));
}

void MoveKimiPart(const ModelConfig& view, const std::string& theirs,
                  const std::string& own, GgufTensors& tensors) {
  if (view.feed_forward != FeedForwardOf("moe")) {
    MoveGgufUnit(theirs, own, tensors);
    return;
  }
  MoveGgufRouter(theirs + "gate.weight",
                 theirs + "gate.e_score_correction_bias", own, tensors);
  MoveGgufExperts(view, theirs + "experts.", {"w1", "w3", "w2"}, own, tensors);
  constexpr const char* kShared[][2] = {{"gate_proj", "ffn_gate_shexp"},
                                        {"up_proj", "ffn_up_shexp"},
                                        {"down_proj", "ffn_down_shexp"}};
  for (const auto& [published, name] : kShared) {
    tensors.Move(StrCat(theirs, "shared_experts.", published, ".weight"),
                 StrCat(own, name, ".weight"));
  }
}

void GgufKimiTensors(const ModelConfig& config, GgufTensors& tensors) {
  tensors.Move("model.embed_tokens.weight", "token_embd.weight");
  tensors.Move("model.norm.weight", "output_norm.weight");
  tensors.Move("lm_head.weight", "output.weight");
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string theirs = StrCat("model.layers.", i, ".");
    const std::string own = StrCat("blk.", i, ".");
    tensors.Move(theirs + "input_layernorm.weight", own + "attn_norm.weight");
    tensors.Move(theirs + "post_attention_layernorm.weight",
                 own + "ffn_norm.weight");
    const auto mixer =
        view.attention == MixerKind("kda") ? MoveKimiDelta : MoveKimiLatent;
    mixer(view, theirs + "self_attn.", own, tensors);
    MoveKimiPart(view, theirs + "block_sparse_moe.", own, tensors);
  }
}

void AddKimiGgufExperts(const GgufExport& from, const std::string& own,
                        GgufKeyList& to) {
  const ModelConfig& config = from.config;
  const ModelConfig mixed = FirstViewWithPart(config, "moe");
  RequireForGguf(mixed.feed_forward == FeedForwardOf("moe"), "mlp_layer_types",
                 "a layer with experts", "none");
  RequireForGguf(KeyOf<bool>(mixed, "router_normalize"), "norm_topk_prob",
                 "true", "false");
  int64_t dense = 0;
  while (!HasPart(config, dense, "moe")) ++dense;
  for (int64_t i = dense; i < config.n_layers; ++i) {
    RequireForGguf(HasPart(config, i, "moe"), "mlp_layer_types",
                   "experts in all layers after the first that has some",
                   StrCat("none in layer ", i));
  }
  const auto put = [&](const char* key, const char* published) {
    to.U32(own + key, PublishedInteger(from, published));
  };
  put("expert_count", "num_local_experts");
  put("expert_used_count", "num_experts_per_tok");
  put("expert_feed_forward_length", "moe_intermediate_size");
  put("expert_shared_count", "n_shared_experts");
  to.U32(own + "leading_dense_block_count", dense);
  to.U32(own + "expert_gating_func", kKimiSigmoid);
  to.F32(own + "expert_weights_scale",
         PublishedReal(from, "routed_scaling_factor"));
}

// Of the layers of latent attention llama.cpp keeps one head of latent keys.
void AddKimiGgufLatent(const GgufExport& from, const std::string& own,
                       GgufKeyList& to) {
  const ModelConfig softmax = FirstView(from.config, "full");
  const int64_t queries = KeyOf<int64_t>(softmax, "query_latent_width");
  RequireForGguf(queries == 0, "q_lora_rank", "null", StrCat(queries));
  const int64_t rank = PublishedInteger(from, "kv_lora_rank");
  const int64_t shared = PublishedInteger(from, "qk_rope_head_dim");
  std::vector<int64_t> heads;
  for (int64_t i = 0; i < from.config.n_layers; ++i) {
    heads.push_back(HasMixer(from.config, i, "full") ? 1 : 0);
  }
  to.U32(own + "attention.head_count", softmax.n_heads);
  to.I32s(own + "attention.head_count_kv", heads);
  to.U32(own + "attention.kv_lora_rank", rank);
  to.U32(own + "attention.key_length", rank + shared);
  to.U32(own + "attention.value_length", rank);
  to.U32(own + "attention.key_length_mla", softmax.d_key);
  to.U32(own + "attention.value_length_mla", softmax.d_value);
  to.U32(own + "rope.dimension_count", shared);
}

void GgufKimiKeys(const GgufExport& from, GgufKeyList& to) {
  const std::string own = "kimi-linear.";
  const ModelConfig& config = from.config;
  const ModelConfig delta = FirstView(config, "kda");
  for (const char* mixer : {"full", "kda"}) {
    RequireForGguf(FirstView(config, mixer).attention == MixerKind(mixer),
                   "layer_types", "layers of both types", "one type");
  }
  const int64_t heads = PublishedInteger(from, "num_attention_heads");
  RequireForGguf(delta.n_heads == heads, "linear_num_heads",
                 StrCat("num_attention_heads, ", heads), StrCat(delta.n_heads));
  AddGgufSizes(from, "kimi-linear", to);
  AddKimiGgufLatent(from, own, to);
  to.U32(own + "feed_forward_length",
         PublishedInteger(from, "intermediate_size"));
  to.F32(own + "attention.layer_norm_rms_epsilon", config.norm_eps);
  to.U32(own + "ssm.conv_kernel",
         PublishedInteger(from, "linear_conv_kernel_dim"));
  to.U32(own + "kda.head_dim", delta.d_key);
  AddKimiGgufExperts(from, own, to);
}

}  // namespace

std::vector<GgufArchitecture> GgufKimiRows() {
  return {{"kimi-linear",
           ReadGgufKimi,
           GgufKimiTensors,
           {"kimi_linear"},
           GgufKimiKeys}};
}

}  // namespace tarn
