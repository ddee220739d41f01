// The factor of a gate, in every recurrence whose gates are logarithms.

#if defined(TARN_KERNELS_DECAY_FACTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_DECAY_FACTOR_INL_H_
#undef TARN_KERNELS_DECAY_FACTOR_INL_H_
#else
#define TARN_KERNELS_DECAY_FACTOR_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(g), exact 0 below -87; NaN stays NaN. Neither a reset nor a growing gate
// changes a bit of other tokens or channels.
HWY_INLINE VF DecayFactor(VF gate) {
  const DF d;
  const auto grows = hn::Gt(gate, hn::Zero(d));
  const VF factor = ExpOfLane(hn::IfThenZeroElse(grows, gate));
  if (HWY_LIKELY(hn::AllFalse(d, grows))) return factor;
  // Infinite long before 100, beyond which the library's is not defined.
  const VF growth = hn::Exp(d, hn::Min(gate, hn::Set(d, 100.0f)));
  return hn::IfThenElse(grows, growth, factor);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
