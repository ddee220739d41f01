// The rows of a cache of keys or values as CacheType holds them, in 4-byte
// words, so that a row of any type is a run of floats to those who copy, hash
// and store it.
//
//   kF32   the numbers
//   kBF16  bfloat16, two a word; after an odd number of them 0
//   kInt8  blocks of 32 numbers, the last one of those that are left: a scale d
//          (float32), then one int8 a number and zeros up to a whole word:
//            value = d q,   d = max |x| / 127,   q = nearest integer to x / d
//          d has 16 significant bits (rounded down), so that d q is exact in
//          float32 and the largest number of a block has q = 127 or -127
//          unless d is subnormal: rows that were read back are stored with the
//          same bits. |value - x| <= 0.505 d. 9 words a block, 9 bits a number.
#pragma once

#include <cstdint>

#include "kernels/softmax_attention/cache_type.h"

namespace tarn {

/// Numbers of a block of kInt8, and its words.
inline constexpr int64_t kCacheBlock = 32;
inline constexpr int64_t kCacheBlockWords = 1 + kCacheBlock / 4;

/// Words of a row of `width` >= 0 numbers.
constexpr int64_t CacheRowWords(CacheType type, int64_t width) {
  switch (type) {
    case CacheType::kF32:
      break;
    case CacheType::kBF16:
      return (width + 1) / 2;
    case CacheType::kInt8: {
      const int64_t left = width % kCacheBlock;
      return width / kCacheBlock * kCacheBlockWords +
             (left > 0 ? 1 + (left + 3) / 4 : 0);
    }
  }
  return width;
}

/// row [CacheRowWords(type, width)] = the numbers x [width], rounded. What is
/// NaN stays NaN; in kInt8 NaN or an infinity make their block NaN. All words
/// are written. The same bits on every machine. Allocates nothing.
void StoreCacheRow(CacheType type, const float* x, int64_t width, float* row);
/// x = the numbers of a row, exactly.
void LoadCacheRow(CacheType type, const float* row, int64_t width, float* x);

}  // namespace tarn
