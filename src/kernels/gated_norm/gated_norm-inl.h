// Rows of gated_norm.h on vectors: what the forward pass and the gradient
// share.

#if defined(TARN_KERNELS_GATED_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_GATED_NORM_INL_H_
#undef TARN_KERNELS_GATED_NORM_INL_H_
#else
#define TARN_KERNELS_GATED_NORM_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/gated_norm/tasks.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

enum class GatePlace { kNone, kAfter, kFirst };

// f(integral_constant<GatePlace>, bool_constant<centred>).
template <class F>
HWY_INLINE void WithNormForm(const GatedNormOptions& options, bool gated,
                             const F& f) {
  using None = std::integral_constant<GatePlace, GatePlace::kNone>;
  using After = std::integral_constant<GatePlace, GatePlace::kAfter>;
  using First = std::integral_constant<GatePlace, GatePlace::kFirst>;
  const auto place = [&](auto centred) HWY_ATTR {
    if (!gated) return f(None(), centred);
    if (options.gate_first) return f(First(), centred);
    f(After(), centred);
  };
  if (options.centred) return place(std::true_type());
  place(std::false_type());
}

// f(i, n) for the whole vectors of a row (n = lanes) and its tail.
template <class F>
HWY_INLINE void ForPieces(int64_t width, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) f(i, lanes);
  if (i < width) f(i, width - i);
}

// One branch for a whole row costs nothing compared with the exponential, and
// halves the number of copies of the loops.
HWY_INLINE VF GateOf(VF z, bool silu) {
  const VF below = LogisticAt(z).below;
  return silu ? hn::Mul(z, below) : below;
}

struct GateCurve {
  VF value, slope;
};

HWY_INLINE GateCurve GateAt(VF z, bool silu) {
  if (silu) {
    const SiluCurve curve = SiluAt(z);
    return {curve.value, curve.slope};
  }
  const LogisticCurve curve = LogisticAt(z);
  return {curve.below, curve.density};
}

HWY_INLINE float SumOf(VF x) { return hn::GetLane(hn::SumOfLanes(DF(), x)); }

struct RowMoments {
  VF mean;     // 0 unless centred
  VF inverse;  // 1 / root
};

// The moments of the row u(i, n), which is zero after its end. `sum` is that
// of the entries where centred, else that of their squares. A centred row is
// read again, so that the variance does not cancel.
template <bool kCentred, class F>
HWY_INLINE RowMoments MomentsOf(const GatedNormOptions& options, VF sum,
                                const F& u) {
  const DF d;
  const float count = static_cast<float>(options.width);
  float squares = SumOf(sum);
  VF mean = hn::Zero(d);
  if constexpr (kCentred) {
    mean = hn::Set(d, squares / count);
    VF total = hn::Zero(d);
    ForPieces(options.width, [&](int64_t i, int64_t n) HWY_ATTR {
      VF diff = hn::Sub(u(i, n), mean);
      if (n < static_cast<int64_t>(hn::Lanes(d))) diff = KeepFirst(diff, n);
      total = hn::MulAdd(diff, diff, total);
    });
    squares = SumOf(total);
  }
  const float root =
      std::sqrt(squares / count + static_cast<float>(options.eps));
  return {mean, hn::Set(d, 1.0f / root)};
}

template <bool kCentred>
HWY_INLINE VF NormalisedAt(const RowMoments& m, VF u) {
  if constexpr (kCentred) u = hn::Sub(u, m.mean);
  return hn::Mul(u, m.inverse);
}

// n weight + bias for a piece of the row.
HWY_INLINE VF ScaledNormal(VF normal, const float* weight, const float* bias,
                           int64_t i, int64_t n) {
  const VF scale = LoadPiece<DType::kF32>(weight + i, n);
  if (bias == nullptr) return hn::Mul(normal, scale);
  return hn::MulAdd(normal, scale, LoadPiece<DType::kF32>(bias + i, n));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
