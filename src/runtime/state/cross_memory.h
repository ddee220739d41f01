// What the cross attention of a decoder reads: a source sequence after the
// encoder, projected to keys and values once, for every layer.
#pragma once

#include <cstdint>

#include "config/model_config.h"
#include "kernels/aligned_buffer.h"

namespace tarn {

/// Linear cross attention: per layer and head S [C, V], z [C] and, for the
/// signed denominator, the sum of ||phi(k)||: the same size for any source.
/// Softmax: keys [source_len, K], values [source_len, V]. Filled once, then
/// read by any number of threads.
class CrossMemory {
 public:
  CrossMemory(const ModelConfig& config, int64_t source_len);

  /// Bytes of a memory of any length, and those of one more source token.
  static int64_t FixedBytes(const ModelConfig& config);
  static int64_t BytesPerToken(const ModelConfig& config);
  /// Floats of one head of one layer.
  static int64_t HeadFloats(const ModelConfig& config, int64_t source_len);

  int64_t source_len() const { return source_len_; }
  int64_t bytes() const { return block_.bytes(); }
  const float* S(int64_t layer, int64_t head) const {
    return block_.data() + (layer * heads_ + head) * head_floats_;
  }
  const float* Z(int64_t layer, int64_t head) const {
    return S(layer, head) + d_feature_ * d_value_;
  }
  const float* NormSum(int64_t layer, int64_t head) const {
    return Z(layer, head) + d_feature_;
  }
  const float* Keys(int64_t layer, int64_t head) const {
    return S(layer, head);
  }
  const float* Values(int64_t layer, int64_t head) const {
    return S(layer, head) + source_len_ * d_key_;
  }
  /// The head's block, in the order of the accessors, for whoever fills it.
  float* Head(int64_t layer, int64_t head) {
    return block_.data() + (layer * heads_ + head) * head_floats_;
  }

  uint64_t Hash() const;  // O(bytes)
  /// Bit for bit; null equals null.
  static bool SameBits(const CrossMemory* a, const CrossMemory* b);

 private:
  int64_t source_len_, heads_, d_key_, d_value_, d_feature_, head_floats_;
  AlignedBuffer<float> block_;  // [layers, heads, head_floats]
};

}  // namespace tarn
