// The mixer of Mamba-1 (Gu and Dao 2023, arXiv 2312.00752, section 3.4 and
// algorithm 2): a selective scan over C = n_heads d_value channels, each with N
// = d_key states whose rates a token scales by its step. Heads do not matter.
// With y a row of the layer:
//
//   u = silu(convolution(W_v y)),  z = W_z y                           [C]
//   dt = softplus(W_up W_down u + dt_bias)                             [C]
//   B, C = W_k u, W_q u                                                [N]
//   with selection_norm: W_down u, B and C each over its root mean square,
//   with a weight, as in Falcon-Mamba (arXiv 2410.05355) and Jamba
//   o = selective_scan(u, dt, A = -exp(A_log), B, C, D)                [C]
//   out = W_out (o silu(z))
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

/// Widths of one layer.
struct MambaSizes {
  int64_t d_model;
  int64_t channels;  // n_heads * d_value
  int64_t states;    // d_key
  int64_t rank;   // of the steps: gate_rank, 0 means d_model / 16, rounded up
  int64_t width;  // of the convolution; 0: none
  bool in_bias, out_bias;  // of the maps of a row and of the last one
  bool selection_norm;
  double selection_eps;
  /// Numbers of a row that u is mapped to: low-rank steps, keys, queries.
  int64_t selected() const { return rank + 2 * states; }
};

MambaSizes MambaSizesOf(const ModelConfig& layer);

}  // namespace tarn
