// Hybrids with the parts of Llama around mixers of Mamba: Bamba, of Mamba-2 and
// attention, and Jamba (arXiv 2403.19887), of Mamba-1, attention and mixtures
// of experts. AI21's and IBM's files name the parts alike.
#include <algorithm>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostHybrid = int64_t{1} << 24;

std::string HybridKeyHeads(PublishedConfig& from, const ModelConfig& config) {
  return StrCat(
      from.Integer("num_key_value_heads", 1, kMostHybrid, config.n_heads));
}

ModelConfig ReadBamba(PublishedConfig& from) {
  ModelConfig config = ReadHybrid(from, 1e-5);
  const bool biases = from.Flag("attention_bias", false);
  SetKey(config, "qkv_bias", biases);
  SetKey(config, "out_bias", biases);
  if (from.Flag("mlp_bias", false)) {
    config.feed_forward_bias = FeedForwardBias::kAll;
  }
  ReadRotary(from, config, {.positions = 262144, .part = 0.5});
  const int64_t rotated = KeyOf<int64_t>(config, "rotary_width");
  const int64_t wanted = rotated > 0 ? rotated : config.d_key;
  const int64_t given = from.Integer("attn_rotary_emb", 1, kMostHybrid, wanted);
  if (given != wanted) {
    from.Refuse("attn_rotary_emb", StrCat(wanted), StrCat(given));
  }
  from.Ignore({"z_loss_coefficient"});
  const int64_t inner = from.Integer("mamba_expand", 1, 64, 2) * config.d_model;
  const LayerOptions mamba = ReadMamba2(from, inner, config);
  const LayerOptions softmax = {{"key_heads", HybridKeyHeads(from, config)}};
  const std::vector<int64_t> full =
      from.Integers("attn_layer_indices", 0, config.n_layers - 1);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const bool is_full = std::find(full.begin(), full.end(), i) != full.end();
    config.layers.push_back(
        {MixerKind(is_full ? "full" : "mamba2"), is_full ? softmax : mamba});
  }
  if (full.empty()) {  // Mamba-2 rotates nothing
    config.positions = Positions::kNone;
    SetKey(config, "rotary_width", 0);
  }
  return config;
}

void PublishBamba(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig softmax = FirstView(config, "full");
  PublishSoftmaxStack(config, to);
  to["mlp_bias"] = config.feed_forward_bias == FeedForwardBias::kAll;
  PublishPartialRotary(softmax, to);
  PublishMamba2Keys(FirstView(config, "mamba2"), config.d_model, to);
  to["attn_layer_indices"] = PublishedKeys::array();
  for (int64_t i = 0; i < config.n_layers; ++i) {
    if (HasMixer(config, i, "full")) to["attn_layer_indices"].push_back(i);
  }
}

// The layers of a period that has one of them at an offset.
struct Period {
  int64_t length, offset;
  bool Has(int64_t layer) const { return layer % length == offset; }
};

Period ReadPeriod(PublishedConfig& from, const char* length, int64_t of,
                  const char* offset, int64_t at) {
  Period period;
  period.length = from.Integer(length, 1, kMostHybrid, of);
  period.offset = from.Integer(offset, 0, period.length - 1, at);
  return period;
}

// The period of layers that are as `is` says; of layers that have none, one
// that begins after them.
template <typename F>
void PublishPeriod(const ModelConfig& config, const F& is, const char* length,
                   const char* offset, PublishedKeys& to) {
  int64_t first = config.n_layers, period = config.n_layers + 1;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    if (!is(i)) continue;
    if (first < config.n_layers) {
      period = i - first;
      break;
    }
    first = i;
  }
  to[length] = period;
  to[offset] = first;
}

void PublishJamba(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig mamba = FirstView(config, "mamba1");
  const ModelConfig mixed = FirstViewWithPart(config, "moe");
  PublishSoftmaxStack(config, to);
  to.erase("attention_bias");
  const auto softmax = [&](int64_t i) { return HasMixer(config, i, "full"); };
  const auto mixture = [&](int64_t i) { return HasPart(config, i, "moe"); };
  PublishPeriod(config, softmax, "attn_layer_period", "attn_layer_offset", to);
  PublishPeriod(config, mixture, "expert_layer_period", "expert_layer_offset",
                to);
  const bool experts = mixed.feed_forward == FeedForwardOf("moe");
  to["num_experts"] = experts ? KeyOf<int64_t>(mixed, "experts") : 1;
  to["num_experts_per_tok"] =
      experts ? KeyOf<int64_t>(mixed, "experts_per_token") : 1;
  to["mamba_expand"] = mamba.n_heads * mamba.d_value / config.d_model;
  to["mamba_d_state"] = mamba.d_key;
  to["mamba_dt_rank"] = RowsOfWeight(mamba, "decay_down_projection.weight");
  to["mamba_d_conv"] = KeyOf<int64_t>(mamba, "conv_width");
  to["mamba_conv_bias"] = true;
  to["mamba_proj_bias"] = KeyOf<bool>(mamba, "recurrent_in_bias");
}

LayerOptions ReadJambaMamba(PublishedConfig& from, ModelConfig& config) {
  ReadMambaBiases(from, "mamba_proj_bias", "mamba_conv_bias", config);
  from.Want("mamba_inner_layernorms", true);
  SetKey(config, "conv_width", from.Integer("mamba_d_conv", 2, 8, 4));
  SetKey(config, "selection_norm", true);
  const int64_t inner = from.Integer("mamba_expand", 1, 64, 2) * config.d_model;
  const int64_t rank = (config.d_model + 15) / 16;
  return {{"n_heads", "1"},
          {"d_value", StrCat(inner)},
          {"d_key", StrCat(from.Integer("mamba_d_state", 1, kMostHybrid, 16))},
          {"gate_rank",
           StrCat(from.HasWord("mamba_dt_rank", "auto")
                      ? rank
                      : from.Integer("mamba_dt_rank", 1, kMostHybrid, rank))}};
}

ModelConfig ReadJamba(PublishedConfig& from) {
  ModelConfig config = ReadHybrid(from, 1e-6);
  config.positions = Positions::kNone;
  SetKey(config, "qkv_bias", false);
  SetKey(config, "out_bias", false);
  const LayerOptions mamba = ReadJambaMamba(from, config);
  const LayerOptions softmax = {{"key_heads", HybridKeyHeads(from, config)}};
  const Period attention =
      ReadPeriod(from, "attn_layer_period", 8, "attn_layer_offset", 4);
  const Period mixture =
      ReadPeriod(from, "expert_layer_period", 2, "expert_layer_offset", 1);
  const int64_t experts = from.Integer("num_experts", 1, 4096, 16);
  const int64_t chosen = from.Integer("num_experts_per_tok", 1, 256, 2);
  if (experts > 1) {
    SetKey(config, "experts", experts);
    SetKey(config, "experts_per_token", chosen);
    SetKey(config, "d_expert", config.d_ff);
    SetKey(config, "router_normalize", false);
  }
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const bool full = attention.Has(i);
    config.layers.push_back(
        {MixerKind(full ? "full" : "mamba1"), full ? softmax : mamba});
    if (experts > 1 && mixture.Has(i)) {
      config.layers.back().options.push_back({"feed_forward", "moe"});
    }
  }
  from.WantNull("sliding_window");
  from.Ignore({"output_router_logits", "router_aux_loss_coef",
               "use_mamba_kernels", "use_mambapy", "use_associative_scan",
               "calc_logits_for_entire_prompt"});
  return config;
}

void HybridTensors(const ModelConfig& config, PublishedTensors& from,
                   ImportedTensors& to) {
  AddAroundHybrid(config, from, to);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat("model.layers.", i, ".");
    if (view.attention == MixerKind("mamba1")) {
      AddMamba1(view, own + "attention.", theirs + "mamba.", from, to);
    } else if (view.attention == MixerKind("mamba2")) {
      AddMamba2(view, own + "attention.", theirs + "mamba.", from, to);
    } else {
      AddSoftmax(view, own + "attention.", theirs + "self_attn.", from, to);
    }
    const std::string part = theirs + "feed_forward.";
    if (view.feed_forward == FeedForwardOf("moe")) {
      to.AddLinear(from, own + "router", part + "router");
      AddExperts(view, own, part + "experts.", kProjNames, from, to);
      continue;
    }
    const bool bias = view.feed_forward_bias == FeedForwardBias::kAll;
    to.AddLinear(from, own + "linear1", part + "gate_proj", bias);
    to.AddLinear(from, own + "linear2", part + "down_proj", bias);
    to.AddLinear(from, own + "linear3", part + "up_proj", bias);
  }
}

}  // namespace

ModelConfig ReadHybrid(PublishedConfig& from, double norm_eps) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostHybrid);
  config.d_model = from.Integer("hidden_size", 1, kMostHybrid);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers);
  config.n_heads = from.Integer("num_attention_heads", 1, kMostHybrid);
  config.d_ff = from.Integer("intermediate_size", 1, kMostHybrid);
  config.d_key = config.d_value =
      from.Integer("head_dim", 1, kMostHybrid, config.d_model / config.n_heads);
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("rms_norm_eps", norm_eps);
  config.final_norm = true;
  config.feed_forward = FeedForwardOf("swiglu");
  config.tied_head = from.Flag("tie_word_embeddings", false);
  config.tokenizer = TokenizerKind::kBpe;
  from.Want("hidden_act", "silu");
  from.Ignore({"num_logits_to_keep"});
  return config;
}

void AddAroundHybrid(const ModelConfig& config, PublishedTensors& from,
                     ImportedTensors& to) {
  to.Add("value_embedding.weight", from("model.embed_tokens.weight"));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string theirs = StrCat("model.layers.", i, ".");
    to.AddLinear(from, StrCat("layers.", i, ".norm1"),
                 theirs + "input_layernorm");
    to.AddLinear(from, StrCat("layers.", i, ".norm2"),
                 theirs + "pre_ff_layernorm");
  }
  to.AddLinear(from, "norm", "model.final_layernorm");
  to.AddHead(from, "lm_head.weight", "model.embed_tokens.weight");
}

std::vector<Importer> HybridImporters() {
  return {
      {"bamba", ReadBamba, HybridTensors, "BambaForCausalLM", PublishBamba},
      {"jamba", ReadJamba, HybridTensors, "JambaForCausalLM", PublishJamba}};
}

}  // namespace tarn
