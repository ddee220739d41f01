// The mixers of RWKV-6 (Peng et al. 2024, arXiv 2404.05892) and RWKV-7 (Peng et
// al. 2025, arXiv 2503.14456). Each projection reads a mixture of a token's row
// and the one before it, so that a layer carries that row with its state S.
//
// RWKV-7, with y the row, D = y_{t-1} - y_t and y_n = y + token_shift[n] * D:
//   q, k, v = W_q y_r, W_k y_k, W_v y_v
//   g = -e^{-1/2} sigma(up_w tanh(down_w y_w) + bias)
//   a = sigma(up_a down_a y_a + bias)
//   c = |k * key_scale| a head, k' = k * (1 + (a - 1) * key_rate)
//   o = dplr_attention(q, k', v, reads -c, writes c * a, g), scale 1
//   z = group_norm(o) + (sum_c q k' bonus) v a head
//   out = W_out (z * up_g sigma(down_g y_g))
// With value_residual, as in the paper, layers after the first also read the
// values v_1 of the first:
//   v += (v_1 - v) * sigma(up_v down_v y_v + bias)
//
// RWKV-6: y_n = y + D * (token_shift[n] + up_n tanh(down_n (y + shift_base *
// D)))
//   o = decay_attention(q, k, v, g = -exp(up_w tanh(down_w y_w) + bias), bonus)
//   out = W_out (group_norm(o) * silu(W_g y_g))
#pragma once

#include <cstdint>
#include <string_view>

#include "config/model_config.h"

namespace tarn {

/// Rows of token_shift, in this order; RWKV-6 has no kRate.
enum ShiftedInput : int64_t {
  kShiftQuery,
  kShiftDecay,
  kShiftKey,
  kShiftValue,
  kShiftGate,
  kShiftRate
};

/// Widths of one layer; d_value is d_key.
struct RwkvSizes {
  bool seven;
  int64_t d_model, heads, d_key;
  int64_t width;       // heads * d_key
  int64_t inputs;      // rows of token_shift: 6, or 5 in RWKV-6
  int64_t rank;        // of decays
  int64_t rate_rank;   // of rates, RWKV-7
  int64_t gate_rank;   // of the output gate, RWKV-7
  int64_t shift_rank;  // of the shifts, RWKV-6
  int64_t value_rank;  // of the share of the first layer's values, RWKV-7
  bool passes_values;  // whether layers share the values of the first one
  bool reads_values;   // whether this layer is a later one
  double norm_eps;     // of the group norm
  float unit_eps;      // under the root of a key's length, RWKV-7
};

/// Whether a mixer of that name is one of the two.
bool IsRwkv(std::string_view name);
/// layer.attention is one of the two.
RwkvSizes RwkvSizesOf(const ModelConfig& layer);

/// e^{-1/2}, the largest decay of RWKV-7.
inline constexpr double kRwkvDecay = 0.60653065971263342;

}  // namespace tarn
