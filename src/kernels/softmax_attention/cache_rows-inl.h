// Vectors of a cache's rows, widened exactly: what the step of softmax
// attention reads. A row is a run of words (cache_rows.h).

#if defined(TARN_KERNELS_SOFTMAX_ATTENTION_CACHE_ROWS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_SOFTMAX_ATTENTION_CACHE_ROWS_INL_H_
#undef TARN_KERNELS_SOFTMAX_ATTENTION_CACHE_ROWS_INL_H_
#else
#define TARN_KERNELS_SOFTMAX_ATTENTION_CACHE_ROWS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/softmax_attention/cache_rows.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Each class has
//   Load(row, i)       entries [i, i + Lanes) of a row; i a multiple of Lanes
//   Part(row, i, n)    n < Lanes entries, zeros in the other lanes
//   Words(i)           words of a row before entry i: for prefetching

struct F32CacheRows {
  static HWY_INLINE VF Load(const float* row, int64_t i) {
    return hn::LoadU(DF(), row + i);
  }
  static HWY_INLINE VF Part(const float* row, int64_t i, int64_t n) {
    return LoadPart(row + i, n);
  }
  static constexpr int64_t Words(int64_t i) { return i; }
};

struct BF16CacheRows {
  static HWY_INLINE VF Load(const float* row, int64_t i) {
    return LoadVector<DType::kBF16>(DF(),
                                    reinterpret_cast<const uint16_t*>(row) + i);
  }
  static HWY_INLINE VF Part(const float* row, int64_t i, int64_t n) {
    HWY_ALIGN uint16_t part[kRowPad] = {0};
    std::memcpy(part, reinterpret_cast<const uint16_t*>(row) + i,
                static_cast<size_t>(n) * sizeof(uint16_t));
    return LoadVector<DType::kBF16>(DF(), part);
  }
  static constexpr int64_t Words(int64_t i) { return i / 2; }
};

struct Int8CacheRows {
  using DI8 = hn::Rebind<int8_t, DF>;
  using DI32 = hn::Rebind<int32_t, DF>;
  static_assert(kCacheBlock % static_cast<int64_t>(hn::MaxLanes(DF())) == 0,
                "a vector is part of one block");

  static HWY_INLINE VF Load(const float* row, int64_t i) {
    const float* block = Block(row, i);
    return Widened(*block, Codes(block, i));
  }
  static HWY_INLINE VF Part(const float* row, int64_t i, int64_t n) {
    const float* block = Block(row, i);
    HWY_ALIGN int8_t part[kRowPad] = {0};
    std::memcpy(part, Codes(block, i), static_cast<size_t>(n));
    return Widened(*block, part);
  }
  static constexpr int64_t Words(int64_t i) {
    return i / kCacheBlock * kCacheBlockWords + i % kCacheBlock / 4;
  }

 private:
  // i >= 0: a division of an unsigned number is a shift.
  static HWY_INLINE const float* Block(const float* row, int64_t i) {
    return row + static_cast<uint64_t>(i) / kCacheBlock * kCacheBlockWords;
  }
  static HWY_INLINE const int8_t* Codes(const float* block, int64_t i) {
    return reinterpret_cast<const int8_t*>(block + 1) +
           static_cast<uint64_t>(i) % kCacheBlock;
  }
  static HWY_INLINE VF Widened(float scale, const int8_t* codes) {
    const auto whole = hn::PromoteTo(DI32(), hn::LoadU(DI8(), codes));
    return hn::Mul(hn::Set(DF(), scale), hn::ConvertTo(DF(), whole));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
