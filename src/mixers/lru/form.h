// The recurrent block of Griffin and Hawk around the real-gated linear
// recurrent unit, RG-LRU (De et al. 2024, arXiv 2402.19427, section 2.4 and
// eq. (1)-(4)). It has C = n_heads d_value channels, and H = n_heads blocks of
// its gates. With y_t a row of the layer, sigma(x) = 1 / (1 + exp(-x)):
//
//   u = convolution(W_v y + b_v),  z = W_z y + b_z           [C], no activation
//   i = sigma(I u + b_i),  r = sigma(R u + b_r)              [C]: I, R have
//                                      H blocks [V, V] on the diagonal
//   log a = -8 softplus(Lambda) r                            [C]
//   h_t = a_t h_{t-1} + sqrt(1 - a_t^2) i_t u_t              [C]
//   out = W_out (h gelu(z)) + b_out
//
// The first token of a sequence writes i u, without the root. gelu is the form
// with a tanh, and Lambda has the sign of the published models, the opposite of
// the paper's.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

/// The paper's c.
inline constexpr double kLruRate = 8.0;

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
