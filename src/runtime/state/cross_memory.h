// What the cross attention of a decoder keeps of a source: one block of floats
// for every layer and head, which the mixer of cross attention lays out
// (runtime/mixer/cross.h).
#pragma once

#include <cstdint>

#include "kernels/aligned_buffer.h"

namespace tarn {

/// Zeros until it is filled, once; then read by any number of threads.
class CrossMemory {
 public:
  CrossMemory(int64_t layers, int64_t heads, int64_t head_floats,
              int64_t source_len);

  int64_t source_len() const { return source_len_; }
  int64_t bytes() const { return block_.bytes(); }
  const float* Head(int64_t layer, int64_t head) const {
    return block_.data() + (layer * heads_ + head) * head_floats_;
  }
  float* Head(int64_t layer, int64_t head) {
    return block_.data() + (layer * heads_ + head) * head_floats_;
  }

  uint64_t Hash() const;  // O(bytes)
  /// Bit for bit; null equals null.
  static bool SameBits(const CrossMemory* a, const CrossMemory* b);

 private:
  int64_t source_len_, heads_, head_floats_;
  AlignedBuffer<float> block_;  // [layers, heads, head_floats]
};

}  // namespace tarn
