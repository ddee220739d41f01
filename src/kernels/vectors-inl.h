// Rows of any width, read and written in place: whole vectors, then one part
// that goes through the stack. Nothing is read or written past the row.

#if defined(TARN_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_VECTORS_INL_H_
#undef TARN_KERNELS_VECTORS_INL_H_
#else
#define TARN_KERNELS_VECTORS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The first n < Lanes floats; zeros in the other lanes.
HWY_INLINE VF LoadPart(const float* p, int64_t n) {
  HWY_ALIGN float part[kRowPad] = {0};
  std::memcpy(part, p, static_cast<size_t>(n) * sizeof(float));
  return hn::Load(DF(), part);
}

HWY_INLINE void StorePart(VF x, float* p, int64_t n) {
  HWY_ALIGN float part[kRowPad];
  hn::Store(x, DF(), part);
  std::memcpy(p, part, static_cast<size_t>(n) * sizeof(float));
}

// Clears the lanes from n on.
HWY_INLINE VF KeepFirst(VF x, int64_t n) {
  return hn::IfThenElseZero(hn::FirstN(DF(), static_cast<size_t>(n)), x);
}

// y[0, n) = f(x[0, n)); x and y may be the same row. f maps vectors.
template <class F>
HWY_INLINE void TransformRow(const float* x, int64_t n, float* y, const F& f) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(f(hn::LoadU(d, x + i)), d, y + i);
  if (i < n) StorePart(f(LoadPart(x + i, n - i)), y + i, n - i);
}

// exp that keeps NaN (the library's gives 0 for it).
HWY_INLINE VF ExpKeepingNaN(VF x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(DF(), x));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
