// The entries of gate_rows.h on vectors.

#if defined(TARN_KERNELS_GATE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_GATE_ROWS_INL_H_
#undef TARN_KERNELS_GATE_ROWS_INL_H_
#else
#define TARN_KERNELS_GATE_ROWS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// NaN where x is, y elsewhere: logarithms and exponentials of the library read
// bits and would make numbers of a NaN.
HWY_INLINE VF UnlessNaN(VF x, VF y) {
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)); like Softplus of rows-inl.h,
// but no lane looks at its neighbours.
HWY_INLINE VF SoftplusOfLane(VF x) {
  const VF small = ExpOfLane(hn::Neg(hn::Abs(x)));
  return UnlessNaN(x, hn::Add(PositivePart(x), hn::Log1p(DF(), small)));
}

// The exponential's argument is cut where its value is infinite: further on the
// library's exponent would run over.
HWY_INLINE VF ExpOfAny(VF x) {
  const VF most = hn::Set(DF(), 104.0f);
  return UnlessNaN(x, hn::Exp(DF(), hn::IfThenElse(hn::Gt(x, most), most, x)));
}

HWY_INLINE VF TanhOf(VF x) {
  // The library doubles the argument before it looks at its size.
  const DF d;
  const VF most = hn::Set(d, 10.0f);
  const VF size = hn::Abs(x);
  const VF cut =
      hn::CopySign(hn::IfThenElse(hn::Gt(size, most), most, size), x);
  return UnlessNaN(x, hn::Tanh(d, cut));
}

// x sigma(x); minus infinity times 0 would be NaN.
HWY_INLINE VF SiluOfAny(VF x) {
  const VF below = LogisticAt(x).below;
  return hn::IfThenZeroElse(hn::Eq(below, hn::Zero(DF())), hn::Mul(x, below));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
