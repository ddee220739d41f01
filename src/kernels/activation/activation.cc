#include "kernels/activation/activation.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/activation.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void Relu(const float* x, int64_t width, float* y) {
  TransformRow(x, width, y, [](VF v) HWY_ATTR {
    const VF zero = hn::Zero(DF());
    // "Not below zero" keeps NaN, which Max would drop on some targets.
    return hn::IfThenElse(hn::Lt(v, zero), zero, v);
  });
}

// erfc(z) / 2 for z >= 0: (a1 t + ... + a5 t^5) exp(-z^2) / 2 with
// t = 1 / (1 + p z); absolute error 1.5e-7 before rounding (Abramowitz and
// Stegun 7.1.26). Small for large z, not a difference of near-equal numbers.
HWY_INLINE VF HalfErfc(VF z) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF t = hn::Div(one, hn::MulAdd(z, hn::Set(d, 0.3275911f), one));
  VF poly = hn::Set(d, 0.5f * 1.061405429f);
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.5f * -1.453152027f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.5f * 1.421413741f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.5f * -0.284496736f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.5f * 0.254829592f));
  return hn::Mul(hn::Mul(poly, t), hn::Exp(d, hn::Neg(hn::Mul(z, z))));
}

static void Gelu(const float* x, int64_t width, float* y) {
  TransformRow(x, width, y, [](VF v) HWY_ATTR {
    const DF d;
    const VF zero = hn::Zero(d);
    const VF tail = HalfErfc(hn::Mul(hn::Abs(v), hn::Set(d, 0.70710678f)));
    const VF phi =
        hn::IfThenElse(hn::Lt(v, zero), tail, hn::Sub(hn::Set(d, 1.0f), tail));
    return hn::Mul(v, phi);  // NaN and infinity times phi speak for themselves
  });
}

static void Elu1Features(const float* x, int64_t width, float* y) {
  TransformRow(x, width, y, [](VF v) HWY_ATTR { return Elu1(v); });
}

static void AddTo(const float* x, int64_t width, float* y) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i);
  }
  for (; i < width; ++i) y[i] += x[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(Relu);
HWY_EXPORT(Gelu);
HWY_EXPORT(Elu1Features);
HWY_EXPORT(AddTo);

void ReluRow(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(Relu)(x, width, y);
}

void GeluRow(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(Gelu)(x, width, y);
}

void Elu1Row(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(Elu1Features)(x, width, y);
}

void AddToRow(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(AddTo)(x, width, y);
}

}  // namespace tarn
#endif  // HWY_ONCE
