// Hashes that pick held-out records, name a corpus or a model, and find damage
// in a file. Not cryptographic: collisions can be made on purpose.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tarn {

/// A bijection of 64-bit words in which every input bit reaches every output
/// bit (the finaliser of MurmurHash3).
inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

/// Hash of bytes, read as little-endian words. O(bytes), several GB/s.
inline uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = Mix(bytes.size() + 0x9e3779b97f4a7c15ULL);
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  uint64_t tail = 0;
  if (i < bytes.size()) std::memcpy(&tail, bytes.data() + i, bytes.size() - i);
  return Mix(hash ^ tail);
}

/// The hash of the bytes that gave `hash` followed by these bytes.
inline uint64_t ExtendHash(uint64_t hash, std::string_view bytes) {
  return Mix(hash ^ HashBytes(bytes));
}

/// 16 hexadecimal digits.
inline std::string HashText(uint64_t hash) {
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, hash >>= 4) {
    *digit = "0123456789abcdef"[hash & 15];
  }
  return text;
}

}  // namespace tarn
