// The runtime half that the attention mixers share: queries, keys and values of
// all heads side by side in one row, made by one product, and rotated where
// positions are rotary.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "runtime/stack/mixer.h"

namespace tarn::mixers {

/// A view [1, count, heads, width] of some heads' columns.
inline TensorView HeadView(float* data, int64_t count, int64_t stride,
                           int64_t width, int64_t heads = 1) {
  return {data, {1, count, heads, width}, {0, stride, width}, DType::kF32};
}

/// Columns of `in`: [H K] queries, [H K] keys, [H V] values; of `out`: [H V].
class RuntimeAttention : public RuntimeMixer {
 public:
  int64_t shares() const override { return heads_; }

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
  /// Rotates all queries and keys of a row, or of one head, by its position.
  void RotateRow(const MixerBlock& block, int64_t row) const;
  void RotateHead(const MixerBlock& block, int64_t row, int64_t head) const;

  const int64_t heads_, d_key_, d_value_;
  const int64_t key_width_, value_width_;  // H K, H V
  const bool rotary_;
};

}  // namespace tarn::mixers
