// How a file stores numbers. An encoding is about files; how matrices are
// stored in memory is a weight format (kernels/matmul/weight_format.h).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tarn {

struct GroupScheme;

/// Numbers are stored in blocks of `numbers` in `bytes` bytes, from the
/// beginning of a row on. A row's last block may have fewer numbers and is
/// stored whole. Single numbers are blocks of one.
struct Encoding {
  const char* name;  // "F32", "BF16", "F16": as the file calls it
  int64_t numbers, bytes;
  /// Widens `numbers` numbers of one row, from the beginning of a block on, to
  /// float32; rows of whole blocks may follow each other. `from` may be
  /// unaligned.
  void (*widen)(const uint8_t* from, int64_t numbers, float* to);
  /// Rounds float32 to the nearest, in the same way; null: files of this
  /// encoding are read only.
  void (*narrow)(const float* from, int64_t numbers, uint8_t* to) = nullptr;
  /// Of blocks that are those of a scheme (core/groups/group_scheme.h), which
  /// matrices can hold as they are; null: of others.
  const GroupScheme* scheme = nullptr;

  /// Bytes of `count` numbers of a row, from the beginning of a block on.
  int64_t Bytes(int64_t count) const {
    return (count + numbers - 1) / numbers * bytes;
  }
};

extern const Encoding kF32Encoding, kBF16Encoding, kF16Encoding;
/// Bytes that hold codes and not numbers ("U8"): widened they are 0 to 255.
extern const Encoding kBytesEncoding;

/// The encoding of a dtype of safetensors.
const Encoding& EncodingOf(DType dtype);

}  // namespace tarn
