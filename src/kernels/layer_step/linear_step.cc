#include "kernels/layer_step/linear_step.h"

#include <algorithm>

#include "core/tensor_view.h"

namespace tarn {
void LinearStepAttention::Attend(const LayerStepPart& part,
                                 const LayerStepRows& rows) const {
  const LinearAttentionState& state = states_[part.layer];
  const int64_t heads = part.head_end - part.head_begin;
  const int64_t d_key = call_.d_key, d_value = call_.d_value;
  const auto view = [&](float* data, int64_t row, int64_t width) {
    const int64_t at = row * call_.heads + part.head_begin;
    return TensorView::Dense(data + at * width, 1, 1, heads, width);
  };
  SerialExecutor serial;
  for (int64_t row = part.row_begin; row < part.row_end; ++row) {
    const int64_t at = row * call_.heads + part.head_begin;
    const int64_t S = at * d_key * d_value, z = at * d_key;
    LinearAttentionState own = {nullptr, nullptr, state.next_S + S,
                                state.next_z + z};
    if (state.S != nullptr) {
      own.S = state.S + S;
      own.z = state.z + z;
    } else {
      std::fill_n(own.next_S, heads * d_key * d_value, 0.0f);
      std::fill_n(own.next_z, heads * d_key, 0.0f);
      own.S = own.next_S;
      own.z = own.next_z;
    }
    LinearAttentionStepInto(options_, view(rows.queries, row, d_key),
                            view(rows.keys, row, d_key),
                            view(rows.values, row, d_value), own,
                            view(rows.attended, row, d_value), serial);
  }
}

}  // namespace tarn
