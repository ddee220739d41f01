// The forms of entry_forms.h on vectors: a value, and what it passes back.

#if defined(TARN_KERNELS_ENTRY_FORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_ENTRY_FORMS_INL_H_
#undef TARN_KERNELS_ENTRY_FORMS_INL_H_
#else
#define TARN_KERNELS_ENTRY_FORMS_INL_H_
#endif

#include <type_traits>

#include "hwy/highway.h"
#include "kernels/entry_forms/entry_forms.h"
#include "kernels/gate_rows/gate_rows-inl.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Two vectors of entries that lie side by side, in an order of the dtype: of
// bfloat16 the even entries and the odd ones, which are the halves of 32 bits
// and need no lane to move. Entries are read and written in the same order.
struct EntryPair {
  VF a, b;
};

template <DType kType>
HWY_INLINE EntryPair LoadEntryPair(const char* from) {
  if constexpr (kType == DType::kBF16) {
    const DF d;
    const DU du;
    const auto both =
        hn::LoadU(du, reinterpret_cast<const uint32_t*>(from));
    return {hn::BitCast(d, hn::ShiftLeft<16>(both)),
            hn::BitCast(d, hn::And(both, hn::Set(du, 0xFFFF0000u)))};
  } else {
    const size_t bytes = hn::Lanes(DF()) * DTypeBytes(kType);
    return {LoadWhole<kType>(from), LoadWhole<kType>(from + bytes)};
  }
}

// Rounded to nearest even in the upper half, as NarrowBF16 does.
HWY_INLINE hn::Vec<DU> RoundedBF16(VF x) {
  const DU du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded);
}

template <DType kType>
HWY_INLINE void StoreEntryPair(const EntryPair& pair, char* to) {
  if constexpr (kType == DType::kBF16) {
    const DU du;
    const auto low = hn::ShiftRight<16>(RoundedBF16(pair.a));
    const auto high =
        hn::And(RoundedBF16(pair.b), hn::Set(du, 0xFFFF0000u));
    hn::StoreU(hn::Or(low, high), du, reinterpret_cast<uint32_t*>(to));
  } else {
    const size_t bytes = hn::Lanes(DF()) * DTypeBytes(kType);
    StoreWhole<kType>(pair.a, to);
    StoreWhole<kType>(pair.b, to + bytes);
  }
}

// Slopes times the gradient of the result.
struct EntryPullback {
  VF x, y, weight;
};

// sigma(x) = 1 / (1 + e), e = exp(-x): the quotient keeps its digits on either
// side, and sigma(-x) = e sigma(x). 0 below -87; any number for NaN.
struct QuickLogistic {
  VF below, e;
};

HWY_INLINE QuickLogistic QuickLogisticAt(VF x) {
  const DF d;
  const VF most = hn::Set(d, 87.0f), least = hn::Set(d, -87.0f);
  const VF e = ExpWithin(hn::Neg(hn::Max(hn::Min(x, most), least)));
  const VF one = hn::Set(d, 1.0f);
  const VF below = hn::Div(one, hn::Add(one, e));
  return {hn::IfThenZeroElse(hn::Lt(x, least), below), e};
}

// sigma(x) sigma(-x), 0 beyond 87, so that x times it is small.
HWY_INLINE VF DensityOf(const QuickLogistic& at, VF x) {
  const VF far = hn::Set(DF(), 87.0f);
  return hn::IfThenZeroElse(hn::Gt(x, far),
                            hn::Mul(hn::Mul(at.e, at.below), at.below));
}

HWY_INLINE VF SigmaOf(VF x) { return UnlessNaN(x, QuickLogisticAt(x).below); }

// GELU's logistic curve at u, and the slope of its argument z.
struct GeluCurve {
  QuickLogistic at;
  VF z, slope;
};

HWY_INLINE GeluCurve GeluCurveAt(VF u) {
  const DF d;
  constexpr float kTwice = 1.5957691216f;  // 2 sqrt(2 / pi)
  const VF square = hn::Mul(u, u);
  const VF part = hn::Mul(square, hn::Set(d, kTwice * 0.044715f));
  const VF z = hn::Mul(u, hn::Add(part, hn::Set(d, kTwice)));
  return {QuickLogisticAt(z), z,
          hn::MulAdd(part, hn::Set(d, 3.0f), hn::Set(d, kTwice))};
}

// e^x of the lower half of elu + 1, 1 in the upper; NaN for NaN.
HWY_INLINE VF DecayBelow(VF x) {
  const VF zero = hn::Zero(DF());
  return ExpOfLane(hn::IfThenElse(hn::Gt(x, zero), zero, x));
}

template <EntryForm kForm>
HWY_INLINE VF EntryValue(VF x, VF y, VF weight, VF scale) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  if constexpr (kForm == EntryForm::kSiluGate) {
    return hn::Mul(hn::Mul(x, QuickLogisticAt(x).below), y);
  } else if constexpr (kForm == EntryForm::kSigmoidGate) {
    return hn::Mul(SigmaOf(x), y);
  } else if constexpr (kForm == EntryForm::kElu1) {
    return hn::Add(PositivePart(x), DecayBelow(x));
  } else if constexpr (kForm == EntryForm::kSigmoid) {
    return SigmaOf(x);
  } else if constexpr (kForm == EntryForm::kLogSigmoid) {
    return hn::Neg(hn::Mul(scale, SoftplusOfLane(hn::Neg(x))));
  } else if constexpr (kForm == EntryForm::kMixedGate) {
    return hn::Mul(x, hn::MulAdd(hn::Sub(y, one), weight, one));
  } else {
    const VF u = hn::Add(x, weight);
    return hn::Mul(u, GeluCurveAt(u).at.below);
  }
}

// What a form does not read is not computed, and x, y, weight of the result
// that it lacks are 0.
template <EntryForm kForm>
HWY_INLINE EntryPullback EntrySlopes(VF grad, VF x, VF y, VF weight,
                                     VF scale) {
  const DF d;
  const VF zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  if constexpr (kForm == EntryForm::kSiluGate) {
    const QuickLogistic at = QuickLogisticAt(x);
    const VF slope = hn::MulAdd(x, DensityOf(at, x), at.below);
    return {hn::Mul(hn::Mul(grad, y), slope),
            hn::Mul(grad, hn::Mul(x, at.below)), zero};
  } else if constexpr (kForm == EntryForm::kSigmoidGate) {
    const QuickLogistic at = QuickLogisticAt(x);
    return {UnlessNaN(x, hn::Mul(hn::Mul(grad, y), DensityOf(at, x))),
            UnlessNaN(x, hn::Mul(grad, at.below)), zero};
  } else if constexpr (kForm == EntryForm::kElu1) {
    return {hn::Mul(grad, DecayBelow(x)), zero, zero};
  } else if constexpr (kForm == EntryForm::kSigmoid) {
    const VF slope = DensityOf(QuickLogisticAt(x), x);
    return {UnlessNaN(x, hn::Mul(grad, slope)), zero, zero};
  } else if constexpr (kForm == EntryForm::kLogSigmoid) {
    return {hn::Mul(hn::Mul(grad, scale), SigmaOf(hn::Neg(x))), zero, zero};
  } else if constexpr (kForm == EntryForm::kMixedGate) {
    const VF less = hn::Sub(y, one), flow = hn::Mul(grad, x);
    return {hn::Mul(grad, hn::MulAdd(less, weight, one)),
            hn::Mul(flow, weight), hn::Mul(flow, less)};
  } else {
    const VF u = hn::Add(x, weight);
    const GeluCurve curve = GeluCurveAt(u);
    const VF density = DensityOf(curve.at, curve.z);
    const VF steep = hn::Mul(hn::Mul(u, density), curve.slope);
    // Far from 0 the density is 0 and the other factors may be infinite.
    const VF slope =
        hn::Add(curve.at.below,
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
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
