#include "importers/flash/flash_linear.h"

#include <cmath>

#include "config/bounds.h"
#include "core/text.h"

namespace tarn {
namespace {

using FlashOptions = std::vector<std::pair<std::string, std::string>>;

// The attention of fla/layers/attn.py: all channels of a head rotate.
FlashOptions SoftmaxOptions(PublishedConfig& attn, ModelConfig& config) {
  const int64_t heads = attn.Integer("num_heads", 1, kMostFlash);
  if (config.d_model % heads != 0) {
    attn.Refuse("num_heads", StrCat("a divisor of ", config.d_model),
                StrCat(heads));
  }
  const double base = attn.Real("rope_theta", 10000.0);
  if (config.positions == Positions::kRotary && base != config.rotary_base) {
    attn.Refuse("rope_theta",
                StrCat("that of the other layers, ", config.rotary_base),
                StrCat(base));
  }
  config.positions = Positions::kRotary;
  config.rotary_base = base;
  const std::string width = StrCat(config.d_model / heads);
  const int64_t shared = attn.Integer("num_kv_heads", 1, kMostFlash, heads);
  const bool biased = attn.Flag("qkv_bias", false);
  const int64_t window = attn.Integer("window_size", 1, kMostFlash, 0);
  return {{"n_heads", StrCat(heads)},
          {"d_key", width},
          {"d_value", width},
          {"key_heads", StrCat(shared == heads ? 0 : shared)},
          {"qkv_bias", biased ? "true" : "false"},
          {"out_bias", "false"},
          {"window", StrCat(window)}};
}

}  // namespace

ModelConfig ReadFlashStack(PublishedConfig& from, NormKind norm,
                           double norm_eps) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostFlash);
  config.d_model = from.Integer("hidden_size", 1, kMostFlash);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers);
  config.norm = Norm::kPre;
  config.norm_kind = norm;
  config.norm_eps = from.Real("norm_eps", norm_eps);
  config.final_norm = true;
  config.positions = Positions::kNone;
  config.tied_head = from.Flag("tie_word_embeddings", false);
  config.tokenizer = TokenizerKind::kBpe;
  // Other weights for the sums of all layers.
  from.WantNull("attnres_block_size");
  // Which of several kernels computes the same, and the loss of training.
  from.Ignore({"attn_mode", "fuse_norm", "fuse_swiglu", "fuse_cross_entropy",
               "fuse_linear_cross_entropy", "use_l2warp"});
  return config;
}

int64_t FlashHidden(PublishedConfig& from, double ratio, double times,
                    double over, int64_t multiple) {
  const double given = from.Real("hidden_ratio", ratio);
  if (!(given > 0 && given <= 1024)) {
    from.Refuse("hidden_ratio", "a number up to 1024 and above 0",
                StrCat(given));
  }
  if (from.Has("intermediate_size")) {
    return from.Integer("intermediate_size", 1, kMostFlash);
  }
  from.Integer("intermediate_size", 1, kMostFlash, 0);  // null
  const double hidden =
      static_cast<double>(from.Integer("hidden_size", 1, kMostFlash));
  const int64_t width = static_cast<int64_t>(hidden * given * times / over);
  return (width + multiple - 1) / multiple * multiple;
}

void ReadFlashUnit(PublishedConfig& from, double ratio, ModelConfig& config) {
  from.Want("hidden_act", "swish");
  config.feed_forward = FeedForwardOf("swiglu");
  config.d_ff = FlashHidden(from, ratio, 2.0, 3.0, 256);
}

int64_t FlashHeadWidth(PublishedConfig& from, const char* key, double value,
                       const ModelConfig& config) {
  const double factor = from.Real(key, value);
  const double width = static_cast<double>(config.d_model) * factor;
  const double rounded = std::nearbyint(width);
  const int64_t heads = config.n_heads;
  if (!(rounded >= 1 && rounded <= static_cast<double>(kMostFlash)) ||
      std::abs(width - rounded) > 1e-9 * rounded ||
      std::fmod(rounded, static_cast<double>(heads)) != 0) {
    from.Refuse(key,
                StrCat("a factor of hidden_size that makes a multiple of ",
                       heads, " heads"),
                StrCat(factor));
  }
  return static_cast<int64_t>(rounded) / heads;
}

void ReadFlashSharedHeads(PublishedConfig& from, int64_t heads, double expand_k,
                          double expand_v, ModelConfig& config) {
  config.n_heads = from.Integer("num_heads", 1, kMostFlash, heads);
  const int64_t shared =
      from.Integer("num_kv_heads", 1, kMostFlash, config.n_heads);
  if (config.n_heads % shared != 0) {
    from.Refuse("num_kv_heads", StrCat("a divisor of ", config.n_heads),
                StrCat(shared));
  }
  config.d_key = FlashHeadWidth(from, "expand_k", expand_k, config);
  config.d_value = FlashHeadWidth(from, "expand_v", expand_v, config);
}

void ReadFlashSoftmax(PublishedConfig& from, ModelConfig& config) {
  if (!from.Has("attn")) return from.WantNull("attn");
  PublishedConfig attn = from.Section("attn");
  std::vector<bool> softmax(static_cast<size_t>(config.n_layers));
  for (const int64_t i : attn.Integers("layers", 0, config.n_layers - 1)) {
    if (softmax[static_cast<size_t>(i)]) {
      attn.Refuse("layers", "each layer once", StrCat(i, " twice"));
    }
    softmax[static_cast<size_t>(i)] = true;
  }
  const FlashOptions options = SoftmaxOptions(attn, config);
  attn.RequireAllRead();
  for (const bool chosen : softmax) {
    config.layers.push_back({chosen ? MixerKind("full") : config.attention,
                             chosen ? options : FlashOptions{}});
  }
}

ModelConfig FlashView(const ModelConfig& config) {
  for (int64_t i = 0; i < config.n_layers; ++i) {
    if (!HasMixer(config, i, "full")) return LayerView(config, i);
  }
  return config;
}

void PublishFlashStack(const ModelConfig& config, PublishedKeys& to) {
  PublishStackSizes(config, to);
  to["norm_eps"] = config.norm_eps;
  to["intermediate_size"] = config.d_ff;
  to["attn"] = nullptr;
  std::vector<int64_t> full;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    if (HasMixer(config, i, "full")) full.push_back(i);
  }
  if (full.empty()) return;
  const ModelConfig view = LayerView(config, full.front());
  const int64_t window = KeyOf<int64_t>(view, "window");
  to["attn"] = {{"layers", full},
                {"num_heads", view.n_heads},
                {"num_kv_heads", KeyHeadsOf(view)},
                {"qkv_bias", KeyOf<bool>(view, "qkv_bias")},
                {"window_size", nullptr},
                {"rope_theta", config.rotary_base}};
  if (window > 0) to["attn"]["window_size"] = window;
}

void AddFlashStack(const ModelConfig& config, FlashMixer mixer,
                   PublishedTensors& from, ImportedTensors& to) {
  to.Add("value_embedding.weight", from("model.embeddings.weight"));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat("model.layers.", i, ".");
    const bool softmax = view.attention == MixerKind("full");
    (softmax ? AddSoftmax : mixer)(view, own + "attention.", theirs + "attn.",
                                   from, to);
    to.AddLinear(from, own + "linear1", theirs + "mlp.gate_proj");
    to.AddLinear(from, own + "linear3", theirs + "mlp.up_proj");
    to.AddLinear(from, own + "linear2", theirs + "mlp.down_proj");
    to.AddLinear(from, own + "norm1", theirs + "attn_norm");
    to.AddLinear(from, own + "norm2", theirs + "mlp_norm");
  }
  to.AddLinear(from, "norm", "model.norm");
  to.AddHead(from, "lm_head.weight", "model.embeddings.weight");
}

void AddFlashNorm(PublishedTensors& from, const std::string& own,
                  const std::string& theirs, ImportedTensors& to) {
  const bool biased = from.config().Flag("norm_bias", true);
  to.AddLinear(from, own, theirs, biased);
  if (biased) return;
  to.Add(own + ".bias",
         WeightPart::Filled(from(theirs + ".weight").shape(), 0.0f));
}

}  // namespace tarn
