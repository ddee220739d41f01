#include "kernels/softmax_attention/cache_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/half.h"

namespace tarn {
namespace {

constexpr float kMostCode = 127.0f;

// max |x| / 127 without its last 8 bits; NaN where an entry is not finite.
float ScaleOf(const float* x, int64_t count) {
  float most = 0.0f;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite = finite && std::isfinite(x[i]);
    most = std::max(most, std::fabs(x[i]));
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(std::bit_cast<uint32_t>(most / kMostCode) &
                              0xFFFFFF00u);
}

void StoreBlock(const float* x, int64_t count, float* block) {
  const float scale = ScaleOf(x, count);
  int8_t codes[kCacheBlock] = {0};
  if (scale > 0.0f) {
    for (int64_t i = 0; i < count; ++i) {
      // Half to even, in the mode that the process never leaves.
      codes[i] = static_cast<int8_t>(
          std::clamp(std::nearbyint(x[i] / scale), -kMostCode, kMostCode));
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
