// `lfm2` and `lfm2moe`: conversion/lfm2.py and src/models/lfm2*.cpp of
// llama.cpp. Layers without heads of keys are short convolutions.
#include <algorithm>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/gguf/layer_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr const char* kLfmGgufEps = "attention.layer_norm_rms_epsilon";
constexpr int64_t kSigmoidGate = 2;  // expert_gating_func

void ReadGgufLfmStack(GgufKeys& from, PublishedKeys& to) {
  const int64_t layers = ReadGgufSizes(from, to);
  to["layer_types"] = PublishedKeys::array();
  for (const int64_t heads : ReadGgufLayerHeads(from, layers, to)) {
    to["layer_types"].push_back(heads == 0 ? "conv" : "full_attention");
  }
  to["norm_eps"] = from.Real(kLfmGgufEps);
  to["conv_L_cache"] = from.Integer("shortconv.l_cache", 1, kMostSize);
  to["conv_bias"] = false;
  to["intermediate_size"] = from.Integer("feed_forward_length", 1, kMostSize);
  ReadGgufRotary(from, to);
  from.Integer("attention.sliding_window", 0, 0, 0);
  from.Want("attention.causal", true);
}

void ReadGgufLfm2(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "lfm2";
  ReadGgufLfmStack(from, to);
  to["block_auto_adjust_ff_dim"] = false;  // the file has the width itself
}

void ReadGgufLfm2Moe(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "lfm2_moe";
  ReadGgufLfmStack(from, to);
  to["num_experts"] = from.Integer("expert_count", 1, 4096);
  to["num_experts_per_tok"] = from.Integer("expert_used_count", 1, 256);
  to["moe_intermediate_size"] =
      from.Integer("expert_feed_forward_length", 1, kMostSize);
  to["num_dense_layers"] =
      from.Integer("leading_dense_block_count", 0, kMaxLayers, 0);
  from.Integer("expert_gating_func", kSigmoidGate, kSigmoidGate);
  to["use_expert_bias"] = true;
  to["norm_topk_prob"] = true;
  to["routed_scaling_factor"] = 1.0;
}

void MoveLfmPart(const ModelConfig& view, const std::string& theirs,
                 const std::string& own, GgufTensors& tensors) {
  constexpr const char* kUnit[][2] = {
      {"w1", "ffn_gate"}, {"w3", "ffn_up"}, {"w2", "ffn_down"}};
  if (view.feed_forward != FeedForwardOf("moe")) {
    for (const auto& [published, name] : kUnit) {
      tensors.MoveLinear(theirs + published, own + name);
    }
    return;
  }
  MoveGgufRouter(theirs + "gate.weight", theirs + "expert_bias", own, tensors);
  MoveGgufExperts(view, theirs + "experts.", {"w1", "w3", "w2"}, own, tensors);
}

void MoveLfmMixer(const ModelConfig& view, const std::string& theirs,
                  const std::string& own, GgufTensors& tensors) {
  if (view.attention == MixerKind("short-conv")) {
    const int64_t width = KeyOf<int64_t>(view, "conv_width");
    tensors.MoveLinear(theirs + "conv.in_proj", own + "shortconv.in_proj");
    tensors.MoveAs(theirs + "conv.conv.weight", own + "shortconv.conv.weight",
                   {view.d_model, 1, width}, {view.d_model, width});
    tensors.MoveLinear(theirs + "conv.out_proj", own + "shortconv.out_proj");
    return;
  }
  constexpr const char* kMaps[][2] = {
      {"q_proj", "attn_q"},           {"k_proj", "attn_k"},
      {"v_proj", "attn_v"},           {"q_layernorm", "attn_q_norm"},
      {"k_layernorm", "attn_k_norm"}, {"out_proj", "attn_output"}};
  for (const auto& [published, name] : kMaps) {
    tensors.MoveLinear(StrCat(theirs, "self_attn.", published), own + name);
  }
}

void GgufLfmTensors(const ModelConfig& config, GgufTensors& tensors) {
  tensors.Move("model.embed_tokens.weight", "token_embd.weight");
  tensors.Move("model.embedding_norm.weight", "token_embd_norm.weight");
  tensors.MoveIf("lm_head.weight", "output.weight");
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string theirs = StrCat("model.layers.", i, ".");
    const std::string own = StrCat("blk.", i, ".");
    tensors.Move(theirs + "operator_norm.weight", own + "attn_norm.weight");
    tensors.Move(theirs + "ffn_norm.weight", own + "ffn_norm.weight");
    MoveLfmMixer(view, theirs, own, tensors);
    MoveLfmPart(view, theirs + "feed_forward.", own, tensors);
  }
}

void AddGgufLfmStack(const GgufExport& from, const std::string& name,
                     GgufKeyList& to) {
  const ModelConfig softmax = FirstView(from.config, "full");
  RequireNotForGguf(from, "conv_bias");
  RequireFullHeads(softmax, from.config.d_model);
  AddGgufSizes(from, name, to);
  AddGgufLayerHeads(from, name, /*widths=*/false, to);
  to.F32(StrCat(name, ".", kLfmGgufEps), from.config.norm_eps);
  to.U32(name + ".shortconv.l_cache", PublishedInteger(from, "conv_L_cache"));
  to.U32(name + ".feed_forward_length",
         PublishedInteger(from, "intermediate_size"));
  AddGgufRotaryKeys(from, name, softmax.d_key, to);
}

void GgufLfm2Keys(const GgufExport& from, GgufKeyList& to) {
  AddGgufLfmStack(from, "lfm2", to);
}

void GgufLfm2MoeKeys(const GgufExport& from, GgufKeyList& to) {
  const std::string own = "lfm2moe.";
  AddGgufLfmStack(from, "lfm2moe", to);
  const ModelConfig mixed = FirstViewWithPart(from.config, "moe");
  RequireForGguf(mixed.feed_forward == FeedForwardOf("moe"), "num_dense_layers",
                 "a layer with experts", "none");
  RequireForGguf(KeyOf<int64_t>(mixed, "router") == 2, "use_expert_bias",
                 "true", "false");
  RequireForGguf(KeyOf<bool>(mixed, "router_normalize"), "norm_topk_prob",
                 "true", "false");
  const double scale = KeyOf<double>(mixed, "router_scale");
  RequireForGguf(scale == 1.0, "routed_scaling_factor", "1", StrCat(scale));
  const auto put = [&](const char* key, const char* published) {
    to.U32(own + key, PublishedInteger(from, published));
  };
  put("expert_count", "num_experts");
  put("expert_used_count", "num_experts_per_tok");
  put("expert_feed_forward_length", "moe_intermediate_size");
  put("leading_dense_block_count", "num_dense_layers");
  to.U32(own + "expert_gating_func", kSigmoidGate);
}

}  // namespace

std::vector<GgufArchitecture> GgufLfmRows() {
  return {{"lfm2", ReadGgufLfm2, GgufLfmTensors, {"lfm2"}, GgufLfm2Keys},
          {"lfm2moe",
           ReadGgufLfm2Moe,
           GgufLfmTensors,
           {"lfm2_moe"},
           GgufLfm2MoeKeys}};
}

}  // namespace tarn
