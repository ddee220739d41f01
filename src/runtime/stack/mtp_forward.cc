#include "runtime/stack/mtp_forward.h"

#include <algorithm>

namespace tarn {

MtpForward::MtpForward(const ModelConfig& head, const MtpWeights& weights,
                       Executor& executor)
    : config_(head),
      weights_(weights),
      executor_(executor),
      forward_(head, weights.stack, nullptr, executor) {}

void MtpForward::Run(SequenceState& state, std::span<const int32_t> tokens,
                     const float* hidden, float* logits, float* out) {
  const int64_t width = config_.d_model;
  const int64_t stride = RowStride(width), both = RowStride(2 * width);
  while (!tokens.empty()) {
    forward_.Clear();
    const int64_t count = forward_.Add(state, tokens);
    if (rows_.size() < count * (stride + both)) {
      rows_ = AlignedBuffer<float>(count * (stride + both));
    }
    const Rows x = {rows_.data(), stride};
    const Rows joined = {rows_.data() + count * stride, both};
    forward_.Embed(x);
    executor_.ParallelFor(count, [&](int64_t row, int) {
      NormRow(config_, weights_.embedding_norm, x[row], joined[row]);
      NormRow(config_, weights_.hidden_norm, hidden + row * width,
              joined[row] + width);
    });
    PackedMatMul(joined.data, joined.stride, count, weights_.projection,
                 {x.data, x.stride}, executor_);
    tokens = tokens.subspan(static_cast<size_t>(count));
    hidden += count * width;
    if (tokens.empty()) {
      if (logits != nullptr) forward_.WantLogits(count - 1, logits);
      if (out != nullptr) forward_.WantHidden(count - 1, 1, out);
    }
    forward_.RunFrom(x);
  }
}

}  // namespace tarn
