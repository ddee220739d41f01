// `nemotron_h` and `nemotron_h_moe`: conversion/nemotron.py and
// src/models/nemotron-h.cpp of llama.cpp. A block of the file is one of the
// published ones: Mamba-2, attention, or a feed-forward part, which a layer of
// tarn's has with the mixer before it.
#include <algorithm>

#include "config/bounds.h"
#include "config/feed_forward_form.h"
#include "core/text.h"
#include "importers/gguf/expert_parts.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr const char* kNemotronEps = "attention.layer_norm_rms_epsilon";
constexpr const char* kNemotronOtherEps = "attention.layer_norm_epsilon";

enum class NemotronBlock : uint8_t { kMamba, kSoftmax, kPart };

// By the numbers of a block: attention has heads of keys, a feed-forward part a
// width, and Mamba-2 neither. Of blocks that predict later tokens nothing is
// run.
std::vector<NemotronBlock> NemotronBlocks(GgufKeys& from, int64_t blocks,
                                          int64_t later) {
  const std::vector<int64_t> heads =
      from.PerLayer("attention.head_count_kv", 0, kMostSize, blocks + later);
  const std::vector<int64_t> widths =
      from.PerLayer("feed_forward_length", 0, kMostSize, blocks + later);
  std::vector<NemotronBlock> all;
  for (size_t i = 0; i < static_cast<size_t>(blocks); ++i) {
    all.push_back(widths[i] > 0  ? NemotronBlock::kPart
                  : heads[i] > 0 ? NemotronBlock::kSoftmax
                                 : NemotronBlock::kMamba);
  }
  return all;
}

// The number that all blocks have which have one.
int64_t NemotronOne(GgufKeys& from, const char* key,
                    const std::vector<int64_t>& values, int64_t absent) {
  int64_t one = 0;
  for (const int64_t value : values) {
    if (value == 0 || value == one) continue;
    if (one != 0) from.Refuse(key, StrCat("0 or ", one), StrCat(value));
    one = value;
  }
  return one == 0 ? absent : one;
}

int64_t FirstBlock(const std::vector<NemotronBlock>& blocks,
                   NemotronBlock wanted) {
  return std::find(blocks.begin(), blocks.end(), wanted) - blocks.begin();
}

void ReadNemotronGgufExperts(GgufKeys& from, int64_t width, PublishedKeys& to) {
  const int64_t experts = from.Integer("expert_count", 1, 4096);
  const int64_t chosen =
      NemotronOne(from, "expert_used_count",
                  from.PerLayer("expert_used_count", 0, experts,
                                from.Integer("block_count", 1, 2 * kMaxLayers)),
                  1);
  to["n_routed_experts"] = experts;
  to["num_experts_per_tok"] = chosen;
  to["moe_intermediate_size"] =
      from.Has("expert_feed_forward_length")
          ? NemotronOne(
                from, "expert_feed_forward_length",
                from.PerLayer("expert_feed_forward_length", 0, kMostSize,
                              from.Integer("block_count", 1, 2 * kMaxLayers)),
                width)
          : width / chosen;
  to["moe_shared_expert_intermediate_size"] =
      from.Integer("expert_shared_feed_forward_length", 1, kMostSize);
  to["norm_topk_prob"] = from.Flag("expert_weights_norm", false);
  const double scale = from.Real("expert_weights_scale", 0.0);
  to["routed_scaling_factor"] = scale == 0.0 ? 1.0 : scale;
  to["n_group"] = from.Integer("expert_group_count", 1, 1, 1);
  to["topk_group"] = from.Integer("expert_group_used_count", 1, 1, 1);
  from.Ignore({"expert_shared_count"});
  if (from.Has("moe_latent_size")) {
    to["moe_latent_size"] = from.Integer("moe_latent_size", 0, kMostSize);
  }
}

void ReadGgufNemotron(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "nemotron_h";
  const int64_t later = from.Integer("nextn_predict_layers", 0, 64, 0);
  const int64_t count = ReadGgufStack(from, to, later);
  const std::vector<NemotronBlock> blocks = NemotronBlocks(from, count, later);
  ReadGgufHeads(from, to);
  to["num_key_value_heads"] = NemotronOne(
      from, "attention.head_count_kv",
      from.PerLayer("attention.head_count_kv", 0, kMostSize, count + later), 1);
  const char* eps = from.Has(kNemotronEps) ? kNemotronEps : kNemotronOtherEps;
  to["layer_norm_epsilon"] = GgufNormEps(from, eps);
  from.Ignore({kNemotronOtherEps, "rope.dimension_count", "rope.freq_base",
               "rope.scaling.finetuned"});
  const bool mixed = from.Has("expert_count");
  to["layers_block_type"] = PublishedKeys::array();
  for (const NemotronBlock block : blocks) {
    to["layers_block_type"].push_back(
        block == NemotronBlock::kMamba     ? "linear_attention"
        : block == NemotronBlock::kSoftmax ? "full_attention"
        : mixed                            ? "moe"
                                           : "mlp");
  }
  PublishedKeys mamba;
  ReadGgufMamba2(from, FirstBlock(blocks, NemotronBlock::kMamba), mamba);
  to["mamba_num_heads"] = mamba["mamba_n_heads"];
  to["mamba_head_dim"] = mamba["mamba_d_head"];
  to["ssm_state_size"] = mamba["mamba_d_state"];
  to["n_groups"] = mamba["mamba_n_groups"];
  to["conv_kernel"] = mamba["mamba_d_conv"];
  to["use_conv_bias"] = mamba["mamba_conv_bias"];
  to["use_bias"] = mamba["mamba_proj_bias"];
  to["time_step_min"] = 0.0;  // llama.cpp's steps have no limit
  const int64_t width = NemotronOne(
      from, "feed_forward_length",
      from.PerLayer("feed_forward_length", 0, kMostSize, count + later), 1);
  if (mixed) return ReadNemotronGgufExperts(from, width, to);
  const int64_t part = FirstBlock(blocks, NemotronBlock::kPart);
  to["intermediate_size"] = width;
  to["mlp_bias"] = from.HasTensor(StrCat("blk.", part, ".ffn_up.bias"));
}

void MoveNemotronPart(const ModelConfig& view, const std::string& theirs,
                      const std::string& own, GgufTensors& tensors) {
  if (view.feed_forward != FeedForwardOf("moe")) {
    tensors.MoveLinear(theirs + "up_proj", own + "ffn_up");
    tensors.MoveLinear(theirs + "down_proj", own + "ffn_down");
    return;
  }
  tensors.Move(theirs + "gate.weight", own + "ffn_gate_inp.weight");
  tensors.Move(theirs + "gate.e_score_correction_bias",
               own + "exp_probs_b.bias");
  MoveGgufExperts(view, theirs + "experts.", {nullptr, "up_proj", "down_proj"},
                  own, tensors);
  const std::string shared = theirs + "shared_experts.";
  tensors.Move(shared + "up_proj.weight", own + "ffn_up_shexp.weight");
  tensors.Move(shared + "down_proj.weight", own + "ffn_down_shexp.weight");
}

// The published type always has a head; files leave out one that is the
// embedding.
void MoveNemotronEnds(const ModelConfig& config, GgufTensors& tensors) {
  const std::string head = "lm_head.weight", embedding = "token_embd.weight";
  tensors.Move("backbone.embeddings.weight", embedding);
  tensors.Move("backbone.norm_f.weight", "output_norm.weight");
  if (tensors.Has(head, "output.weight")) {
    tensors.Move(head, "output.weight");
  } else {
    tensors.Add(head, tensors(embedding, {config.vocab_size, config.d_model}));
  }
}

void GgufNemotronTensors(const ModelConfig& config, GgufTensors& tensors) {
  MoveNemotronEnds(config, tensors);
  int64_t block = 0;
  std::string theirs, own;
  const auto next = [&] {
    theirs = StrCat("backbone.layers.", block, ".");
    own = StrCat("blk.", block++, ".");
    tensors.Move(theirs + "norm.weight", own + "attn_norm.weight");
    theirs += "mixer.";
  };
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    next();
    if (view.attention == MixerKind("mamba2")) {
      MoveGgufMamba2(view, theirs, own, tensors);
    } else {
      tensors.MoveLinear(theirs + "q_proj", own + "attn_q");
      tensors.MoveLinear(theirs + "k_proj", own + "attn_k");
      tensors.MoveLinear(theirs + "v_proj", own + "attn_v");
      tensors.MoveLinear(theirs + "o_proj", own + "attn_output");
    }
    if (!HasFeedForward(view)) continue;
    next();
    MoveNemotronPart(view, theirs, own, tensors);
  }
  for (int64_t later = 0; later < 64; ++later) {
    tensors.Skip(StrCat("blk.", block + later, "."));
  }
}

void AddNemotronExperts(const GgufExport& from, GgufArchitectureKeys& to) {
  to.U32("expert_count", PublishedInteger(from, "n_routed_experts"));
  to.U32("expert_used_count", PublishedInteger(from, "num_experts_per_tok"));
  to.U32("expert_feed_forward_length",
         PublishedInteger(from, "moe_intermediate_size"));
  to.U32("expert_shared_feed_forward_length",
         PublishedInteger(from, "moe_shared_expert_intermediate_size"));
  to.U32("expert_shared_count", 1);
  to.U32("expert_group_count", 1);
  to.Bool("expert_weights_norm", from.published.value("norm_topk_prob", true));
  to.F32("expert_weights_scale", PublishedReal(from, "routed_scaling_factor"));
}

// The words of the blocks, of which parts are either all experts or none.
void AddNemotronBlocks(const GgufExport& from, bool mixed,
                       GgufArchitectureKeys& to) {
  const char* wanted = mixed ? "moe" : "mlp";
  const int64_t width = PublishedInteger(
      from, mixed ? "moe_intermediate_size" : "intermediate_size");
  std::vector<int64_t> heads, widths;
  for (const nlohmann::json& block : from.published.at("layers_block_type")) {
    const bool part = block == "moe" || block == "mlp";
    RequireForGguf(!part || block == wanted, "layers_block_type",
                   StrCat(wanted, " alone"), block.dump());
    heads.push_back(block == "full_attention"
                        ? PublishedInteger(from, "num_key_value_heads")
                        : 0);
    widths.push_back(part ? width : 0);
  }
  to.U32("block_count", std::ssize(widths));
  to.I32s("attention.head_count_kv", heads);
  to.I32s("feed_forward_length", widths);
}

void GgufNemotronKeysOf(const char* architecture, bool mixed,
                        const GgufExport& from, GgufKeyList& list) {
  GgufArchitectureKeys to(architecture, list);
  const ModelConfig& config = from.config;
  const ModelConfig mamba = FirstView(config, "mamba2");
  RequireForGguf(mamba.attention == MixerKind("mamba2"), "layers_block_type",
                 "a block of Mamba-2", "none");
  const double least = KeyOf<double>(mamba, "least_step");
  RequireForGguf(least == 0.0, "time_step_min", "0", StrCat(least));
  AddNemotronBlocks(from, mixed, to);
  to.U32("context_length", 1 << 20);
  to.U32("embedding_length", config.d_model);
  to.U32("attention.head_count", PublishedInteger(from, "num_attention_heads"));
  to.U32("attention.key_length", PublishedInteger(from, "head_dim"));
  to.U32("attention.value_length", PublishedInteger(from, "head_dim"));
  to.F32(kNemotronEps, config.norm_eps);
  to.F32(kNemotronOtherEps, config.norm_eps);
  to.U32("rope.dimension_count", PublishedInteger(from, "head_dim"));
  to.Bool("rope.scaling.finetuned", false);
  AddGgufMamba2(mamba, to);
  if (mixed) AddNemotronExperts(from, to);
}

bool HasExpertBlocks(const GgufExport& from) {
  return FirstViewWithPart(from.config, "moe").feed_forward ==
         FeedForwardOf("moe");
}

void GgufNemotronKeys(const GgufExport& from, GgufKeyList& list) {
  RequireForGguf(!HasExpertBlocks(from), "layers_block_type",
                 "no experts in nemotron_h", "some");
  GgufNemotronKeysOf("nemotron_h", false, from, list);
}

void GgufNemotronMoeKeys(const GgufExport& from, GgufKeyList& list) {
  RequireForGguf(HasExpertBlocks(from), "layers_block_type",
                 "experts in nemotron_h_moe", "none");
  GgufNemotronKeysOf("nemotron_h_moe", true, from, list);
}

}  // namespace

std::vector<GgufArchitecture> GgufNemotronRows() {
  return {{"nemotron_h",
           ReadGgufNemotron,
           GgufNemotronTensors,
           {"nemotron_h"},
           GgufNemotronKeys},
          {"nemotron_h_moe",
           ReadGgufNemotron,
           GgufNemotronTensors,
           {"nemotron_h"},
           GgufNemotronMoeKeys}};
}

}  // namespace tarn
