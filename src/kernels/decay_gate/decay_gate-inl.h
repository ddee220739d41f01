// The forms of decay_gate.h on vectors: values, and what they pass back.

#if defined(TARN_KERNELS_DECAY_GATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_DECAY_GATE_INL_H_
#undef TARN_KERNELS_DECAY_GATE_INL_H_
#else
#define TARN_KERNELS_DECAY_GATE_INL_H_
#endif

#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/decay_gate/decay_gate.h"
#include "kernels/gate_rows/gate_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct GateValue {
  VF g, second;
};
// Slopes times the gradients of both results; rate: by its logarithm.
struct GatePullback {
  VF x, bias, rate;
};

// a b, 0 where b is 0, though a may be infinite there.
HWY_INLINE VF ProductWithZero(VF a, VF b) {
  return hn::IfThenZeroElse(hn::Eq(b, hn::Zero(DF())), hn::Mul(a, b));
}

// -rate softplus. A rate of 0 keeps everything, whatever x is.
HWY_INLINE VF SoftplusGate(VF soft, VF rate) {
  const DF d;
  const VF most = hn::Set(d, std::numeric_limits<float>::max());
  const auto no_limit = hn::And(hn::Eq(rate, hn::Zero(d)),
                                hn::Gt(soft, most));  // 0 times infinity
  return hn::Neg(hn::IfThenZeroElse(no_limit, hn::Mul(rate, soft)));
}

// With e = exp(-|x|): f = (1 + l e) / (1 + e) or, for x < 0, (l + e) / (1 + e),
// and key = 1 - f = (1 - l) sigma(-x). Of log f there are three forms, so that
// nothing cancels: log1p(-key) near f = 1; for l = 0 and x < 0 the difference
// x - log1p(e), whose terms have one sign, because e may be 0; log itself else.
HWY_INLINE GateValue BoundedAt(VF x, VF l) {
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

// The same e: sigma(x) / f is 1 / (1 + l e) or, for x < 0, e / (l + e), which
// is 1 for l = 0; sigma(-x) / f is e / (1 + l e) or 1 / (l + e).
HWY_INLINE GatePullback BoundedBack(VF dg, VF ds, VF x, VF l) {
  const DF d;
  const VF zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  const auto negative = hn::Lt(x, zero);
  const VF e = ExpOfLane(hn::Neg(hn::Abs(x)));
  const VF inverse = hn::Div(one, hn::Add(one, e));
  const VF large = inverse, small = hn::Mul(e, inverse);
  const VF above = hn::IfThenElse(negative, small, large);  // sigma(x)
  const VF below = hn::IfThenElse(negative, large, small);  // sigma(-x)
  const VF key = hn::Mul(hn::Sub(one, l), below);
  const VF over = hn::Div(
      one, hn::IfThenElse(negative, hn::Add(l, e), hn::MulAdd(l, e, one)));
  const auto free = hn::And(negative, hn::Eq(l, zero));
  const VF above_f = hn::IfThenElse(
      free, one, hn::Mul(hn::IfThenElse(negative, e, one), over));
  const VF below_f = hn::Mul(hn::IfThenElse(negative, one, e), over);
  const VF by_x =
      hn::Mul(key, hn::Sub(hn::Mul(dg, above_f), hn::Mul(ds, above)));
  const VF by_l = hn::Sub(ProductWithZero(below_f, dg), hn::Mul(ds, below));
  const VF both = hn::Add(x, l);
  return {UnlessNaN(both, by_x), UnlessNaN(both, by_l), zero};
}

// Numbers of kSoftplus's steps that the limits allow. NaN stays.
struct StepLimits {
  VF least, most;

  HWY_INLINE VF Kept(VF step) const {
    const VF below = hn::IfThenElse(hn::Gt(step, most), most, step);
    return hn::IfThenElse(hn::Lt(below, least), least, below);
  }
  // x where the step is between the limits, else 0.
  HWY_INLINE VF Within(VF step, VF x) const {
    const auto out = hn::Or(hn::Gt(step, most), hn::Lt(step, least));
    return hn::IfThenZeroElse(out, x);
  }
};

// limits: null where there are none.
template <GateForm kForm>
HWY_INLINE GateValue GateAt(VF x, VF bias, VF rate, VF scale,
                            const StepLimits* limits) {
  const VF zero = hn::Zero(DF());
  if constexpr (kForm == GateForm::kBounded) {
    return BoundedAt(x, bias);
  } else {
    const VF u = hn::Add(x, bias);
    if constexpr (kForm == GateForm::kSoftplus) {
      VF soft = SoftplusOfLane(u);
      if (limits != nullptr) soft = limits->Kept(soft);
      return {SoftplusGate(soft, rate), soft};
    } else if constexpr (kForm == GateForm::kLogSigmoid) {
      return {hn::Mul(hn::Neg(scale), SoftplusOfLane(hn::Neg(u))), zero};
    } else if constexpr (kForm == GateForm::kExponential) {
      return {hn::Neg(ExpOfAny(u)), zero};
    } else {
      return {hn::Mul(hn::Neg(scale), LogisticAt(hn::Mul(rate, u)).below),
              zero};
    }
  }
}

template <GateForm kForm>
HWY_INLINE GatePullback GateBack(VF dg, VF ds, VF x, VF bias, VF rate, VF scale,
                                 const StepLimits* limits) {
  const VF zero = hn::Zero(DF());
  if constexpr (kForm == GateForm::kBounded) {
    return BoundedBack(dg, ds, x, bias);
  } else {
    const VF u = hn::Add(x, bias);
    if constexpr (kForm == GateForm::kSoftplus) {
      const VF flow = hn::NegMulAdd(rate, dg, ds);
      VF du = hn::Mul(flow, LogisticAt(u).below);
      VF soft = SoftplusOfLane(u);
      if (limits != nullptr) {
        du = limits->Within(soft, du);
        soft = limits->Kept(soft);
      }
      const VF g = SoftplusGate(soft, rate);
      return {du, du, ProductWithZero(g, dg)};
    } else if constexpr (kForm == GateForm::kLogSigmoid) {
      const VF slope = LogisticAt(hn::Neg(u)).below;
      const VF du = hn::Mul(hn::Mul(scale, dg), slope);
      return {du, du, zero};
    } else if constexpr (kForm == GateForm::kExponential) {
      const VF du = hn::Neg(ProductWithZero(ExpOfAny(u), dg));
      return {du, du, zero};
    } else {
      const VF z = hn::Mul(rate, u);
      const VF density = LogisticAt(z).density;
      const VF dz = hn::Neg(hn::Mul(hn::Mul(scale, dg), density));
      const VF du = hn::Mul(rate, dz);
      return {du, du, ProductWithZero(z, dz)};
    }
  }
}

// f(integral_constant<GateForm>) for a form known at run time.
template <class F>
HWY_INLINE void WithGateForm(GateForm form, const F& f) {
  using Form = GateForm;
  switch (form) {
    case Form::kSoftplus:
      return f(std::integral_constant<Form, Form::kSoftplus>());
    case Form::kLogSigmoid:
      return f(std::integral_constant<Form, Form::kLogSigmoid>());
    case Form::kBounded:
      return f(std::integral_constant<Form, Form::kBounded>());
    case Form::kExponential:
      return f(std::integral_constant<Form, Form::kExponential>());
    case Form::kSigmoid:
      return f(std::integral_constant<Form, Form::kSigmoid>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
