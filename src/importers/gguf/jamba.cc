// `jamba`: conversion/jamba.py and src/models/jamba.cpp of llama.cpp. Layers
// without heads of keys are Mamba-1, whose steps, keys and queries are normed.
#include <algorithm>

#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/gguf/layer_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

// The published type knows periods alone: layers as far apart as the first two.
// key: of the file, for the error where they are not.
void PutJambaPeriod(GgufKeys& from, const char* key,
                    const std::vector<bool>& layers, const char* length,
                    const char* offset, PublishedKeys& to) {
  const auto first = std::find(layers.begin(), layers.end(), true);
  const int64_t at = first - layers.begin();
  int64_t period = std::ssize(layers) + 1;
  if (first != layers.end()) {
    const auto second = std::find(first + 1, layers.end(), true);
    if (second != layers.end()) period = second - first;
  }
  for (int64_t i = 0; i < std::ssize(layers); ++i) {
    if (layers[static_cast<size_t>(i)] == (i % period == at)) continue;
    from.Refuse(key, StrCat("layers of one period, as ", period, " from ", at),
                StrCat("another layer, ", i));
  }
  to[length] = period;
  to[offset] = at;
}

void ReadJambaGgufLayers(GgufKeys& from, int64_t layers, PublishedKeys& to) {
  std::vector<bool> full, mixed;
  for (const int64_t heads : ReadGgufLayerHeads(from, layers, to)) {
    mixed.push_back(
        from.HasTensor(StrCat("blk.", full.size(), ".ffn_gate_inp.weight")));
    full.push_back(heads > 0);
  }
  PutJambaPeriod(from, "attention.head_count_kv", full, "attn_layer_period",
                 "attn_layer_offset", to);
  PutJambaPeriod(from, "expert_count", mixed, "expert_layer_period",
                 "expert_layer_offset", to);
  const bool any = std::find(mixed.begin(), mixed.end(), true) != mixed.end();
  const int64_t experts = from.Integer("expert_count", 0, 4096, 0);
  const int64_t chosen = from.Integer("expert_used_count", 0, 256, 0);
  to["num_experts"] = any ? experts : 1;
  to["num_experts_per_tok"] = any ? chosen : 1;
}

void ReadJambaGgufMamba(GgufKeys& from, int64_t layers, PublishedKeys& to) {
  const int64_t inner = from.Integer("ssm.inner_size", 1, kMostSize);
  const int64_t d_model = to["hidden_size"].get<int64_t>();
  if (inner % d_model != 0) {
    from.Refuse("ssm.inner_size",
                StrCat("a multiple of embedding_length, ", d_model),
                StrCat(inner));
  }
  to["mamba_expand"] = inner / d_model;
  to["mamba_d_state"] = from.Integer("ssm.state_size", 1, kMostSize);
  to["mamba_dt_rank"] = from.Integer("ssm.time_step_rank", 1, kMostSize);
  to["mamba_d_conv"] = from.Integer("ssm.conv_kernel", 1, kMostSize);
  int64_t block = 0;  // the first of Mamba-1
  while (block < layers &&
         !from.HasTensor(StrCat("blk.", block, ".ssm_in.weight"))) {
    ++block;
  }
  const std::string own = StrCat("blk.", block, ".");
  to["mamba_conv_bias"] =
      block == layers || from.HasTensor(own + "ssm_conv1d.bias");
  to["mamba_proj_bias"] = from.HasTensor(own + "ssm_in.bias");
}

void ReadGgufJamba(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "jamba";
  const int64_t layers = ReadGgufSizes(from, to);
  ReadJambaGgufLayers(from, layers, to);
  to["intermediate_size"] = from.Integer("feed_forward_length", 1, kMostSize);
  ReadGgufNorm(from, to);
  ReadJambaGgufMamba(from, layers, to);
}

void MoveJambaMamba(const ModelConfig& view, const std::string& theirs,
                    const std::string& own, GgufTensors& tensors) {
  const int64_t channels = view.n_heads * view.d_value;
  const int64_t width = KeyOf<int64_t>(view, "conv_width");
  tensors.MoveLinear(theirs + "in_proj", own + "ssm_in");
  tensors.MoveAs(theirs + "conv1d.weight", own + "ssm_conv1d.weight",
                 {channels, 1, width}, {channels, width});
  tensors.MoveIf(theirs + "conv1d.bias", own + "ssm_conv1d.bias");
  constexpr const char* kMaps[][2] = {
      {"x_proj", "ssm_x"},           {"dt_layernorm", "ssm_dt_norm"},
      {"b_layernorm", "ssm_b_norm"}, {"c_layernorm", "ssm_c_norm"},
      {"dt_proj", "ssm_dt"},         {"out_proj", "ssm_out"}};
  for (const auto& [published, name] : kMaps) {
    tensors.MoveLinear(theirs + published, own + name);
  }
  tensors.Add(theirs + "A_log",
              GgufRates(tensors, own + "ssm_a", {channels, view.d_key}));
  tensors.Move(theirs + "D", own + "ssm_d");
}

void GgufJambaTensors(const ModelConfig& config, GgufTensors& tensors) {
  tensors.Move("model.embed_tokens.weight", "token_embd.weight");
  tensors.Move("model.final_layernorm.weight", "output_norm.weight");
  tensors.MoveIf("lm_head.weight", "output.weight");
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string theirs = StrCat("model.layers.", i, ".");
    const std::string own = StrCat("blk.", i, ".");
    tensors.Move(theirs + "input_layernorm.weight", own + "attn_norm.weight");
    tensors.Move(theirs + "pre_ff_layernorm.weight", own + "ffn_norm.weight");
    if (view.attention == MixerKind("mamba1")) {
      MoveJambaMamba(view, theirs + "mamba.", own, tensors);
    } else {
      const std::string softmax = theirs + "self_attn.";
      tensors.MoveLinear(softmax + "q_proj", own + "attn_q");
      tensors.MoveLinear(softmax + "k_proj", own + "attn_k");
      tensors.MoveLinear(softmax + "v_proj", own + "attn_v");
      tensors.MoveLinear(softmax + "o_proj", own + "attn_output");
    }
    const std::string part = theirs + "feed_forward.";
    if (view.feed_forward != FeedForwardOf("moe")) {
      MoveGgufUnit(part, own, tensors);
      continue;
    }
    tensors.Move(part + "router.weight", own + "ffn_gate_inp.weight");
    MoveGgufExperts(view, part + "experts.",
                    {"gate_proj", "up_proj", "down_proj"}, own, tensors);
  }
}

void GgufJambaKeys(const GgufExport& from, GgufKeyList& to) {
  const std::string own = "jamba.";
  const ModelConfig& config = from.config;
  const ModelConfig mamba = FirstView(config, "mamba1");
  RequireForGguf(mamba.attention == MixerKind("mamba1"), "attn_layer_period",
                 "a layer of Mamba", "none");
  const int64_t inner = mamba.n_heads * mamba.d_value;
  RequireForGguf(inner == 2 * config.d_model, "mamba_expand", "2",
                 StrCat(inner, " channels of ", config.d_model));
  RequireNotForGguf(from, "mamba_proj_bias");
  RequireFullHeads(FirstView(config, "full"), config.d_model);
  AddGgufSizes(from, "jamba", to);
  AddGgufLayerHeads(from, "jamba", /*widths=*/false, to);
  const auto put = [&](const char* key, const char* published) {
    to.U32(own + key, PublishedInteger(from, published));
  };
  put("feed_forward_length", "intermediate_size");
  to.F32(own + "attention.layer_norm_rms_epsilon", config.norm_eps);
  put("ssm.conv_kernel", "mamba_d_conv");
  to.U32(own + "ssm.inner_size", inner);
  put("ssm.state_size", "mamba_d_state");
  put("ssm.time_step_rank", "mamba_dt_rank");
  if (PublishedInteger(from, "num_experts") == 1) return;
  put("expert_count", "num_experts");
  put("expert_used_count", "num_experts_per_tok");
}

}  // namespace

std::vector<GgufArchitecture> GgufJambaRows() {
  return {{"jamba", ReadGgufJamba, GgufJambaTensors, {"jamba"}, GgufJambaKeys}};
}

}  // namespace tarn
