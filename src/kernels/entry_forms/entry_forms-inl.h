// The forms of entry_forms.h on vectors: a value, and what it passes back.

#if defined(TARN_KERNELS_ENTRY_FORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_ENTRY_FORMS_INL_H_
#undef TARN_KERNELS_ENTRY_FORMS_INL_H_
#else
#define TARN_KERNELS_ENTRY_FORMS_INL_H_
#endif

#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/entry_forms/entry_forms.h"
#include "kernels/entry_pairs-inl.h"
#include "kernels/gate_rows/gate_rows-inl.h"
#include "kernels/panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Slopes times the gradient of the result.
struct EntryPullback {
  VF x, y, weight;
};

// exp(-x) for |x| <= 87, like ExpWithin, whose polynomial this is; where the
// result is rounded to bfloat16, one of degree 4 (minimax in the relative
// error, 3e-6) and ln 2 in one part, a thousandth of that rounding.
template <DType kType>
HWY_INLINE VF ExpOfNegative(VF x) {
  const DF d;
  const DI di;
  const VF magic = hn::Set(d, 12582912.0f);
  const VF shifted = hn::NegMulAdd(x, hn::Set(d, 1.44269504f), magic);
  const VF n = hn::Sub(shifted, magic);
  VF r, p;  // exp(-x) = exp(-r) 2^n
  if constexpr (kType == DType::kBF16) {
    r = hn::MulAdd(n, hn::Set(d, 0.69314718f), x);
    p = hn::Set(d, 0x1.541480p-5f);
    p = hn::MulAdd(p, r, hn::Set(d, -0x1.57cf54p-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 0x1.0003f6p-1f));
    p = hn::MulAdd(p, r, hn::Set(d, -0x1.fffba6p-1f));
  } else {
    r = hn::MulAdd(n, hn::Set(d, 0.693359375f), x);
    r = hn::NegMulAdd(n, hn::Set(d, 2.12194440e-4f), r);
    p = hn::Set(d, -0x1.0fa7c6p-7f);
    p = hn::MulAdd(p, r, hn::Set(d, 0x1.573acep-5f));
    p = hn::MulAdd(p, r, hn::Set(d, -0x1.555a6ep-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 0x1.fffdc4p-2f));
    p = hn::MulAdd(p, r, hn::Set(d, -0x1.fffff6p-1f));
  }
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p),
                                hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// sigma(x) = 1 / (1 + e), e = exp(-x): the quotient keeps its digits on either
// side, and sigma(-x) = e sigma(x). 0 below -87; any number for NaN, see NaNOf.
struct QuickLogistic {
  VF below, e;
};

template <DType kType>
HWY_INLINE QuickLogistic QuickLogisticAt(VF x) {
  const DF d;
  const VF most = hn::Set(d, 87.0f), least = hn::Set(d, -87.0f);
  // The second operand wins where one is NaN.
  const VF e = ExpOfNegative<kType>(hn::Max(least, hn::Min(most, x)));
  const VF one = hn::Set(d, 1.0f);
  const VF below = hn::Div(one, hn::Add(one, e));
  return {hn::IfThenZeroElse(hn::Lt(x, least), below), e};
}

// y, a curve of x that QuickLogisticAt began; NaN where x is. NaNs of 16 bits
// come through it by themselves where Min and Max keep them: the lower half of
// their bits is 0, so that the exponent adds nothing to them.
template <DType kType>
HWY_INLINE VF NaNOf(VF x, VF y) {
#if HWY_TARGET <= HWY_SSE4 && HWY_ARCH_X86
  if constexpr (kType != DType::kF32) return y;
#endif
  return UnlessNaN(x, y);
}

// sigma(x) sigma(-x), 0 beyond 87, so that x times it is small.
HWY_INLINE VF DensityOf(const QuickLogistic& at, VF x) {
  const VF far = hn::Set(DF(), 87.0f);
  return hn::IfThenZeroElse(hn::Gt(x, far),
                            hn::Mul(hn::Mul(at.e, at.below), at.below));
}

// sigma(x) alone, any number for NaN: below -87 the exponential may be
// anything.
template <DType kType>
HWY_INLINE VF BelowOf(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  // The second operand wins where one is NaN.
  const VF e = ExpOfNegative<kType>(hn::Min(hn::Set(d, 87.0f), x));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)),
                            hn::Div(one, hn::Add(one, e)));
}

template <DType kType>
HWY_INLINE VF SigmaOf(VF x) {
  return NaNOf<kType>(x, BelowOf<kType>(x));
}

// grad sigma(x) sigma(-x) = grad e / (1 + e)^2, e = exp(-|x|), 0 beyond 87.
template <DType kType>
HWY_INLINE VF DensityTimes(VF grad, VF x) {
  const DF d;
  const VF size = hn::Abs(x);
  const VF e = hn::IfThenZeroElse(hn::Gt(size, hn::Set(d, 87.0f)),
                                  ExpOfNegative<kType>(size));
  const VF sum = hn::Add(hn::Set(d, 1.0f), e);
  return NaNOf<kType>(x, hn::Div(hn::Mul(grad, e), hn::Mul(sum, sum)));
}

// GELU's logistic curve at u, and the slope of its argument z.
struct GeluCurve {
  QuickLogistic at;
  VF z, slope;
};

template <DType kType>
HWY_INLINE GeluCurve GeluCurveAt(VF u) {
  const GeluTanhCurve curve = GeluTanhAt(u);
  return {QuickLogisticAt<kType>(curve.z), curve.z, curve.slope};
}

// e^x of the lower half of elu + 1, 1 in the upper; NaN for NaN.
HWY_INLINE VF DecayBelow(VF x) {
  const VF zero = hn::Zero(DF());
  return ExpOfLane(hn::IfThenElse(hn::Gt(x, zero), zero, x));
}

// x^(p t), t = 1 / (sqrt(x) + 1), and its slope, where u is that power:
// p t u (1 - sqrt(x) t ln(x) / 2) / x; x and 1 for x <= 0 and NaN.
struct PowerCurve {
  VF value, slope;
};

HWY_INLINE PowerCurve PowerCurveAt(VF x, VF p) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF most = hn::Set(d, std::numeric_limits<float>::max());
  const auto above = hn::Gt(x, hn::Zero(d));
  const VF base = hn::Min(hn::IfThenElse(above, x, one), most);
  const VF root = hn::Sqrt(base), ln = hn::Log(d, base);
  const VF t = hn::Div(one, hn::Add(root, one));
  const VF exponent = hn::Mul(p, t);
  const VF u = ExpOfAny(hn::Mul(exponent, ln));
  const VF half = hn::Mul(hn::Mul(root, t), hn::Set(d, 0.5f));
  // The quotient is the last step: u is 0 where 1 / x is not finite.
  const VF steep = hn::Mul(hn::Mul(exponent, u), hn::NegMulAdd(half, ln, one));
  return {hn::IfThenElse(above, u, x),
          hn::IfThenElse(above, hn::Div(steep, base), one)};
}

template <DType kType, EntryForm kForm>
HWY_INLINE VF EntryValue(VF x, VF y, VF weight, VF scale) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  if constexpr (kForm == EntryForm::kSiluGate) {
    return hn::Mul(hn::Mul(x, BelowOf<kType>(x)), y);
  } else if constexpr (kForm == EntryForm::kSigmoidGate) {
    return hn::Mul(SigmaOf<kType>(x), y);
  } else if constexpr (kForm == EntryForm::kPowerGate) {
    return hn::Mul(hn::Mul(PowerCurveAt(x, scale).value, SigmaOf<kType>(x)), y);
  } else if constexpr (kForm == EntryForm::kElu1) {
    return hn::Add(PositivePart(x), DecayBelow(x));
  } else if constexpr (kForm == EntryForm::kSigmoid) {
    return SigmaOf<kType>(x);
  } else if constexpr (kForm == EntryForm::kSquareRelu) {
    return Feature<FeatureMap::kRelu2>(x);
  } else if constexpr (kForm == EntryForm::kLogSigmoid) {
    return hn::Neg(hn::Mul(scale, SoftplusOfLane(hn::Neg(x))));
  } else if constexpr (kForm == EntryForm::kMixedGate) {
    return hn::Mul(x, hn::MulAdd(hn::Sub(y, one), weight, one));
  } else {
    const VF u = hn::Add(x, weight);
    return hn::Mul(u, GeluCurveAt<kType>(u).at.below);
  }
}

// What a form does not read is not computed, and x, y, weight of the result
// that it lacks are 0.
template <DType kType, EntryForm kForm>
HWY_INLINE EntryPullback EntrySlopes(VF grad, VF x, VF y, VF weight, VF scale) {
  const DF d;
  const VF zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  if constexpr (kForm == EntryForm::kSiluGate) {
    const QuickLogistic at = QuickLogisticAt<kType>(x);
    const VF slope = hn::MulAdd(x, DensityOf(at, x), at.below);
    return {hn::Mul(hn::Mul(grad, y), slope),
            hn::Mul(grad, hn::Mul(x, at.below)), zero};
  } else if constexpr (kForm == EntryForm::kSigmoidGate) {
    const QuickLogistic at = QuickLogisticAt<kType>(x);
    return {NaNOf<kType>(x, hn::Mul(hn::Mul(grad, y), DensityOf(at, x))),
            NaNOf<kType>(x, hn::Mul(grad, at.below)), zero};
  } else if constexpr (kForm == EntryForm::kPowerGate) {
    const QuickLogistic at = QuickLogisticAt<kType>(x);
    const PowerCurve power = PowerCurveAt(x, scale);
    const VF slope = hn::MulAdd(power.value, DensityOf(at, x),
                                hn::Mul(power.slope, at.below));
    return {NaNOf<kType>(x, hn::Mul(hn::Mul(grad, y), slope)),
            NaNOf<kType>(x, hn::Mul(grad, hn::Mul(power.value, at.below))),
            zero};
  } else if constexpr (kForm == EntryForm::kElu1) {
    return {hn::Mul(grad, DecayBelow(x)), zero, zero};
  } else if constexpr (kForm == EntryForm::kSigmoid) {
    return {DensityTimes<kType>(grad, x), zero, zero};
  } else if constexpr (kForm == EntryForm::kSquareRelu) {
    const VF positive = PositivePart(x);
    return {hn::Mul(grad, hn::Add(positive, positive)), zero, zero};
  } else if constexpr (kForm == EntryForm::kLogSigmoid) {
    return {hn::Mul(hn::Mul(grad, scale), SigmaOf<kType>(hn::Neg(x))), zero,
            zero};
  } else if constexpr (kForm == EntryForm::kMixedGate) {
    const VF less = hn::Sub(y, one), flow = hn::Mul(grad, x);
    return {hn::Mul(grad, hn::MulAdd(less, weight, one)), hn::Mul(flow, weight),
            hn::Mul(flow, less)};
  } else {
    const VF u = hn::Add(x, weight);
    const GeluCurve curve = GeluCurveAt<kType>(u);
    const VF density = DensityOf(curve.at, curve.z);
    const VF steep = hn::Mul(hn::Mul(u, density), curve.slope);
    // Far from 0 the density is 0 and the other factors may be infinite.
    const VF slope = hn::Add(curve.at.below,
                             hn::IfThenZeroElse(hn::Eq(density, zero), steep));
    const VF flow = hn::Mul(grad, slope);
    return {flow, zero, flow};
  }
}

// f(integral_constant<EntryForm>) for a form known at run time.
template <class F>
HWY_INLINE void WithEntryForm(EntryForm form, const F& f) {
  using Form = EntryForm;
  switch (form) {
    case Form::kSiluGate:
      return f(std::integral_constant<Form, Form::kSiluGate>());
    case Form::kSigmoidGate:
      return f(std::integral_constant<Form, Form::kSigmoidGate>());
    case Form::kPowerGate:
      return f(std::integral_constant<Form, Form::kPowerGate>());
    case Form::kElu1:
      return f(std::integral_constant<Form, Form::kElu1>());
    case Form::kSigmoid:
      return f(std::integral_constant<Form, Form::kSigmoid>());
    case Form::kLogSigmoid:
      return f(std::integral_constant<Form, Form::kLogSigmoid>());
    case Form::kMixedGate:
      return f(std::integral_constant<Form, Form::kMixedGate>());
    case Form::kGelu:
      return f(std::integral_constant<Form, Form::kGelu>());
    case Form::kSquareRelu:
      return f(std::integral_constant<Form, Form::kSquareRelu>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
