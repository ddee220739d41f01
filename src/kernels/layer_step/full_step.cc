#include "kernels/layer_step/full_step.h"

#include <algorithm>

#include "kernels/softmax_attention/softmax_attention.h"

namespace tarn {

FullStepAttention::FullStepAttention(float scale, const LayerStepCall& call,
                                     const FullStepState* states, float* scores)
    : scale_(scale), call_(call), states_(states), scores_(scores) {
  for (int64_t i = 0; i < call.count; ++i) {
    longest_ = std::max(longest_, states[i].seq_len);
  }
}

void FullStepAttention::Attend(const LayerStepPart& part,
                               const LayerStepRows& rows) const {
  const FullStepState& state = states_[part.layer];
  const int64_t d_key = call_.d_key, d_value = call_.d_value;
  KeyValueCache cache;
  cache.key_stride = call_.heads * d_key;
  cache.value_stride = call_.heads * d_value;
  cache.seq_len = state.seq_len;
  cache.d_key = d_key;
  cache.d_value = d_value;
  for (int64_t row = part.row_begin; row < part.row_end; ++row) {
    for (int64_t head = part.head_begin; head < part.head_end; ++head) {
      const int64_t at = row * call_.heads + head;
      float* keys = state.keys + row * state.key_stride + head * d_key;
      float* values = state.values + row * state.value_stride + head * d_value;
      std::copy_n(rows.keys + at * d_key, d_key,
                  keys + (state.seq_len - 1) * cache.key_stride);
      std::copy_n(rows.values + at * d_value, d_value,
                  values + (state.seq_len - 1) * cache.value_stride);
      cache.keys = keys;
      cache.values = values;
      SoftmaxAttentionStep(rows.queries + at * d_key, cache, scale_,
                           scores_ + part.share * longest_,
                           rows.attended + at * d_value);
    }
  }
}

}  // namespace tarn
