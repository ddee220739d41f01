// Softmax attention as today's hybrids have it between recurrent layers (Qwen3
// Next, Olmo Hybrid, Granite 4): fewer heads of keys than of queries, queries
// and keys normalised, positions on the first channels only, and an output
// gate. A layer computes, from rows x [D]:
//   q, k, v, z = W_q x, W_k x, W_v x, W_z x    H, key_heads, key_heads, H heads
//   q, k = RMS(q), RMS(k) a head               where query_key_norm
//   q, k = their first rotary_width channels turned, where positions are rotary
//   o = softmax(q k^T / sqrt(K)) v             query head h reads key head
//                                              h / (H / key_heads)
//   out = W_out (o * sigma(z))                 where output_gate
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

inline constexpr const char* kGatedSoftmax = "gated-full";

/// Widths of one layer.
struct GatedSoftmaxSizes {
  explicit GatedSoftmaxSizes(const ModelConfig& layer)
      : d_model(layer.d_model),
        heads(layer.n_heads),
        key_heads(KeyHeads(layer)),
        d_key(layer.d_key),
        d_value(layer.d_value),
        rotary(layer.positions == Positions::kRotary ? RotaryWidth(layer) : 0),
        normed(KeyOf<bool>(layer, "query_key_norm")),
        gated(KeyOf<bool>(layer, "output_gate")) {}

  static int64_t KeyHeads(const ModelConfig& layer) {
    const int64_t given = KeyOf<int64_t>(layer, "key_heads");
    return given > 0 ? given : layer.n_heads;
  }
  static int64_t RotaryWidth(const ModelConfig& layer) {
    const int64_t given = KeyOf<int64_t>(layer, "rotary_width");
    return given > 0 ? given : layer.d_key;
  }

  int64_t queries() const { return heads * d_key; }
  int64_t keys() const { return key_heads * d_key; }
  int64_t values() const { return key_heads * d_value; }
  int64_t outputs() const { return heads * d_value; }
  int64_t group() const { return heads / key_heads; }

  int64_t d_model, heads, key_heads, d_key, d_value;
  int64_t rotary;  // channels that turn; 0: none
  bool normed, gated;
};

}  // namespace tarn
