// Rows of a block of channels, their filters and windows: what the forward pass
// and the gradient of a short convolution share.

#if defined(TARN_KERNELS_SHORT_CONVOLUTION_TAPS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_SHORT_CONVOLUTION_TAPS_INL_H_
#undef TARN_KERNELS_SHORT_CONVOLUTION_TAPS_INL_H_
#else
#define TARN_KERNELS_SHORT_CONVOLUTION_TAPS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"
#include "kernels/short_convolution/channels.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The filters of a block, taps first, and its bias.
struct Taps {
  HWY_ALIGN float weight[kMostTaps][kConvolutionChannels];
  HWY_ALIGN float bias[kConvolutionChannels];
};

HWY_MAYBE_UNUSED static void LoadTaps(const ShortConvolutionInputs& in,
                                      int64_t channel, int64_t channels,
                                      Taps& taps) {
  std::memset(&taps, 0, sizeof(taps));
  for (int64_t c = 0; c < channels; ++c) {
    const float* from = in.weights + (channel + c) * in.width;
    for (int64_t j = 0; j < in.width; ++j) taps.weight[j][c] = from[j];
    if (in.bias != nullptr) taps.bias[c] = in.bias[channel + c];
  }
}

// 1 / (1 + exp(-z)); no exponential overflows, NaN stays NaN, and a channel's
// bits do not depend on its neighbours.
HWY_INLINE VF Sigmoid(VF z) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF e = ExpOfLane(hn::Neg(hn::Abs(z)));
  const VF above = hn::IfThenElse(hn::Lt(z, hn::Zero(d)), e, one);
  return hn::Div(above, hn::Add(one, e));
}

// f(integral_constant<W>) for a width known at run time.
template <class F>
HWY_INLINE void WithWidth(int64_t width, const F& f) {
  switch (width) {
    case 2:
      return f(RowCount<2>());
    case 3:
      return f(RowCount<3>());
    case 4:
      return f(RowCount<4>());
    case 5:
      return f(RowCount<5>());
    case 6:
      return f(RowCount<6>());
    case 7:
      return f(RowCount<7>());
    case 8:
      return f(RowCount<8>());
    default:
      return;
  }
}

// The last W - 1 inputs of one vector of channels, oldest first.
template <int kWidth>
struct Window {
  VF at[kWidth - 1];
  HWY_INLINE Window() {}  // NOLINT: not initialised
  // Loads rows of a state, `stride` floats apart, or zeros where it is null.
  HWY_INLINE void Load(const float* state, int64_t stride, int64_t n) {
    for (int j = 0; j + 1 < kWidth; ++j) {
      at[j] = state == nullptr ? hn::Zero(DF())
                               : LoadPiece<DType::kF32>(state + j * stride, n);
    }
  }
  HWY_INLINE void Store(float* state, int64_t stride, int64_t n) const {
    for (int j = 0; j + 1 < kWidth; ++j) {
      StorePiece<DType::kF32>(at[j], state + j * stride, n);
    }
  }
  HWY_INLINE void Push(VF x) {
    HWY_UNROLL(8)
    for (int j = 0; j + 2 < kWidth; ++j) at[j] = at[j + 1];
    at[kWidth - 2] = x;
  }
  // bias + the taps' sum, oldest first, with x as the present token.
  HWY_INLINE VF Convolve(const Taps& taps, int64_t lane, VF x) const {
    const DF d;
    VF sum = hn::Load(d, taps.bias + lane);
    HWY_UNROLL(8)
    for (int j = 0; j + 1 < kWidth; ++j) {
      sum = hn::MulAdd(hn::Load(d, taps.weight[j] + lane), at[j], sum);
    }
    return hn::MulAdd(hn::Load(d, taps.weight[kWidth - 1] + lane), x, sum);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
