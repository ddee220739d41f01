// The gated short convolution of LFM2 (Liquid AI 2025, arXiv 2511.23404): a
// layer that reads the last few tokens alone. It has C = n_heads d_value
// channels; heads do not matter. With y a row of the layer:
//
//   k, q, v = W_k y + b_k, W_q y + b_q, W_v y + b_v    [C], the paper's B, C, x
//   z = convolution(k v)                               [C], no activation
//   out = W_out (q z) + b_out
//
// All biases, that of the convolution included, come with conv_bias.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

/// Widths of one layer.
struct ShortConvSizes {
  int64_t d_model;
  int64_t channels;  // n_heads * d_value
  int64_t width;     // of the convolution
  bool biased;
};

inline ShortConvSizes ShortConvSizesOf(const ModelConfig& layer) {
  return {.d_model = layer.d_model,
          .channels = layer.n_heads * layer.d_value,
          .width = KeyOf<int64_t>(layer, "conv_width"),
          .biased = KeyOf<bool>(layer, "conv_bias")};
}

}  // namespace tarn
