// The gates of rg_lru.h on vectors: what the forward pass and the gradient
// share.

#if defined(TARN_KERNELS_RG_LRU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RG_LRU_INL_H_
#undef TARN_KERNELS_RG_LRU_INL_H_
#else
#define TARN_KERNELS_RG_LRU_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"
#include "kernels/gate_rows/gate_rows-inl.h"
#include "kernels/pieces-inl.h"
#include "kernels/rg_lru/rg_lru.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A root below 1e-15 has no slope.
constexpr float kRgLruLeastSquare = 1e-30f;

struct RgLruAt {
  LogisticCurve input, recurrence;
  VF g, square, root;  // log a, 1 - a^2, its root
};

// p_i, p_r: with their biases.
HWY_INLINE RgLruAt RgLruGatesAt(VF p_i, VF p_r, VF rate) {
  const DF d;
  RgLruAt at;
  at.input = LogisticAt(p_i);
  at.recurrence = LogisticAt(p_r);
  at.g = hn::Neg(hn::Mul(rate, at.recurrence.below));
  const VF twice = hn::Add(at.g, at.g);
  at.square = hn::Neg(UnlessNaN(twice, hn::Expm1(d, twice)));
  const VF least = hn::Set(d, kRgLruLeastSquare);
  at.root =
      hn::Sqrt(hn::IfThenElse(hn::Lt(at.square, least), least, at.square));
  return at;
}

HWY_INLINE VF RgLruShared(const float* row, int64_t i, int64_t n) {
  return row == nullptr ? hn::Zero(DF()) : LoadPiece<DType::kF32>(row + i, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
