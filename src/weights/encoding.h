// How a file stores numbers. An encoding is about files; how matrices are
// stored in memory is a weight format (kernels/matmul/weight_format.h).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tarn {

/// Numbers are stored in blocks of `numbers` in `bytes` bytes; a row of a
/// matrix is a whole number of blocks. Single numbers are blocks of one.
struct Encoding {
  const char* name;  // "F32", "BF16", "F16": as the file calls it
  int64_t numbers, bytes;
  /// Widens whole blocks to float32; `from` may be unaligned.
  void (*widen)(const uint8_t* from, int64_t numbers, float* to);
  /// Rounds float32 to the nearest; null: files of this encoding are read only.
  void (*narrow)(const float* from, int64_t numbers, uint8_t* to) = nullptr;

  /// Bytes of `count` numbers, a multiple of `numbers`.
  int64_t Bytes(int64_t count) const { return count / numbers * bytes; }
};

extern const Encoding kF32Encoding, kBF16Encoding, kF16Encoding;

/// The encoding of a dtype of safetensors.
const Encoding& EncodingOf(DType dtype);

}  // namespace tarn
