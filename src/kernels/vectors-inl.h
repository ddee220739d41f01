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

// out[0, n) = f(x[0, n), y[0, n)); out may be x or y. f maps two vectors.
template <class F>
HWY_INLINE void CombineRows(const float* x, const float* y, int64_t n,
                            float* out, const F& f) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(f(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, out + i);
  }
  if (i < n) {
    StorePart(f(LoadPart(x + i, n - i), LoadPart(y + i, n - i)), out + i,
              n - i);
  }
}

// The sum over the lanes of the result of f, which takes the row vector by
// vector: sum = f(vector, valid lanes, sum), from 0. f clears what is not
// valid.
template <class F>
HWY_INLINE float ReduceRow(const float* x, int64_t width, const F& f) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    sum = f(hn::LoadU(d, x + i), lanes, sum);
  }
  if (i < width) sum = f(LoadPart(x + i, width - i), width - i, sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// exp(x) for x <= 0 to 2 ulp; 1 at 0, 0 below -87 (so that nothing is
// subnormal), NaN for NaN. A lane's bits do not depend on the other lanes,
// which ExpNonPositive alone does not promise on targets without AVX-512.
HWY_INLINE VF ExpOfLane(VF x) {
  const DF d;
  const VF least = hn::Set(d, -87.0f);
  const VF e = ExpNonPositive(hn::IfThenElse(hn::Ge(x, least), x, least));
  return hn::IfThenElse(hn::IsNaN(x), x,
                        hn::IfThenZeroElse(hn::Lt(x, least), e));
}

// exp that keeps NaN (the library's gives 0 for it).
HWY_INLINE VF ExpKeepingNaN(VF x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(DF(), x));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
