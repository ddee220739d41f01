// How kernels lay out scratch: rows padded to the widest vector, parts one
// after another.
#pragma once

#include <cstdint>

namespace tarn {

/// Floats of one padded step: the widest vector here (AVX-512), 64 bytes.
constexpr int64_t kRowPad = 16;

constexpr int64_t PadRow(int64_t n) {
  return (n + kRowPad - 1) / kRowPad * kRowPad;
}

/// Columns of a matrix held in panels of two vectors of any target.
constexpr int64_t PadState(int64_t n) {
  return (n + 2 * kRowPad - 1) / (2 * kRowPad) * (2 * kRowPad);
}

/// Hands out parts of one buffer, in floats. Parts whose sizes are multiples of
/// kRowPad keep the buffer's 64-byte alignment.
class ScratchPlan {
 public:
  /// Offset of a part of `floats` floats.
  int64_t Take(int64_t floats) {
    const int64_t begin = total_;
    total_ += floats;
    return begin;
  }
  int64_t total() const { return total_; }

 private:
  int64_t total_ = 0;
};

}  // namespace tarn
