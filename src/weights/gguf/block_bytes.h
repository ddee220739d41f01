// What the decoders of GGUF's blocks share. Private to the encodings.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/half.h"

namespace tarn {

/// A number that is stored unaligned.
template <typename T>
T Stored(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

inline float StoredF16(const uint8_t* from) {
  return F16ToF32(Stored<uint16_t>(from));
}

/// Encoding::widen of blocks that Block describes: kNumbers, kBytes, and
/// Decode(const uint8_t* block, float* out).
template <typename Block>
void WidenBlocks(const uint8_t* from, int64_t numbers, float* to) {
  for (int64_t i = 0; i < numbers; i += Block::kNumbers) {
    Block::Decode(from, to + i);
    from += Block::kBytes;
  }
}

/// Encoding::narrow of the same, with Encode(const float* numbers, uint8_t*
/// block).
template <typename Block>
void NarrowBlocks(const float* from, int64_t numbers, uint8_t* to) {
  for (int64_t i = 0; i < numbers; i += Block::kNumbers) {
    Block::Encode(from + i, to);
    to += Block::kBytes;
  }
}

/// The numbers of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace tarn
