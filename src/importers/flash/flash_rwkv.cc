// RWKV-7 and RWKV-6 as flash-linear-attention has them.
#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "importers/flash/flash_linear.h"

namespace tarn {
namespace {

constexpr int64_t kInputs = 5;  // of RWKV-6's maps, each with a shift

// The key's rank; where the file says null, a multiple of 32 that grows with
// the root of the width.
int64_t FlashRank(PublishedConfig& from, const char* key, int64_t value,
                  double factor, int64_t d_model) {
  if (from.Has(key) || !from.Holds(key)) {
    return from.Integer(key, 1, kMostFlash, value);
  }
  from.WantNull(key);
  const double root = factor * std::sqrt(static_cast<double>(d_model));
  return std::max<int64_t>(
      32, 32 * static_cast<int64_t>(std::nearbyint(root / 32)));
}

void ReadRwkvHeads(PublishedConfig& from, ModelConfig& config) {
  int64_t width = from.Integer("head_dim", 1, kMostFlash, 64);
  const int64_t heads = from.Integer("num_heads", 1, kMostFlash, 0);
  if (!from.Has("head_dim") && heads > 0) width = config.d_model / heads;
  if (width == 0 || config.d_model % width != 0) {
    from.Refuse("head_dim", StrCat("a divisor of ", config.d_model),
                StrCat(width));
  }
  config.n_heads = config.d_model / width;
  config.d_key = config.d_value = width;
}

ModelConfig ReadRwkv(PublishedConfig& from, const char* mixer, const char* part,
                     double ratio) {
  ModelConfig config = ReadFlashStack(from, NormKind::kLayer, 1e-5);
  config.attention = MixerKind(mixer);
  config.input_norm = from.Flag("norm_first", true);
  from.Flag("norm_bias", true);
  from.Want("hidden_act", "sqrelu");
  config.feed_forward = FeedForwardOf(part);
  config.d_ff = FlashHidden(from, ratio, 1.0, 1.0, 32);
  return config;
}

ModelConfig ReadRwkv7(PublishedConfig& from) {
  ModelConfig config = ReadRwkv(from, "rwkv7", "channel-mix", 4.0);
  ReadRwkvHeads(from, config);
  for (const int64_t width : from.Integers("value_dim", 1, kMostFlash)) {
    if (width == config.d_model) continue;
    from.Refuse("value_dim", StrCat("hidden_size, ", config.d_model),
                StrCat(width));
  }
  const double head = static_cast<double>(config.d_key) / 64;
  const auto set = [&](const char* own, const char* key, int64_t value,
                       double factor) {
    SetKey(config, own, FlashRank(from, key, value, factor, config.d_model));
  };
  set("gate_rank", "decay_low_rank_dim", 64, 2.5 * head);
  set("output_gate_rank", "gate_low_rank_dim", 128, 5.0);
  set("rate_rank", "a_low_rank_dim", 64, 2.5 * head);
  set("value_rank", "v_low_rank_dim", 16, 1.7 * head);
  SetKey(config, "value_residual", true);
  // torch's norm of the keys takes the larger of a length and 1e-12.
  SetKey(config, "unit_eps", from.Flag("fuse_norm", true) ? 1e-6 : 1e-24);
  from.WantNull("attn");
  return config;
}

ModelConfig ReadRwkv6(PublishedConfig& from) {
  ModelConfig config = ReadRwkv(from, "rwkv6", "gated-channel-mix", 3.5);
  config.n_heads = from.Integer("num_heads", 1, kMostFlash, 4);
  config.d_key = FlashHeadWidth(from, "expand_k", 0.5, config);
  config.d_value = FlashHeadWidth(from, "expand_v", 1.0, config);
  if (config.d_key != config.d_value) {
    from.Refuse("expand_k", "expand_v: keys as wide as values",
                StrCat(from.Real("expand_k", 0.5)));
  }
  SetKey(config, "gate_rank",
         from.Integer("gate_low_rank_dim", 1, kMostFlash, 64));
  SetKey(config, "shift_rank",
         from.Integer("proj_low_rank_dim", 1, kMostFlash, 32));
  SetKey(config, "output_norm_eps", config.norm_eps);  // not d_key times it
  ReadFlashSoftmax(from, config);
  return config;
}

void PublishRwkv(const ModelConfig& config, PublishedKeys& to) {
  PublishFlashStack(config, to);
  to["norm_first"] = config.input_norm;
  to["norm_bias"] = true;
}

void PublishRwkv7(const ModelConfig& config, PublishedKeys& to) {
  PublishRwkv(config, to);
  to["head_dim"] = config.d_key;
  to["num_heads"] = config.n_heads;
  // The first layer mixes in no values of a layer before.
  const ModelConfig last = LayerView(config, config.n_layers - 1);
  const int64_t unused = KeyOf<int64_t>(config, "value_rank");
  const auto rank = [&](const char* key, const char* name) {
    const int64_t rows =
        RowsOfWeight(last, StrCat(name, "_down_projection.weight"));
    to[key] = std::max<int64_t>(1, rows > 0 ? rows : unused);
  };
  rank("decay_low_rank_dim", "decay");
  rank("gate_low_rank_dim", "gate");
  rank("a_low_rank_dim", "rate");
  rank("v_low_rank_dim", "value");
  to["fuse_norm"] = KeyOf<double>(config, "unit_eps") == 1e-6;
}

void PublishRwkv6(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig view = FlashView(config);
  PublishRwkv(config, to);
  PublishFlashHeads(view, to);
  to["gate_low_rank_dim"] = RowsOfWeight(view, "decay_down_projection.weight");
  to["proj_low_rank_dim"] =
      RowsOfWeight(view, "shift_down_projection.weight") / kInputs;
}

// The shares of the row before, in tarn's order. Early files hold them in one
// tensor, in the order r, w, k, v, a, g.
WeightPart Shifts(int64_t d_model, const std::string& theirs,
                  PublishedTensors& from) {
  std::vector<WeightPart> rows;
  if (from.Has(theirs + "x_x")) {
    const WeightPart all =
        from.Reshaped(theirs + "x_x", {6, d_model}, {6, 1, 1, d_model});
    for (const int64_t row : {0, 1, 2, 3, 5, 4}) {
      rows.push_back(all.Rows({row, row + 1}));
    }
  } else {
    for (const char* name : {"x_r", "x_w", "x_k", "x_v", "x_g", "x_a"}) {
      rows.push_back(
          from.Reshaped(theirs + name, {1, d_model}, {1, 1, d_model}));
    }
  }
  return WeightPart::Stacked(rows);
}

void AddRwkv7(const ModelConfig& view, const std::string& own,
              const std::string& theirs, PublishedTensors& from,
              ImportedTensors& to) {
  const int64_t width = view.n_heads * view.d_key;
  to.Add(own + "token_shift", Shifts(view.d_model, theirs, from));
  to.AddLinear(from, own + "query_projection", theirs + "r_proj");
  to.AddLinear(from, own + "key_projection", theirs + "k_proj");
  to.AddLinear(from, own + "value_projection", theirs + "v_proj");
  const auto low = [&](const char* name, const char* lora, bool bias) {
    to.AddLinear(from, StrCat(own, name, "_down_projection"),
                 StrCat(theirs, lora, ".lora.0"));
    to.AddLinear(from, StrCat(own, name, "_up_projection"),
                 StrCat(theirs, lora, ".lora.2"), bias);
  };
  low("decay", "w_lora", true);
  low("rate", "a_lora", true);
  if (view.reads_passed) low("value", "v_lora", true);
  low("gate", "g_lora", false);
  to.Add(own + "key_scale", from.Reshaped(theirs + "k_k", {width}, {width}));
  to.Add(own + "key_rate", from.Reshaped(theirs + "k_a", {width}, {width}));
  to.Add(own + "bonus", from(theirs + "r_k"));
  to.AddLinear(from, own + "norm", theirs + "g_norm", /*bias=*/true);
  to.AddLinear(from, own + "out_projection", theirs + "o_proj");
}

void AddRwkv6(const ModelConfig& view, const std::string& own,
              const std::string& theirs, PublishedTensors& from,
              ImportedTensors& to) {
  const int64_t rank = KeyOf<int64_t>(view, "shift_rank");
  to.Add(own + "token_shift", from(theirs + "x_bias"));
  to.Add(own + "shift_base", from(theirs + "x_proj.0.mu"));
  to.AddLinear(from, own + "shift_down_projection", theirs + "x_proj.0.linear");
  // Columns of an input, one after the other, become rows below one another.
  const WeightPart up =
      from.Reshaped(theirs + "x_proj.2.weight", {view.d_model, kInputs * rank},
                    {view.d_model, kInputs * rank});
  std::vector<WeightPart> ups;
  for (int64_t n = 0; n < kInputs; ++n) {
    ups.push_back(up.Columns({n * rank, (n + 1) * rank}));
  }
  to.Add(own + "shift_up_projection.weight", WeightPart::Stacked(ups));
  to.AddLinear(from, own + "query_projection", theirs + "r_proj.linear");
  to.AddLinear(from, own + "key_projection", theirs + "k_proj.linear");
  to.AddLinear(from, own + "value_projection", theirs + "v_proj.linear");
  to.AddLinear(from, own + "gate_projection", theirs + "g_proj.linear");
  to.AddLinear(from, own + "decay_down_projection",
               theirs + "w_proj.linear.lora.0");
  to.AddLinear(from, own + "decay_up_projection",
               theirs + "w_proj.linear.lora.2", /*bias=*/true);
  to.Add(own + "bonus", from(theirs + "bonus"));
  to.AddLinear(from, own + "norm", theirs + "g_norm", /*bias=*/true);
  to.AddLinear(from, own + "out_projection", theirs + "o_proj");
}

// The feed-forward part: a gate in RWKV-6 alone.
void AddChannelMix(bool gated, int64_t d_model, const std::string& own,
                   const std::string& theirs, PublishedTensors& from,
                   ImportedTensors& to) {
  const std::string shift = theirs + (gated ? "key.mu" : "x_k");
  to.Add(own + "token_shift", from.Reshaped(shift, {d_model}, {d_model}));
  to.AddLinear(from, own + "linear1", theirs + (gated ? "key.linear" : "key"));
  to.AddLinear(from, own + "linear2", theirs + "value");
  if (!gated) return;
  to.Add(own + "gate_shift",
         from.Reshaped(theirs + "receptance.mu", {d_model}, {d_model}));
  to.AddLinear(from, own + "gate", theirs + "receptance.linear");
}

void RwkvTensors(const ModelConfig& config, PublishedTensors& from,
                 ImportedTensors& to) {
  to.Add("value_embedding.weight", from("model.embeddings.weight"));
  if (config.input_norm) {
    AddFlashNorm(from, "input_norm", "model.layers.0.pre_norm", to);
  }
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat("model.layers.", i, ".");
    const ModelConfig view = LayerView(config, i);
    const bool seven = view.attention == MixerKind("rwkv7");
    const bool softmax = view.attention == MixerKind("full");
    (softmax ? AddSoftmax
     : seven ? AddRwkv7
             : AddRwkv6)(view, own + "attention.", theirs + "attn.", from, to);
    AddChannelMix(!seven, config.d_model, own, theirs + "ffn.", from, to);
    AddFlashNorm(from, own + "norm1", theirs + "attn_norm", to);
    AddFlashNorm(from, own + "norm2", theirs + "ffn_norm", to);
  }
  AddFlashNorm(from, "norm", "model.norm", to);
  to.AddHead(from, "lm_head.weight", "model.embeddings.weight");
}

}  // namespace

std::vector<Importer> FlashRwkvImporters() {
  return {{"rwkv7", ReadRwkv7, RwkvTensors, "RWKV7ForCausalLM", PublishRwkv7},
          {"rwkv6", ReadRwkv6, RwkvTensors, "RWKV6ForCausalLM", PublishRwkv6}};
}

}  // namespace tarn
