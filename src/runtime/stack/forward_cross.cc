// Cross attention of a decoder: every query reads a memory that was built once,
// and leaves it as it is. A task is one head of one segment.
#include <algorithm>
#include <cmath>

#include "kernels/linear_attention/linear_attention.h"
#include "kernels/softmax_attention/softmax_attention.h"
#include "runtime/stack/forward.h"
#include "runtime/state/linear_memory.h"

namespace tarn {

void Forward::AttendCross(int64_t layer) {
  const int64_t heads = config_.n_heads;
  const int64_t sequences = static_cast<int64_t>(segments.size());
  const bool linear = config_.cross_attention == CrossAttention::kLinear;
  int64_t width = cross_form_.d_feature();  // rows that one query reads
  if (!linear) {
    width = 0;
    for (const Segment& s : segments) {
      width = std::max(width, s.state->memory->source_len());
    }
  }
  const int64_t rows_each = (rows() + sequences - 1) / sequences;
  ForTasks(sequences * heads,
           rows_each * (width * (config_.d_key + config_.d_value) / 16 + 100),
           [&](int64_t task, int worker) {
             const Segment& s = segments[static_cast<size_t>(task / heads)];
             if (linear) {
               CrossLinear(s, layer, task % heads, worker);
             } else {
               CrossFull(s, layer, task % heads, worker);
             }
           });
}

void Forward::CrossLinear(const Segment& segment, int64_t layer, int64_t head,
                          int worker) {
  const CrossMemory& memory = *segment.state->memory;
  const LinearMemory read = {
      memory.S(layer, head), memory.Z(layer, head),
      cross_form_.norm_sums() ? *memory.NormSum(layer, head) : 0.0f};
  ReadLinearMemory(
      cross_form_, read,
      {in[segment.row] + head * config_.d_key, in.stride, segment.count},
      {out[segment.row] + head * config_.d_value, out.stride,
       segment.count},
      config_.d_value, Scratch(worker));
}

void Forward::CrossFull(const Segment& segment, int64_t layer, int64_t head,
                        int worker) {
  const CrossMemory& memory = *segment.state->memory;
  const int64_t d_key = config_.d_key, d_value = config_.d_value;
  const float scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(d_key)));
  for (int64_t r = segment.row; r < segment.row + segment.count; ++r) {
    float* row = out[r] + head * d_value;
    if (memory.source_len() == 0) {  // an empty row is zero
      std::fill_n(row, d_value, 0.0f);
      continue;
    }
    SoftmaxAttentionStep(in[r] + head * d_key,
                         {memory.Keys(layer, head), memory.Values(layer, head),
                          d_key, d_value, memory.source_len(), d_key, d_value},
                         scale, Scratch(worker), row);
  }
}

}  // namespace tarn
