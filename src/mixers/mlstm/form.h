// The mLSTM layer of xLSTM (Beck et al. 2024, arXiv 2405.04517, eq. (19)-(27))
// in the form of xLSTM-7B (Beck et al. 2025, arXiv 2503.13427): a matrix state
// with exponential input gates, whose running maximum keeps them finite. With
// y_t a row of the layer, H = n_heads, K = d_key, V = d_value, and c the key
// gate_softcap, cap(x) = c tanh(x / c), or x where c = 0:
//
//   q, k, v, z = W_q y, W_k y, W_v y, W_z y         [H, K], [H, K], [H, V]
//   twice i, f = cap(W_i y + b_i), cap(W_f y + b_f)       [H] m_t = max(log
//   sigma(f_t) + m_{t-1}, i_t)        m_0 = 0 C_t = exp(log sigma(f_t) +
//   m_{t-1} - m_t) C_{t-1} + exp(i_t - m_t) k_t v_t^T n_t = the same of n_{t-1}
//   and exp(i_t - m_t) k_t h_t = C_t^T q_t / sqrt(K) / (max(|n_t . q_t| /
//   sqrt(K), exp(-m_t)) + 1e-6) out = W_out (layer norm of each head(h) *
//   weight * sigma(z))
//
// n is one more column of C, a value that is always 1: the recurrence is that
// of decay_attention.h with keys times exp(i - m). But for the 1e-6 the result
// does not depend on m, which therefore has no gradient.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

/// Added to the denominator.
inline constexpr double kMlstmEps = 1e-6;

/// Widths of one layer.
struct MlstmSizes {
  int64_t d_model, heads, d_key, d_value;
  double softcap;  // of the gates; 0: none
  int64_t keys() const { return heads * d_key; }
  int64_t values() const { return heads * d_value; }
  /// Columns of C: the values and the 1.
  int64_t columns() const { return d_value + 1; }
};

inline MlstmSizes MlstmSizesOf(const ModelConfig& layer) {
  return {.d_model = layer.d_model,
          .heads = layer.n_heads,
          .d_key = layer.d_key,
          .d_value = layer.d_value,
          .softcap = KeyOf<double>(layer, "gate_softcap")};
}

}  // namespace tarn
