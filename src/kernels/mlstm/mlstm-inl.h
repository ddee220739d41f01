// The gates of mlstm.h on vectors of heads: what the forward pass and the
// gradient share.

#if defined(TARN_KERNELS_MLSTM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MLSTM_INL_H_
#undef TARN_KERNELS_MLSTM_INL_H_
#else
#define TARN_KERNELS_MLSTM_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/gate_rows/gate_rows-inl.h"
#include "kernels/mlstm/mlstm.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct MlstmCapped {
  VF value, slope;
};

HWY_INLINE MlstmCapped MlstmCap(float cap, VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  if (cap == 0.0f) return {x, one};
  const VF part = TanhOf(hn::Div(x, hn::Set(d, cap)));
  return {hn::Mul(hn::Set(d, cap), part), hn::NegMulAdd(part, part, one)};
}

// log sigma(f).
HWY_INLINE VF MlstmKeptLog(VF f) { return hn::Neg(SoftplusOfLane(hn::Neg(f))); }

HWY_INLINE VF MlstmShared(const float* row, int64_t i, int64_t n) {
  return row == nullptr ? hn::Zero(DF()) : LoadPiece<DType::kF32>(row + i, n);
}

// n heads from the first of a task on, of one token of p_i or p_f.
template <DType kType>
HWY_INLINE VF MlstmNumbers(const TensorView& view, int64_t b, int64_t t,
                           int64_t head, const float* bias, int64_t n) {
  const char* row =
      view.Row(b, t, 0) + head * static_cast<int64_t>(DTypeBytes(kType));
  return hn::Add(LoadPiece<kType>(row, n), MlstmShared(bias, head, n));
}

HWY_INLINE float* MlstmFloats(const TensorView& view, int64_t b, int64_t t,
                              int64_t head) {
  return reinterpret_cast<float*>(view.Row(b, t, 0)) + head;
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
