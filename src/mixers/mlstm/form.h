// The mLSTM layer of xLSTM (Beck et al. 2024, arXiv 2405.04517, eq. (19)-(27))
// in the form of xLSTM-7B (Beck et al. 2025, arXiv 2503.13427). With y_t a row
// of the layer, H = n_heads, K = d_key, V = d_value, and c the key
// gate_softcap:
//
//   q, k, v, z = W_q y, W_k y, W_v y, W_z y    [H, K], [H, K], [H, V] twice
//   p_i, p_f = W_i y, W_f y                    [H]
//   h = the cell of kernels/mlstm/mlstm.h with the biases b_i and b_f and
//       scale = 1 / sqrt(K)                    [H, V]
//   out = W_out (layer norm of each head(h) * weight * sigma(z))
//
// The cell's state is C with n as its last column, and m.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

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
