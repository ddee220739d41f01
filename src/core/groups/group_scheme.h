// Numbers in groups: g consecutive inputs of a row share a float16 scale. A row
// is stored in blocks of one group, front to back; the last block is whole,
// with the code of zero for what it lacks. All of files, packing and products
// agree on these blocks:
//   8 bits                  { f16 d; int8 q[g] }               d q
//   4 bits                  { f16 d; u8 b[g/2] }               d (q - 8)
//   4 bits with a minimum   { f16 d; f16 m; u8 b[g/2] }        d q + m
// Four-bit code j is the low half of b[j] for j < g/2, else the high half of
// b[j - g/2]. With g = 32 these are GGUF's Q8_0, Q4_0 and Q4_1.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/half.h"

namespace tarn {

/// One such way of storing numbers.
struct GroupScheme {
  int bits = 8;          // of a code: 8 or 4
  int64_t group = 32;    // 32, 64 or 128
  bool minimum = false;  // with 4 bits only

  bool operator==(const GroupScheme&) const = default;

  int64_t HeadBytes() const { return minimum ? 4 : 2; }
  int64_t BlockBytes() const { return HeadBytes() + group * bits / 8; }
  /// Blocks of a row, and their bytes. columns >= 0.
  int64_t Blocks(int64_t columns) const {
    return columns / group + (columns % group != 0 ? 1 : 0);
  }
  int64_t RowBytes(int64_t columns) const {
    return Blocks(columns) * BlockBytes();
  }

  /// The codes that products read: int8 is kept with its sign, four bits are
  /// 0..15.
  int LowestCode() const { return bits == 8 ? -128 : 0; }
  int HighestCode() const { return bits == 8 ? 127 : 15; }
  /// What is subtracted from a code: 8 for four bits without a minimum.
  int Offset() const { return bits == 4 && !minimum ? 8 : 0; }
};

/// The largest group.
inline constexpr int64_t kMostGroup = 128;

/// The number that a code stands for. Exact for a scale from float16 without a
/// minimum (11 bits times 8); with one, rounded once.
inline float GroupValue(const GroupScheme& scheme, float scale, float minimum,
                        int code) {
  const float product = scale * static_cast<float>(code - scheme.Offset());
  return scheme.minimum ? product + minimum : product;
}

namespace group_internal {

inline float LoadF16(const uint8_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return F16ToF32(bits);
}

}  // namespace group_internal

/// Scale and minimum (0 without one) of a block; its bits are at bytes 0 and 2.
inline float GroupScale(const uint8_t* block) {
  return group_internal::LoadF16(block);
}
inline float GroupMinimum(const GroupScheme& scheme, const uint8_t* block) {
  return scheme.minimum ? group_internal::LoadF16(block + 2) : 0.0f;
}

/// Code j of a block, 0 <= j < group.
inline int GroupCode(const GroupScheme& scheme, const uint8_t* block,
                     int64_t j) {
  const uint8_t* codes = block + scheme.HeadBytes();
  if (scheme.bits == 8) return static_cast<int8_t>(codes[j]);
  const int64_t half = scheme.group / 2;
  return j < half ? codes[j] & 15 : codes[j - half] >> 4;
}
/// Sets code j, which is in [LowestCode(), HighestCode()].
inline void SetGroupCode(const GroupScheme& scheme, int64_t j, int code,
                         uint8_t* block) {
  uint8_t* codes = block + scheme.HeadBytes();
  if (scheme.bits == 8) {
    codes[j] = static_cast<uint8_t>(code);
    return;
  }
  const int64_t half = scheme.group / 2;
  uint8_t& byte = codes[j < half ? j : j - half];
  byte = static_cast<uint8_t>(j < half ? (byte & 0xF0) | code
                                       : (byte & 0x0F) | code << 4);
}

/// The first `count` numbers of a block as float32, count <= group.
inline void DecodeGroup(const GroupScheme& scheme, const uint8_t* block,
                        int64_t count, float* to) {
  const float scale = GroupScale(block);
  const float minimum = GroupMinimum(scheme, block);
  for (int64_t j = 0; j < count; ++j) {
    to[j] = GroupValue(scheme, scale, minimum, GroupCode(scheme, block, j));
  }
}

}  // namespace tarn
