#include "kernels/softmax_attention/cache_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/half.h"
#include "core/numbers/bit_cast.h"

namespace tarn {
namespace {

constexpr float kMostCode = 127.0f;
constexpr uint32_t kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000;

// max |x| / 127 without its last 8 bits; NaN where an entry is not finite. The
// bits of magnitudes are in the order of the magnitudes, NaN last.
float ScaleOf(const float* x, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, BitCast<uint32_t>(x[i]) & kMagnitude);
  }
  if (most >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  const float scale = BitCast<float>(most) / kMostCode;
  return BitCast<float>(BitCast<uint32_t>(scale) & 0xFFFFFF00u);
}

void StoreBlock(const float* x, int64_t count, float* block) {
  // A sum with it has no bits below 1: it is rounded to nearest, ties to even.
  constexpr float kWhole = 0x1.8p23f;
  const float scale = ScaleOf(x, count);
  int8_t codes[kCacheBlock] = {0};
  if (scale > 0.0f) {
    for (int64_t i = 0; i < count; ++i) {
      const float q = std::min(std::max(x[i] / scale, -kMostCode), kMostCode);
      codes[i] =
          static_cast<int8_t>(static_cast<int32_t>((q + kWhole) - kWhole));
    }
  }
  std::memcpy(block, &scale, sizeof(scale));
  std::memcpy(block + 1, codes, static_cast<size_t>((count + 3) / 4 * 4));
}

void LoadBlock(const float* block, int64_t count, float* x) {
  int8_t codes[kCacheBlock];
  std::memcpy(codes, block + 1, static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    x[i] = *block * static_cast<float>(codes[i]);
  }
}

void StoreBF16(const float* x, int64_t width, float* row) {
  for (int64_t i = 0; i < width; i += 2) {
    const uint16_t pair[2] = {F32ToBF16(x[i]), i + 1 < width
                                                   ? F32ToBF16(x[i + 1])
                                                   : static_cast<uint16_t>(0)};
    std::memcpy(row++, pair, sizeof(pair));
  }
}

void LoadBF16(const float* row, int64_t width, float* x) {
  for (int64_t i = 0; i < width; i += 2) {
    uint16_t pair[2];
    std::memcpy(pair, row++, sizeof(pair));
    x[i] = BF16ToF32(pair[0]);
    if (i + 1 < width) x[i + 1] = BF16ToF32(pair[1]);
  }
}

}  // namespace

void StoreCacheRow(CacheType type, const float* x, int64_t width, float* row) {
  switch (type) {
    case CacheType::kF32:
      std::copy_n(x, width, row);
      return;
    case CacheType::kBF16:
      return StoreBF16(x, width, row);
    case CacheType::kInt8:
      for (int64_t i = 0; i < width; i += kCacheBlock) {
        StoreBlock(x + i, std::min(kCacheBlock, width - i), row);
        row += kCacheBlockWords;
      }
  }
}

void LoadCacheRow(CacheType type, const float* row, int64_t width, float* x) {
  switch (type) {
    case CacheType::kF32:
      std::copy_n(row, width, x);
      return;
    case CacheType::kBF16:
      return LoadBF16(row, width, x);
    case CacheType::kInt8:
      for (int64_t i = 0; i < width; i += kCacheBlock) {
        LoadBlock(row, std::min(kCacheBlock, width - i), x + i);
        row += kCacheBlockWords;
      }
  }
}

}  // namespace tarn
