// `lfm2` and `lfm2moe`: conversion/lfm2.py and src/models/lfm2*.cpp of
// llama.cpp. Layers without heads of keys are short convolutions.
#include <algorithm>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/gguf/expert_parts.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr const char* kLfmGgufEps = "attention.layer_norm_rms_epsilon";
constexpr int64_t kSigmoidGate = 2;  // expert_gating_func

void ReadGgufLfmStack(GgufKeys& from, PublishedKeys& to) {
  const int64_t layers = ReadGgufStack(from, to);
  const int64_t head_dim = ReadGgufHeads(from, to);
  const std::vector<int64_t> heads =
      from.PerLayer("attention.head_count_kv", 0, kMostSize, layers);
  const int64_t most = *std::max_element(heads.begin(), heads.end());
  to["layer_types"] = PublishedKeys::array();
  for (const int64_t count : heads) {
    if (count != 0 && count != most) {
      from.Refuse("attention.head_count_kv", StrCat("0 or ", most),
                  StrCat(count));
    }
    to["layer_types"].push_back(count == 0 ? "conv" : "full_attention");
  }
  to["num_key_value_heads"] = std::max<int64_t>(most, 1);
  to["norm_eps"] = GgufNormEps(from, kLfmGgufEps);
  to["conv_L_cache"] = from.Integer("shortconv.l_cache", 1, kMostSize);
  to["conv_bias"] = false;
  ReadGgufRotary(from, head_dim, /*part=*/false, to);
  from.Integer("attention.sliding_window", 0, 0, 0);
  from.Want("attention.causal", true);
}

void ReadGgufLfm2(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "lfm2";
  ReadGgufLfmStack(from, to);
  to["intermediate_size"] = from.Integer("feed_forward_length", 1, kMostSize);
  to["block_auto_adjust_ff_dim"] = false;  // the file has the width itself
}

void ReadGgufLfm2Moe(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "lfm2_moe";
  ReadGgufLfmStack(from, to);
  to["intermediate_size"] = from.Integer("feed_forward_length", 1, kMostSize);
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
  tensors.Move(theirs + "gate.weight", own + "ffn_gate_inp.weight");
  tensors.Move(theirs + "expert_bias", own + "exp_probs_b.bias");
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

void AddGgufLfmStack(const GgufExport& from, GgufArchitectureKeys& to) {
  const ModelConfig& config = from.config;
  const ModelConfig softmax = FirstView(config, "full");
  RequireNotForGguf(from, "conv_bias");
  const int64_t inner = softmax.n_heads * softmax.d_key;
  RequireForGguf(inner == config.d_model, "head_dim",
                 StrCat("heads that are as wide together as hidden_size, ",
                        config.d_model),
                 StrCat(inner));
  to.U32("block_count", config.n_layers);
  to.U32("context_length", 1 << 20);
  to.U32("embedding_length", config.d_model);
  to.U32("attention.head_count", softmax.n_heads);
  std::vector<int64_t> heads;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    heads.push_back(HasMixer(config, i, "full") ? KeyHeadsOf(softmax) : 0);
  }
  to.I32s("attention.head_count_kv", heads);
  to.F32(kLfmGgufEps, config.norm_eps);
  to.U32("shortconv.l_cache", PublishedInteger(from, "conv_L_cache"));
  AddGgufRotary(from, softmax.d_key, to);
}

void GgufLfm2Keys(const GgufExport& from, GgufKeyList& list) {
  GgufArchitectureKeys to("lfm2", list);
  AddGgufLfmStack(from, to);
  to.U32("feed_forward_length", PublishedInteger(from, "intermediate_size"));
}

void GgufLfm2MoeKeys(const GgufExport& from, GgufKeyList& list) {
  GgufArchitectureKeys to("lfm2moe", list);
  AddGgufLfmStack(from, to);
  const ModelConfig mixed = FirstViewWithPart(from.config, "moe");
  RequireForGguf(mixed.feed_forward == FeedForwardOf("moe"), "num_dense_layers",
                 "a layer with experts", "none");
  RequireForGguf(KeyOf<int64_t>(mixed, "router") == 2, "use_expert_bias",
                 "true", "false");
  RequireForGguf(KeyOf<bool>(mixed, "router_normalize"), "norm_topk_prob",
                 "true", "false");
  const double scale = KeyOf<double>(mixed, "router_scale");
  RequireForGguf(scale == 1.0, "routed_scaling_factor", "1", StrCat(scale));
  to.U32("feed_forward_length", PublishedInteger(from, "intermediate_size"));
  to.U32("expert_count", PublishedInteger(from, "num_experts"));
  to.U32("expert_used_count", PublishedInteger(from, "num_experts_per_tok"));
  to.U32("expert_feed_forward_length",
         PublishedInteger(from, "moe_intermediate_size"));
  to.U32("leading_dense_block_count",
         PublishedInteger(from, "num_dense_layers"));
  to.U32("expert_gating_func", kSigmoidGate);
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
