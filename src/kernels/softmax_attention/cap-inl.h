// The soft cap of scores on vectors, which the step and the blocks share.

#if defined(TARN_KERNELS_SOFTMAX_ATTENTION_CAP_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_SOFTMAX_ATTENTION_CAP_INL_H_
#undef TARN_KERNELS_SOFTMAX_ATTENTION_CAP_INL_H_
#else
#define TARN_KERNELS_SOFTMAX_ATTENTION_CAP_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// tanh(x), NaN for NaN. The library doubles its argument before it looks at its
// size, so an argument beyond 10, where float's tanh is 1, is cut.
HWY_INLINE VF TanhOfScore(VF x) {
  const DF d;
  const VF most = hn::Set(d, 10.0f);
  const VF size = hn::Abs(x);
  const VF cut =
      hn::CopySign(hn::IfThenElse(hn::Gt(size, most), most, size), x);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, cut));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
