// RWKV-7 as flash-linear-attention has it.
#include <cmath>

#include "core/text.h"
#include "importers/flash_linear.h"
#include "mixers/rwkv/form.h"

namespace tarn {
namespace {

// The key's rank; where the file says null, a multiple of 32 that grows with
// the root of the width.
int64_t FlashRank(PublishedConfig& from, const char* key, int64_t value,
                  double factor, int64_t d_model) {
  if (!from.HasNull(key)) return from.Integer(key, 1, kMostFlash, value);
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

ModelConfig ReadRwkv7(PublishedConfig& from) {
  ModelConfig config = ReadFlashStack(from, NormKind::kLayer, 1e-5);
  config.attention = MixerKind("rwkv7");
  config.input_norm = from.Flag("norm_first", true);
  from.Flag("norm_bias", true);
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
  from.Want("hidden_act", "sqrelu");
  config.feed_forward = FeedForwardOf("channel-mix");
  config.d_ff = FlashHidden(from, 4.0, 1.0, 1.0, 32);
  from.WantNull("attn");
  return config;
}

// The shares of the row before, in tarn's order. Early files hold them in one
// tensor, in the order r, w, k, v, a, g.
WeightPart Shifts(const RwkvSizes& s, const std::string& theirs,
                  PublishedTensors& from) {
  std::vector<WeightPart> rows;
  if (from.Has(theirs + "x_x")) {
    const WeightPart all = from.Reshaped(theirs + "x_x", {6, s.d_model});
    for (const int64_t row : {0, 1, 2, 3, 5, 4}) {
      rows.push_back(all.Rows({row, row + 1}));
    }
  } else {
    for (const char* name : {"x_r", "x_w", "x_k", "x_v", "x_g", "x_a"}) {
      rows.push_back(from.Reshaped(theirs + name, {1, s.d_model}));
    }
  }
  return WeightPart::Stacked(rows);
}

void AddRwkv7(const ModelConfig& view, const std::string& own,
              const std::string& theirs, PublishedTensors& from,
              ImportedTensors& to) {
  const RwkvSizes s = RwkvSizesOf(view);
  to.Add(own + "token_shift", Shifts(s, theirs, from));
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
  if (s.reads_values) low("value", "v_lora", true);
  low("gate", "g_lora", false);
  to.Add(own + "key_scale", from.Reshaped(theirs + "k_k", {s.width}));
  to.Add(own + "key_rate", from.Reshaped(theirs + "k_a", {s.width}));
  to.Add(own + "bonus", from(theirs + "r_k"));
  to.AddLinear(from, own + "norm", theirs + "g_norm", /*bias=*/true);
  to.AddLinear(from, own + "out_projection", theirs + "o_proj");
}

void Rwkv7Tensors(const ModelConfig& config, PublishedTensors& from,
                  ImportedTensors& to) {
  to.Add("value_embedding.weight", from("model.embeddings.weight"));
  if (config.input_norm) {
    AddFlashNorm(from, "input_norm", "model.layers.0.pre_norm", to);
  }
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat("model.layers.", i, ".");
    AddRwkv7(LayerView(config, i), own + "attention.", theirs + "attn.", from,
             to);
    to.Add(own + "token_shift",
           from.Reshaped(theirs + "ffn.x_k", {config.d_model}));
    to.AddLinear(from, own + "linear1", theirs + "ffn.key");
    to.AddLinear(from, own + "linear2", theirs + "ffn.value");
    AddFlashNorm(from, own + "norm1", theirs + "attn_norm", to);
    AddFlashNorm(from, own + "norm2", theirs + "ffn_norm", to);
  }
  AddFlashNorm(from, "norm", "model.norm", to);
  to.AddHead(from, "lm_head.weight", "model.embeddings.weight");
}

}  // namespace

std::vector<Importer> FlashRwkvImporters() {
  return {{"rwkv7", ReadRwkv7, Rwkv7Tensors}};
}

}  // namespace tarn
