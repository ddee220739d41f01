// Pieces of rows of any dtype, read and written in place: whole vectors, and
// the part behind the last of them through the stack.

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

// n >= lanes: a whole vector; else the first n elements, zeros after them.
template <DType kType>
HWY_INLINE VF LoadPiece(const void* from, int64_t n) {
  const DF d;
  if (HWY_LIKELY(n >= static_cast<int64_t>(hn::Lanes(d)))) {
    return LoadVector<kType>(d, from);
  }
  alignas(64) char part[kRowPad * 4] = {0};
  std::memcpy(part, from, static_cast<size_t>(n) * DTypeBytes(kType));
  return LoadVector<kType>(d, part);
}

template <DType kType>
HWY_INLINE void StorePiece(VF x, void* to, int64_t n) {
  const DF d;
  if (HWY_LIKELY(n >= static_cast<int64_t>(hn::Lanes(d)))) {
    return StoreVector<kType>(d, x, to);
  }
  alignas(64) char part[kRowPad * 4];
  StoreVector<kType>(d, x, part);
  std::memcpy(to, part, static_cast<size_t>(n) * DTypeBytes(kType));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
