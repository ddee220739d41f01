// Rows of residual_norm.h on vectors.

#if defined(TARN_KERNELS_RESIDUAL_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RESIDUAL_NORM_INL_H_
#undef TARN_KERNELS_RESIDUAL_NORM_INL_H_
#else
#define TARN_KERNELS_RESIDUAL_NORM_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/dropout/dropout-inl.h"
#include "kernels/residual_norm/residual_norm.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f(i, n) for the whole vectors of a row (n = lanes) and its tail.
template <class F>
HWY_INLINE void ForEachPart(int64_t width, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) f(i, lanes);
  if (i < width) f(i, width - i);
}

HWY_INLINE float SumLanes(VF x) { return hn::GetLane(hn::SumOfLanes(DF(), x)); }

HWY_INLINE void AddN(VF x, float* p, int64_t n) {
  StoreN(hn::Add(LoadN(p, n), x), p, n);
}

// s of one row; returns the sum that its norm begins with: of the entries, or
// of their squares. Entries after the row are 0 in every vector here, because
// LoadN clears them and factors and bias multiply or follow that.
template <NormKind kKind>
HWY_INLINE float AddResidual(const DropoutKey& key, int64_t row, int64_t width,
                             const ResidualNormTensors& t, float* s) {
  const DF d;
  const int64_t offset = row * width;
  const float* x = t.x + offset;
  const float* residual = t.residual ? t.residual + offset : nullptr;
  const float* bias = t.bias;
  VF sum = hn::Zero(d);
  ForEachVector(key, row, width, [&](int64_t i, int64_t n, VF scale) HWY_ATTR {
    VF v = LoadN(x + i, n);
    if (bias != nullptr) v = hn::Add(v, LoadN(bias + i, n));
    v = hn::Mul(v, scale);
    if (residual != nullptr) v = hn::Add(v, LoadN(residual + i, n));
    sum = kKind == NormKind::kRms ? hn::MulAdd(v, v, sum) : hn::Add(sum, v);
    StoreN(v, s + i, n);
  });
  return SumLanes(sum);
}

// y of one row from s, which may be the same, and the sum of its squares; the
// row is then in L1.
HWY_INLINE void ScaleRow(const float* s, float squares, int64_t width,
                         double eps, const float* gamma, float* y,
                         float* inverse) {
  const float mean = squares / static_cast<float>(width);
  *inverse = 1.0f / std::sqrt(mean + static_cast<float>(eps));
  const VF factor = hn::Set(DF(), *inverse);
  ForEachPart(width, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF normal = hn::Mul(LoadN(s + i, n), factor);
    StoreN(hn::Mul(normal, LoadN(gamma + i, n)), y + i, n);
  });
}

// y of one row from s, which may be the same, and its sum.
HWY_INLINE void NormaliseRow(const float* s, float sum, int64_t width,
                             double eps, const float* gamma, const float* beta,
                             float* y, float* mean, float* inverse) {
  const DF d;
  const float count = static_cast<float>(width);
  *mean = sum / count;
  const VF center = hn::Set(d, *mean);
  VF squares = hn::Zero(d);
  ForEachPart(width, [&](int64_t i, int64_t n) HWY_ATTR {
    VF diff = hn::Sub(LoadN(s + i, n), center);
    if (n < static_cast<int64_t>(hn::Lanes(d))) diff = KeepFirst(diff, n);
    squares = hn::MulAdd(diff, diff, squares);
  });
  const float variance = SumLanes(squares) / count;
  *inverse = 1.0f / std::sqrt(variance + static_cast<float>(eps));
  const VF factor = hn::Set(d, *inverse);
  ForEachPart(width, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF normal = hn::Mul(hn::Sub(LoadN(s + i, n), center), factor);
    StoreN(hn::MulAdd(normal, LoadN(gamma + i, n), LoadN(beta + i, n)), y + i,
           n);
  });
}

// What the gradient of one row of the norm needs: ds = inverse * (g - mean_g -
// normal * mean_gn). An RMS norm has neither center nor mean_g.
struct NormRow {
  VF center, inverse, mean_g, mean_gn;
};

template <NormKind kKind>
HWY_INLINE VF NormalOf(VF s, VF center, VF inverse) {
  if constexpr (kKind == NormKind::kRms) return hn::Mul(s, inverse);
  return hn::Mul(hn::Sub(s, center), inverse);
}

// The row's means; adds to the sums for gamma and beta, and recomputes y, if
// wanted.
template <NormKind kKind>
HWY_INLINE NormRow MeasureRow(const ResidualNormGradients& g, int64_t row,
                              int64_t width, float* sum_gamma,
                              float* sum_beta) {
  const DF d;
  const float* dy = g.grad_y + row * width;
  const float* s = g.s + row * width;
  const float* gamma = g.gamma;
  float* y_again = g.y_again == nullptr ? nullptr : g.y_again + row * width;
  constexpr bool kCentered = kKind == NormKind::kLayer;
  const VF center = kCentered ? hn::Set(d, g.mean[row]) : hn::Zero(d);
  const VF inverse = hn::Set(d, g.inverse[row]);
  VF sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
  ForEachPart(width, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF grad = LoadN(dy + i, n);  // 0 after the row
    const VF normal = NormalOf<kKind>(LoadN(s + i, n), center, inverse);
    const VF scale = LoadN(gamma + i, n);
    if (y_again != nullptr) {
      VF y = hn::Mul(normal, scale);
      if constexpr (kCentered)
        y = hn::MulAdd(normal, scale, LoadN(g.beta + i, n));
      StoreN(y, y_again + i, n);
    }
    const VF weighted = hn::Mul(grad, scale);
    if constexpr (kCentered) sum_g = hn::Add(sum_g, weighted);
    sum_gn = hn::MulAdd(weighted, normal, sum_gn);
    if (sum_gamma != nullptr) AddN(hn::Mul(grad, normal), sum_gamma + i, n);
    if (sum_beta != nullptr) AddN(grad, sum_beta + i, n);
  });
  const float count = static_cast<float>(width);
  return {center, inverse, hn::Set(d, SumLanes(sum_g) / count),
          hn::Set(d, SumLanes(sum_gn) / count)};
}

// ds and dx of one row. m is read only if a gradient comes through the norm.
template <NormKind kKind>
HWY_INLINE void GradientRow(const DropoutKey& key,
                            const ResidualNormGradients& g, int64_t row,
                            int64_t width, bool through_norm, const NormRow& m,
                            float* sum_bias) {
  const DF d;
  const int64_t offset = row * width;
  const float* dy = through_norm ? g.grad_y + offset : nullptr;
  const float* s = through_norm ? g.s + offset : nullptr;
  const float* gamma = g.gamma;
  const float* ds = g.grad_s ? g.grad_s + offset : nullptr;
  float* grad_residual = g.grad_residual ? g.grad_residual + offset : nullptr;
  float* grad_x = g.grad_x ? g.grad_x + offset : nullptr;
  ForEachVector(key, row, width, [&](int64_t i, int64_t n, VF scale) HWY_ATTR {
    VF total = ds ? LoadN(ds + i, n) : hn::Zero(d);
    if (dy != nullptr) {
      const VF normal = NormalOf<kKind>(LoadN(s + i, n), m.center, m.inverse);
      const VF from = LoadN(dy + i, n), scale_y = LoadN(gamma + i, n);
      VF grad = kKind == NormKind::kRms ? hn::Mul(from, scale_y)
                                        : hn::MulSub(from, scale_y, m.mean_g);
      grad = hn::NegMulAdd(normal, m.mean_gn, grad);
      total = hn::MulAdd(grad, m.inverse, total);
    }
    const VF dx = hn::Mul(total, scale);
    if (sum_bias != nullptr) AddN(dx, sum_bias + i, n);
    if (grad_residual != nullptr) StoreN(total, grad_residual + i, n);
    if (grad_x != nullptr) StoreN(dx, grad_x + i, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
