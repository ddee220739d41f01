// GELU, SiLU and their slopes on vectors; shared by the row functions and the
// fused passes, so that both have the same bits.

#if defined(TARN_KERNELS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_ACTIVATION_INL_H_
#undef TARN_KERNELS_ACTIVATION_INL_H_
#else
#define TARN_KERNELS_ACTIVATION_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// "Not below zero" keeps NaN, which Max would drop on some targets.
HWY_INLINE VF ReluOf(VF x) {
  const VF zero = hn::Zero(DF());
  return hn::IfThenElse(hn::Lt(x, zero), zero, x);
}

// 1 / x for x of at least 1, NaN for NaN, to 2 ulp. On targets of 512 bits a
// division takes as long as the rest of a curve: there it is an estimate of 14
// bits and one Newton step.
HWY_INLINE VF ReciprocalFromOne(VF x) {
  const DF d;
#if HWY_TARGET <= HWY_AVX3
  x = hn::Min(hn::Set(d, 0x1p100f), x);  // keeps NaN: the second operand wins
  const VF near = hn::ApproximateReciprocal(x);
  const VF missing = hn::NegMulAdd(x, near, hn::Set(d, 1.0f));
  return hn::MulAdd(near, missing, near);
#else
  return hn::Div(hn::Set(d, 1.0f), x);
#endif
}

// exp(x) for x <= 0; 0 below -87, because making and multiplying subnormal
// numbers takes a hundred times as long. Works lane by lane: the short form of
// smaller targets looks at all lanes at once, so that a NaN would change the
// last bits of its neighbours.
HWY_INLINE VF DecayOf(VF x) {
  const VF least = hn::Set(DF(), -87.0f);
  const auto gone = hn::Lt(x, least);
#if HWY_TARGET <= HWY_AVX3
  // Max keeps NaN: the second operand wins.
  return hn::IfThenZeroElse(gone, ExpNonPositive(hn::Max(least, x)));
#else
  return hn::IfThenZeroElse(gone,
                            ExpKeepingNaN(hn::IfThenElse(gone, least, x)));
#endif
}

// erfc(z) / 2 for z >= 0 and gauss = exp(-z^2): (a1 t + ... + a5 t^5) gauss / 2
// with t = 1 / (1 + p z); absolute error 1.5e-7 before rounding (Abramowitz and
// Stegun 7.1.26). Small for large z, not a difference of near-equal numbers.
HWY_INLINE VF HalfErfc(VF z, VF gauss) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF t = ReciprocalFromOne(hn::MulAdd(z, hn::Set(d, 0.3275911f), one));
  VF poly = hn::Set(d, 0.5f * 1.061405429f);
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.5f * -1.453152027f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.5f * 1.421413741f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.5f * -0.284496736f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.5f * 0.254829592f));
  return hn::Mul(hn::Mul(poly, t), gauss);
}

struct NormalCurve {
  VF below;    // Phi(x), the normal distribution function
  VF density;  // phi(x), its slope
};

HWY_INLINE NormalCurve NormalAt(VF x) {
  const DF d;
  const VF zero = hn::Zero(d);
  const VF z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f));
  const VF gauss = DecayOf(hn::Neg(hn::Mul(z, z)));
  const VF tail = HalfErfc(z, gauss);
  const VF below =
      hn::IfThenElse(hn::Lt(x, zero), tail, hn::Sub(hn::Set(d, 1.0f), tail));
  return {below, hn::Mul(gauss, hn::Set(d, 0.39894228f))};
}

// NaN and infinity times Phi give the right value by themselves.
HWY_INLINE VF GeluOf(VF x) { return hn::Mul(x, NormalAt(x).below); }

// d(x Phi(x)) / dx = Phi(x) + x phi(x); 0 and 1 at the infinities, where the
// product of infinity and 0 would be NaN.
HWY_INLINE VF GeluSlopeOf(VF x, const NormalCurve& n) {
  const VF product = hn::Mul(x, n.density);
  return hn::Add(n.below, hn::IfThenElse(hn::Eq(n.density, hn::Zero(DF())),
                                         n.density, product));
}
HWY_INLINE VF GeluSlopeOf(VF x) { return GeluSlopeOf(x, NormalAt(x)); }

struct LogisticCurve {
  VF below;    // sigma(x) = 1 / (1 + exp(-x))
  VF density;  // sigma(x) sigma(-x), its slope
};

// sigma(x) and sigma(-x) from exp(-|x|), which never overflows, without a
// difference of near-equal numbers. NaN stays NaN.
HWY_INLINE LogisticCurve LogisticAt(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF decay = DecayOf(hn::Neg(hn::Abs(x)));
  const VF large = ReciprocalFromOne(hn::Add(one, decay));
  const VF small = hn::Mul(decay, large);
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), small, large),
          hn::Mul(large, small)};
}

struct SiluCurve {
  VF value, slope;
};

// x sigma(x) and sigma(x) + x sigma(x) sigma(-x). As in GELU, the value is
// right by itself at the infinities, and the slope there is 0 and 1.
HWY_INLINE SiluCurve SiluAt(VF x) {
  const LogisticCurve l = LogisticAt(x);
  const VF product = hn::Mul(x, l.density);
  return {hn::Mul(x, l.below),
          hn::Add(l.below, hn::IfThenElse(hn::Eq(l.density, hn::Zero(DF())),
                                          l.density, product))};
}

HWY_INLINE VF SiluOf(VF x) { return hn::Mul(x, LogisticAt(x).below); }

// z = 2 sqrt(2 / pi) (x + 0.044715 x^3) and its slope: the form of GELU with a
// tanh, x (1 + tanh(z / 2)) / 2, is x sigma(z) (Hendrycks and Gimpel 2016,
// arXiv 1606.08415, section 2).
struct GeluTanhCurve {
  VF z, slope;
};

HWY_INLINE GeluTanhCurve GeluTanhAt(VF x) {
  const DF d;
  constexpr float kTwice = 1.5957691216f;  // 2 sqrt(2 / pi)
  const VF square = hn::Mul(x, x);
  const VF part = hn::Mul(square, hn::Set(d, kTwice * 0.044715f));
  return {hn::Mul(x, hn::Add(part, hn::Set(d, kTwice))),
          hn::MulAdd(part, hn::Set(d, 3.0f), hn::Set(d, kTwice))};
}

HWY_INLINE VF GeluTanhOf(VF x) {
  return hn::Mul(x, LogisticAt(GeluTanhAt(x).z).below);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
