#include "importers/publish_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/mixer_spec.h"

namespace tarn {
namespace {

template <typename F>
ModelConfig FirstOf(const ModelConfig& config, const F& is) {
  for (int64_t i = 0; i < config.n_layers; ++i) {
    ModelConfig view = LayerView(config, i);
    if (is(view)) return view;
  }
  return config;
}

}  // namespace

ModelConfig FirstView(const ModelConfig& config, const char* mixer) {
  return FirstOf(config, [&](const ModelConfig& view) {
    return view.attention == MixerKind(mixer);
  });
}

ModelConfig FirstViewWithPart(const ModelConfig& config, const char* part) {
  return FirstOf(config, [&](const ModelConfig& view) {
    return view.feed_forward == FeedForwardOf(part);
  });
}

bool HasMixer(const ModelConfig& config, int64_t layer, const char* mixer) {
  return LayerView(config, layer).attention == MixerKind(mixer);
}

bool HasPart(const ModelConfig& config, int64_t layer, const char* part) {
  return LayerView(config, layer).feed_forward == FeedForwardOf(part);
}

int64_t KeyHeadsOf(const ModelConfig& view) {
  const int64_t shared = KeyOf<int64_t>(view, "key_heads");
  return shared == 0 ? view.n_heads : shared;
}

int64_t RowsOfWeight(const ModelConfig& view, const std::string& name) {
  for (const auto& [own, shape] : Spec(view.attention).weights(view)) {
    if (own == name) return shape[0];
  }
  return 0;
}

double FactorOf(int64_t part, int64_t whole) {
  double factor = static_cast<double>(part) / static_cast<double>(whole);
  while (std::floor(static_cast<double>(whole) * factor) <
         static_cast<double>(part)) {
    factor = std::nextafter(factor, std::numeric_limits<double>::infinity());
  }
  return factor;
}

void PublishStackSizes(const ModelConfig& config, PublishedKeys& to) {
  to["vocab_size"] = config.vocab_size;
  to["hidden_size"] = config.d_model;
  to["num_hidden_layers"] = config.n_layers;
  to["tie_word_embeddings"] = config.tied_head;
}

void PublishHeads(const ModelConfig& view, PublishedKeys& to) {
  to["num_attention_heads"] = view.n_heads;
  to["num_key_value_heads"] = KeyHeadsOf(view);
  to["head_dim"] = view.d_key;
  to["attention_bias"] = KeyOf<bool>(view, "qkv_bias");
}

void PublishSoftmaxStack(const ModelConfig& config, PublishedKeys& to) {
  PublishStackSizes(config, to);
  PublishHeads(FirstView(config, "full"), to);
  to["intermediate_size"] = config.d_ff;
  to["hidden_act"] = "silu";
  to["rms_norm_eps"] = config.norm_eps;
}

void PublishLayerWords(
    const ModelConfig& config, const char* key,
    const std::vector<std::pair<const char*, const char*>>& words,
    PublishedKeys& to) {
  to[key] = PublishedKeys::array();
  for (int64_t i = 0; i < config.n_layers; ++i) {
    for (const auto& [mixer, word] : words) {
      if (HasMixer(config, i, mixer)) to[key].push_back(word);
    }
  }
}

void PublishWindows(const ModelConfig& config, PublishedKeys& to) {
  int64_t window = 0;
  to["layer_types"] = PublishedKeys::array();
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const int64_t own = KeyOf<int64_t>(LayerView(config, i), "window");
    window = std::max(window, own);
    to["layer_types"].push_back(own > 0 ? "sliding_attention"
                                        : "full_attention");
  }
  if (window > 0) to["sliding_window"] = window;
}

void PublishRotaryByType(const ModelConfig& config, PublishedKeys& to) {
  PublishedKeys full;
  PublishRotary(config, full);
  double base = 0;  // 0: the model's
  for (int64_t i = 0; i < config.n_layers; ++i) {
    base =
        std::max(base, KeyOf<double>(LayerView(config, i), "own_rotary_base"));
  }
  to["rope_parameters"] = {
      {"full_attention", full["rope_parameters"]},
      {"sliding_attention",
       {{"rope_type", "default"},
        {"rope_theta", base > 0 ? base : config.rotary_base}}}};
}

void PublishMamba2Keys(const ModelConfig& view, int64_t d_model,
                       PublishedKeys& to) {
  to["mamba_n_heads"] = view.n_heads;
  to["mamba_d_head"] = view.d_value;
  to["mamba_expand"] =
      std::max<int64_t>(1, view.n_heads * view.d_value / d_model);
  to["mamba_d_state"] = view.d_key;
  to["mamba_n_groups"] = KeyHeadsOf(view);
  to["mamba_d_conv"] = KeyOf<int64_t>(view, "conv_width");
  to["mamba_conv_bias"] = true;
  to["mamba_proj_bias"] = KeyOf<bool>(view, "recurrent_in_bias");
  PublishStepLimits(view, to);
}

void PublishChoice(const ModelConfig& view, PublishedKeys& to) {
  to["num_experts_per_tok"] = KeyOf<int64_t>(view, "experts_per_token");
  to["moe_intermediate_size"] = KeyOf<int64_t>(view, "d_expert");
  to["norm_topk_prob"] = KeyOf<bool>(view, "router_normalize");
}

}  // namespace tarn
