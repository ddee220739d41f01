#include "kernels/layer_step/memory_step.h"

#include "core/tensor_view.h"

namespace tarn {

void MemoryStepAttention::Attend(const LayerStepPart& part,
                                 const LayerStepRows& rows) const {
  if (part.attention == 0) {
    self_.Attend(part, rows);
    return;
  }
  const MemoryStepState& memory = memories_[part.layer];
  for (int64_t row = part.row_begin; row < part.row_end; ++row) {
    Read(memory, part, rows, row);
  }
}

void MemoryStepAttention::Read(const MemoryStepState& memory,
                               const LayerStepPart& part,
                               const LayerStepRows& rows, int64_t row) const {
  const int64_t d_key = call_.d_key, d_value = call_.d_value;
  if (memory.S != nullptr) {
    const int64_t at = row * call_.heads + part.head_begin;
    const int64_t heads = part.head_end - part.head_begin;
    SerialExecutor serial;
    LinearAttentionRead(
        options_,
        TensorView::Dense(rows.queries + at * d_key, 1, 1, heads, d_key),
        memory.S + at * d_key * d_value, memory.z + at * d_key,
        TensorView::Dense(rows.attended + at * d_value, 1, 1, heads, d_value),
        serial);
    return;
  }
  for (int64_t head = part.head_begin; head < part.head_end; ++head) {
    const int64_t at = row * call_.heads + head;
    KeyValueCache cache = memory.cache;
    cache.keys += row * memory.key_row + head * memory.key_head;
    cache.values += row * memory.value_row + head * memory.value_head;
    SoftmaxAttentionStep(rows.queries + at * d_key, cache, scale_,
                         scores_ + part.share * longest_,
                         rows.attended + at * d_value);
  }
}

}  // namespace tarn
