// `nemotron_h` and `nemotron_h_moe`: conversion/nemotron.py and
// src/models/nemotron-h.cpp of llama.cpp. A block of the file is one of the
// published ones: Mamba-2, attention, or a feed-forward part, which a layer of
// tarn's has with the mixer before it.
#include <algorithm>

#include "config/bounds.h"
#include "config/feed_forward_form.h"
#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/gguf/layer_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr const char* kNemotronEps = "attention.layer_norm_rms_epsilon";
constexpr const char* kNemotronOtherEps = "attention.layer_norm_epsilon";
constexpr int64_t kNemotronContext = 1 << 20;  // of convert_hf_to_gguf.py

enum class NemotronBlock : uint8_t { kMamba, kSoftmax, kPart };

// By the numbers of a block: attention has heads of keys, a feed-forward part a
// width, and Mamba-2 neither.
std::vector<NemotronBlock> NemotronBlocks(const std::vector<int64_t>& heads,
                                          const std::vector<int64_t>& widths) {
  std::vector<NemotronBlock> blocks;
  for (size_t i = 0; i < heads.size(); ++i) {
    blocks.push_back(widths[i] > 0  ? NemotronBlock::kPart
                     : heads[i] > 0 ? NemotronBlock::kSoftmax
                                    : NemotronBlock::kMamba);
  }
  return blocks;
}

int64_t FirstBlock(const std::vector<NemotronBlock>& blocks,
                   NemotronBlock wanted) {
  return std::find(blocks.begin(), blocks.end(), wanted) - blocks.begin();
}

void ReadNemotronGgufExperts(GgufKeys& from, int64_t blocks, int64_t width,
                             PublishedKeys& to) {
  const auto one = [&](const char* key, int64_t most, int64_t absent) {
    return OneGgufNumber(from, key, from.PerLayer(key, 0, most, blocks),
                         absent);
  };
  constexpr const char* kWidth = "expert_feed_forward_length";
  const int64_t experts = from.Integer("expert_count", 1, 4096);
  const int64_t chosen = one("expert_used_count", experts, 1);
  to["n_routed_experts"] = experts;
  to["num_experts_per_tok"] = chosen;
  to["moe_intermediate_size"] =
      from.Has(kWidth) ? one(kWidth, kMostSize, width) : width / chosen;
  to["moe_shared_expert_intermediate_size"] =
      from.Integer("expert_shared_feed_forward_length", 1, kMostSize);
  to["norm_topk_prob"] = from.Flag("expert_weights_norm", false);
  to["routed_scaling_factor"] = GgufExpertScale(from);
  to["n_group"] = from.Integer("expert_group_count", 1, 1, 1);
  to["topk_group"] = from.Integer("expert_group_used_count", 1, 1, 1);
  from.Ignore({"expert_shared_count", "expert_gating_func"});
  if (from.Has("moe_latent_size")) {
    to["moe_latent_size"] = from.Integer("moe_latent_size", 0, kMostSize);
  }
}

void ReadNemotronGgufMamba(GgufKeys& from, int64_t block, PublishedKeys& to) {
  PublishedKeys mamba;
  ReadGgufMamba2(from, block, mamba);
  to["mamba_num_heads"] = mamba["mamba_n_heads"];
  to["mamba_head_dim"] = mamba["mamba_d_head"];
  to["ssm_state_size"] = mamba["mamba_d_state"];
  to["n_groups"] = mamba["mamba_n_groups"];
  to["conv_kernel"] = mamba["mamba_d_conv"];
  to["use_conv_bias"] = mamba["mamba_conv_bias"];
  to["use_bias"] = mamba["mamba_proj_bias"];
  to["time_step_min"] = 0.0;  // llama.cpp's steps have no limit
}

void ReadGgufNemotron(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "nemotron_h";
  const int64_t all = ReadGgufSizes(from, to);
  const int64_t later = from.Integer("nextn_predict_layers", 0, all - 1, 0);
  std::vector<int64_t> heads = ReadGgufLayerHeads(from, all, to);
  std::vector<int64_t> widths =
      from.PerLayer("feed_forward_length", 0, kMostSize, all);
  const int64_t width = OneGgufNumber(from, "feed_forward_length", widths, 1);
  // The last blocks predict later tokens and are left out.
  heads.resize(static_cast<size_t>(all - later));
  widths.resize(heads.size());
  const std::vector<NemotronBlock> blocks = NemotronBlocks(heads, widths);
  to["num_hidden_layers"] = all - later;
  to["layer_norm_epsilon"] =
      from.Real(from.Has(kNemotronEps) ? kNemotronEps : kNemotronOtherEps);
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
  ReadNemotronGgufMamba(from, FirstBlock(blocks, NemotronBlock::kMamba), to);
  if (mixed) return ReadNemotronGgufExperts(from, all, width, to);
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
  MoveGgufRouter(theirs + "gate.weight",
                 theirs + "gate.e_score_correction_bias", own, tensors);
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
  // Further blocks predict later tokens.
  while (!tensors.writes() &&
         tensors.Has("", StrCat("blk.", block, ".attn_norm.weight"))) {
    tensors.Skip(StrCat("blk.", block++, "."));
  }
}

void AddNemotronExperts(const GgufExport& from, const std::string& own,
                        GgufKeyList& to) {
  const auto put = [&](const char* key, const char* published) {
    to.U32(own + key, PublishedInteger(from, published));
  };
  put("expert_count", "n_routed_experts");
  put("expert_used_count", "num_experts_per_tok");
  put("expert_feed_forward_length", "moe_intermediate_size");
  put("expert_shared_feed_forward_length",
      "moe_shared_expert_intermediate_size");
  to.U32(own + "expert_shared_count", 1);
  to.U32(own + "expert_group_count", 1);
  to.Bool(own + "expert_weights_norm",
          from.published.value("norm_topk_prob", true));
  to.F32(own + "expert_weights_scale",
         PublishedReal(from, "routed_scaling_factor"));
}

// The words of the blocks, of which parts are either all experts or none.
void AddNemotronBlocks(const GgufExport& from, bool mixed,
                       const std::string& own, GgufKeyList& to) {
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
  to.U32(own + "block_count", std::ssize(widths));
  to.I32s(own + "attention.head_count_kv", heads);
  to.I32s(own + "feed_forward_length", widths);
}

bool HasNemotronExperts(const ModelConfig& config) {
  return FirstViewWithPart(config, "moe").feed_forward == FeedForwardOf("moe");
}

void GgufNemotronKeys(const GgufExport& from, GgufKeyList& to) {
  const ModelConfig& config = from.config;
  const bool mixed = HasNemotronExperts(config);
  const std::string name = mixed ? "nemotron_h_moe" : "nemotron_h";
  const std::string own = name + ".";
  const ModelConfig mamba = FirstView(config, "mamba2");
  RequireForGguf(mamba.attention == MixerKind("mamba2"), "layers_block_type",
                 "a block of Mamba-2", "none");
  const double least = KeyOf<double>(mamba, "least_step");
  RequireForGguf(least == 0.0, "time_step_min", "0", StrCat(least));
  AddNemotronBlocks(from, mixed, own, to);
  to.U32(own + "context_length", kNemotronContext);
  to.U32(own + "embedding_length", config.d_model);
  to.U32(own + "vocab_size", config.vocab_size);
  const int64_t width = PublishedInteger(from, "head_dim");
  to.U32(own + "attention.head_count",
         PublishedInteger(from, "num_attention_heads"));
  to.U32(own + "attention.key_length", width);
  to.U32(own + "attention.value_length", width);
  to.F32(own + kNemotronEps, config.norm_eps);
  to.F32(own + kNemotronOtherEps, config.norm_eps);
  to.U32(own + "rope.dimension_count", width);
  to.Bool(own + "rope.scaling.finetuned", false);
  AddGgufMamba2(mamba, name, to);
  if (mixed) AddNemotronExperts(from, own, to);
}

}  // namespace

std::vector<GgufArchitecture> GgufNemotronRows() {
  return {
      {"nemotron_h",
       ReadGgufNemotron,
       GgufNemotronTensors,
       {"nemotron_h"},
       GgufNemotronKeys,
       [](const ModelConfig& config) { return !HasNemotronExperts(config); }},
      {"nemotron_h_moe",
       ReadGgufNemotron,
       GgufNemotronTensors,
       {"nemotron_h"},
       GgufNemotronKeys,
       HasNemotronExperts}};
}

}  // namespace tarn
