// Runs of floats that are part of a value: padded, copied, compared and hashed
// by their bits.
#pragma once

#include <cstdint>
#include <cstring>

namespace tarn {

inline int64_t PaddedFloats(int64_t floats) {
  constexpr int64_t kAlignFloats = 16;  // 64 bytes
  return (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

inline bool SameFloats(const float* a, const float* b, int64_t count) {
  return count == 0 ||
         std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

inline void CopyFloats(const float* from, int64_t count, float* to) {
  if (count > 0) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  }
}

// Multiply and fold, one 32-bit word at a time; not cryptographic.
inline uint64_t MixHash(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

inline uint64_t MixFloats(uint64_t hash, const float* p, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, p + i, sizeof(word));
    hash = MixHash(hash, word);
  }
  return hash;
}

}  // namespace tarn
