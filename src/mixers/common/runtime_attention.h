// The runtime half that the attention mixers share: queries, keys and values of
// all heads side by side in one row, made by one product, and rotated where
// positions are rotary.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

/// A view [1, count, heads, width] of some heads' columns.
inline TensorView HeadView(float* data, int64_t count, int64_t stride,
                           int64_t width, int64_t heads = 1) {
  return {data, {1, count, heads, width}, {0, stride, width}, DType::kF32};
}

/// Columns of `in`: [H K] queries, [H K] keys, [H V] values; of `out`: [H V].
class RuntimeAttention : public RuntimeMixer {
 public:
  int64_t units(int) const override { return heads_; }

 protected:
  RuntimeAttention(const ModelConfig& layer, MixerTensors& tensors);

  float* Query(const MixerBlock& block, int64_t row, int64_t head) const {
    return block.in[row] + head * d_key_;
  }
  float* Key(const MixerBlock& block, int64_t row, int64_t head) const {
    return block.in[row] + key_width_ + head * d_key_;
  }
  float* Value(const MixerBlock& block, int64_t row, int64_t head) const {
    return block.in[row] + 2 * key_width_ + head * d_value_;
  }
  float* Out(const MixerBlock& block, int64_t row, int64_t head) const {
    return block.out[row] + head * d_value_;
  }
  /// Rotates all rows of a block where positions are rotary.
  void Rotate(MixerBlock& block) const {
    if (!rotary_) return;
    block.ForRows(key_width_, [&](int64_t row) { RotateRow(block, row); });
  }
  /// f(segment, head, worker) for every head of every segment, whose rows read
  /// about `keys` keys each.
  template <typename F>
  void ForHeads(MixerBlock& block, int64_t keys, const F& f) const {
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    const int64_t rows_each = (block.rows() + segments - 1) / segments;
    block.ForTasks(segments * heads_,
                   rows_each * (keys * (d_key_ + d_value_) / 16 + 100),
                   [&](int64_t task, int worker) {
                     f(block.segments[static_cast<size_t>(task / heads_)],
                       task % heads_, worker);
                   });
  }
  /// Rotates all queries and keys of a row, or of one head, by its position.
  void RotateRow(const MixerBlock& block, int64_t row) const;
  void RotateHead(const MixerBlock& block, int64_t row, int64_t head) const;

  const int64_t heads_, d_key_, d_value_;
  const int64_t key_width_, value_width_;  // H K, H V
  const bool rotary_;
};

}  // namespace tarn::mixers
