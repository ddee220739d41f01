// The entries of gate_rows.h on vectors.

#if defined(TARN_KERNELS_GATE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_GATE_ROWS_INL_H_
#undef TARN_KERNELS_GATE_ROWS_INL_H_
#else
#define TARN_KERNELS_GATE_ROWS_INL_H_
#endif

#include <limits>

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

// -rate softplus(x). A rate of 0 keeps everything, whatever x is.
HWY_INLINE VF SoftplusGate(VF x, VF rate) {
  const DF d;
  const VF zero = hn::Zero(d);
  const VF most = hn::Set(d, std::numeric_limits<float>::max());
  const VF soft = SoftplusOfLane(x);
  const auto no_limit =
      hn::And(hn::Eq(rate, zero), hn::Gt(soft, most));  // 0 times infinity
  return hn::Neg(hn::IfThenZeroElse(no_limit, hn::Mul(rate, soft)));
}

struct BoundedGate {
  VF g, key;
};

// With e = exp(-|x|): f = (1 + l e) / (1 + e) or, for x < 0, (l + e) / (1 + e),
// and key = 1 - f = (1 - l) sigma(-x). Of log f there are three forms, so that
// nothing cancels: log1p(-key) near f = 1; for l = 0 and x < 0 the difference
// x - log1p(e), whose terms have one sign, because e may be 0; log itself else.
HWY_INLINE BoundedGate BoundedAt(VF x, VF l) {
  const DF d;
  const VF zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  const auto negative = hn::Lt(x, zero);
  const VF e = ExpOfLane(hn::Neg(hn::Abs(x)));
  const VF inverse = hn::Div(one, hn::Add(one, e));
  const VF rest = hn::Sub(one, l);
  const VF key =
      hn::Mul(rest, hn::IfThenElse(negative, inverse, hn::Mul(e, inverse)));
  const auto near = hn::Le(key, hn::Set(d, 0.5f));
  const VF of_key = hn::Log1p(d, hn::Neg(hn::IfThenElseZero(near, key)));
  const auto free = hn::And(negative, hn::Eq(l, zero));
  // Only read for x < 0, as f >= 1 / 2 otherwise.
  const VF f = hn::Mul(hn::Add(l, e), inverse);
  const VF of_f = hn::Log(d, hn::IfThenElse(hn::Or(near, free), one, f));
  const VF of_x = hn::Sub(x, hn::Log1p(d, e));
  VF g = hn::IfThenElse(near, of_key, hn::IfThenElse(free, of_x, of_f));
  const VF both = hn::Add(x, l);  // NaN where one of them is
  return {UnlessNaN(both, g), UnlessNaN(both, key)};
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
