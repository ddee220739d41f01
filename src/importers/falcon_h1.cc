// Falcon-H1 (arXiv 2507.22448): layers with Mamba-2 and softmax attention in
// parallel. Its factors of rows are multiplied into the matrices that make
// them, so that the model has none of them to keep.
#include <cmath>

#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostFalcon = int64_t{1} << 24;

struct FalconFactors {
  Mamba2Factors mamba;
  float attention_in, attention_out, keys;
  float gate, down;  // of the feed-forward part
};

FalconFactors ReadFactors(PublishedConfig& from) {
  FalconFactors factors;
  constexpr double kMostFactor = 1e6;
  const auto kept = [&](const char* key, double value) {
    if (std::abs(value) <= kMostFactor) return static_cast<float>(value);
    from.Refuse(key, StrCat("factors of size at most ", kMostFactor),
                StrCat(value));
  };
  const auto one = [&](const char* key) {
    return kept(key, from.Real(key, 1.0));
  };
  const std::vector<double> rows = from.Reals("ssm_multipliers", 5);
  const auto row = [&](size_t i) { return kept("ssm_multipliers", rows[i]); };
  factors.mamba = {.in = one("ssm_in_multiplier"),
                   .gate = row(0),
                   .values = row(1),
                   .keys = row(2),
                   .queries = row(3),
                   .steps = row(4),
                   .out = one("ssm_out_multiplier")};
  factors.attention_in = one("attention_in_multiplier");
  factors.attention_out = one("attention_out_multiplier");
  factors.keys = one("key_multiplier");
  const std::vector<double> part = from.Reals("mlp_multipliers", 2);
  factors.gate = kept("mlp_multipliers", part[0]);
  factors.down = kept("mlp_multipliers", part[1]);
  return factors;
}

ModelConfig ReadFalconH1(PublishedConfig& from) {
  ModelConfig config = ReadHybrid(from, 1e-5);
  config.embedding_factor = from.Real("embedding_multiplier", 1.0);
  config.logit_factor = from.Real("lm_head_multiplier", 1.0);
  ReadFactors(from);  // and checks them
  const bool biases = from.Flag("attention_bias", false);
  SetKey(config, "qkv_bias", biases);
  SetKey(config, "out_bias", biases);
  if (from.Flag("mlp_bias", false)) {
    config.feed_forward_bias = FeedForwardBias::kAll;
  }
  ReadRotary(from, config, {.positions = 8192});
  const int64_t expanded =
      from.Integer("mamba_expand", 1, 64, 2) * config.d_model;
  LayerConfig layer = {MixerKind("mamba2+full"), {}};
  const int64_t inner =
      from.Integer("mamba_d_ssm", 1, kMostFalcon,
                   from.Holds("mamba_d_ssm") ? expanded : 1024);
  layer.branches.push_back(
      {MixerKind("mamba2"), ReadMamba2(from, inner, config)});
  layer.branches.push_back(
      {MixerKind("full"),
       {{"key_heads", StrCat(from.Integer("num_key_value_heads", 1, kMostFalcon,
                                          config.n_heads))}}});
  config.layers.push_back(layer);
  const bool normed = from.Flag("mamba_rms_norm", false);
  const bool first = from.Flag("mamba_norm_before_gate", true);
  SetKey(config, "mamba2_norm", normed);
  SetKey(config, "mamba2_norm_first", normed && first);
  SetKey(config, "recurrent_out_bias", from.Flag("projectors_bias", false));
  from.Want("mamba_use_mlp", true);
  from.WantNull("attn_layer_indices");
  // How weights began, and what intermediate_size says.
  from.Ignore({"time_step_floor", "time_step_min", "time_step_max",
               "time_step_rank", "mlp_expansion_factor", "expansion_factor"});
  return config;
}

// Factors within the layers are 1: those that were read are in the weights.
void PublishFalconH1(const ModelConfig& config, PublishedKeys& to) {
  const std::vector<ModelConfig> views = MixerViews(LayerView(config, 0));
  const ModelConfig &mamba = views.front(), &softmax = views.back();
  PublishSoftmaxStack(config, to);
  PublishHeads(softmax, to);
  PublishRotary(config, to);
  to["mlp_bias"] = config.feed_forward_bias == FeedForwardBias::kAll;
  PublishMamba2Keys(mamba, config.d_model, to);
  to["mamba_d_ssm"] = mamba.n_heads * mamba.d_value;
  to["mamba_rms_norm"] = KeyOf<bool>(mamba, "mamba2_norm");
  to["mamba_norm_before_gate"] = KeyOf<bool>(mamba, "mamba2_norm_first");
  to["projectors_bias"] = KeyOf<bool>(mamba, "recurrent_out_bias");
  to["embedding_multiplier"] = config.embedding_factor;
  to["lm_head_multiplier"] = config.logit_factor;
  for (const char* key :
       {"ssm_in_multiplier", "ssm_out_multiplier", "attention_in_multiplier",
        "attention_out_multiplier", "key_multiplier"}) {
    to[key] = 1.0;
  }
  to["ssm_multipliers"] = std::vector<double>(5, 1.0);
  to["mlp_multipliers"] = std::vector<double>(2, 1.0);
}

void FalconH1Tensors(const ModelConfig& config, PublishedTensors& from,
                     ImportedTensors& to) {
  const FalconFactors factors = ReadFactors(from.config());
  AddAroundHybrid(config, from, to);
  const bool qkv_bias = KeyOf<bool>(config, "qkv_bias");
  const bool out_bias = KeyOf<bool>(config, "out_bias");
  const bool ff_bias = config.feed_forward_bias == FeedForwardBias::kAll;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat("model.layers.", i, ".");
    AddMamba2(MixerViews(LayerView(config, i))[0],
              own + "attention." + BranchPrefix(0), theirs + "mamba.", from, to,
              factors.mamba);
    const auto map = [&](const std::string& name, const std::string& published,
                         float factor, float bias_factor, bool bias) {
      to.Add(own + name + ".weight",
             Times(from(theirs + published + ".weight"), factor));
      if (!bias) return;
      to.Add(own + name + ".bias",
             Times(from(theirs + published + ".bias"), bias_factor));
    };
    const std::string softmax = "attention." + BranchPrefix(1);
    const float in = factors.attention_in, out = factors.attention_out;
    map(softmax + "query_projection", "self_attn.q_proj", in, 1.0f, qkv_bias);
    map(softmax + "key_projection", "self_attn.k_proj", in * factors.keys,
        factors.keys, qkv_bias);
    map(softmax + "value_projection", "self_attn.v_proj", in, 1.0f, qkv_bias);
    map(softmax + "out_projection", "self_attn.o_proj", out, out, out_bias);
    map("linear1", "feed_forward.gate_proj", factors.gate, factors.gate,
        ff_bias);
    map("linear2", "feed_forward.down_proj", factors.down, factors.down,
        ff_bias);
    map("linear3", "feed_forward.up_proj", 1.0f, 1.0f, ff_bias);
  }
}

}  // namespace

std::vector<Importer> FalconImporters() {
  return {{"falcon_h1", ReadFalconH1, FalconH1Tensors, "FalconH1ForCausalLM",
           PublishFalconH1}};
}

}  // namespace tarn
