// The recurrent block of Griffin and Hawk around the real-gated linear
// recurrent unit, RG-LRU (De et al. 2024, arXiv 2402.19427, section 2.4 and
// eq. (1)-(4)). It has C = n_heads d_value channels, and H = n_heads blocks of
// its gates. With y_t a row of the layer:
//
//   u = convolution(W_v y + b_v),  z = W_z y + b_z           [C], no activation
//   p_i = I u,  p_r = R u             [C]: I, R have H blocks [V, V] on the
//                                          diagonal
//   h   = the recurrence with the gates of kernels/rg_lru/rg_lru.h   [C]
//   out = W_out (h gelu(z)) + b_out
//
// gelu is the form with a tanh.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

/// Widths of one layer.
struct LruSizes {
  int64_t d_model;
  int64_t heads;
  int64_t block;     // d_value: width of a block of the gates
  int64_t channels;  // heads * block
  int64_t width;     // of the convolution; 0: none
};

inline LruSizes LruSizesOf(const ModelConfig& layer) {
  return {.d_model = layer.d_model,
          .heads = layer.n_heads,
          .block = layer.d_value,
          .channels = layer.n_heads * layer.d_value,
          .width = KeyOf<int64_t>(layer, "conv_width")};
}

}  // namespace tarn
