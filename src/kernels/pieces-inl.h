// Pieces of rows of any dtype, read and written in place: whole vectors, and
// the part after the last of them through the stack.

#if defined(TARN_KERNELS_PIECES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_PIECES_INL_H_
#undef TARN_KERNELS_PIECES_INL_H_
#else
#define TARN_KERNELS_PIECES_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 16 bits of bfloat16 or float16. From AVX2 on the processor converts float16
// itself, to the numbers that WidenF16 and NarrowF16 make of integers.
template <DType kType>
HWY_INLINE VF WidenBits(hn::Vec<DU16> bits) {
  const DF d;
  if constexpr (kType == DType::kBF16) return WidenBF16(d, bits);
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), bits));
#else
  return WidenF16(d, bits);
#endif
}

template <DType kType>
HWY_INLINE hn::Vec<DU16> NarrowBits(VF x) {
  const DF d;
  if constexpr (kType == DType::kBF16) return NarrowBF16(d, x);
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  const hn::Rebind<hwy::float16_t, DF> half;
  return hn::BitCast(DU16(), hn::DemoteTo(half, x));
#else
  return NarrowF16(d, x);
#endif
}

// A whole vector.
template <DType kType>
HWY_INLINE VF LoadWhole(const void* from) {
  if constexpr (kType == DType::kF32) {
    return LoadVector<kType>(DF(), from);
  } else {
    return WidenBits<kType>(
        hn::LoadU(DU16(), static_cast<const uint16_t*>(from)));
  }
}

template <DType kType>
HWY_INLINE void StoreWhole(VF x, void* to) {
  if constexpr (kType == DType::kF32) {
    StoreVector<kType>(DF(), x, to);
  } else {
    hn::StoreU(NarrowBits<kType>(x), DU16(), static_cast<uint16_t*>(to));
  }
}

// n >= lanes: a whole vector; else the first n elements, zeros after them.
template <DType kType>
HWY_INLINE VF LoadPiece(const void* from, int64_t n) {
  if (HWY_LIKELY(n >= static_cast<int64_t>(hn::Lanes(DF())))) {
    return LoadWhole<kType>(from);
  }
  alignas(64) char part[kRowPad * 4] = {0};
  std::memcpy(part, from, static_cast<size_t>(n) * DTypeBytes(kType));
  return LoadWhole<kType>(part);
}

template <DType kType>
HWY_INLINE void StorePiece(VF x, void* to, int64_t n) {
  if (HWY_LIKELY(n >= static_cast<int64_t>(hn::Lanes(DF())))) {
    return StoreWhole<kType>(x, to);
  }
  alignas(64) char part[kRowPad * 4];
  StoreWhole<kType>(x, part);
  std::memcpy(to, part, static_cast<size_t>(n) * DTypeBytes(kType));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
