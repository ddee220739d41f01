// Gradient. With dz_t = dy_t act'(z_t), zero after the last token:
//   dx_s = sum_j weight[j] dz_{s+W-1-j}
//   dweight[j] = sum_t dz_t x_{t-W+1+j};  dbias = sum_t dz_t
// One pass forward in time holds windows of both x and dz: at token t all that
// dx_{t-W+1} needs is known. dx of tokens before the first is the gradient of
// the initial state; that of the final state is added to the last W - 1 inputs.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "kernels/short_convolution/channels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/short_convolution/short_convolution_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/short_convolution/taps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Sums over time are of runs of 256 tokens, so that their rounding does not
// grow with T.
constexpr int64_t kSumTokens = 256;

// silu'(z) = s + z s (1 - s), s = sigmoid(z).
static HWY_INLINE VF SiluSlope(VF z) {
  const VF s = Sigmoid(z);
  return hn::MulAdd(hn::Mul(z, s), hn::Sub(hn::Set(DF(), 1.0f), s), s);
}

// One vector of channels.
template <int kWidth, DType kType>
static HWY_INLINE void GradientLanes(const ConvolutionTask& task,
                                     const ConvolutionSpan& span,
                                     const Taps& taps, int64_t lane) {
  const DF d;
  const ShortConvolutionInputs& in = *task.in;
  const ShortConvolutionGradients& grad = *task.gradient;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  constexpr int64_t kPast = kWidth - 1;
  const int64_t width = in.inputs.size[3], first = task.channel + lane;
  const int64_t left = task.channels - lane;
  const int64_t rows = task.sequence * kPast * width + first;
  const bool silu = in.activation == ConvolutionActivation::kSilu;
  const auto state = [&](auto* base, int64_t row) {
    return base == nullptr ? nullptr : base + rows + row * width;
  };
  Window<kWidth> x, dz;
  x.Load(state(in.initial_state, 0), width, left);
  dz.Load(nullptr, 0, left);
  VF sum[kWidth + 1], total[kWidth + 1];
  for (int j = 0; j <= kWidth; ++j) sum[j] = total[j] = hn::Zero(d);
  for (int64_t t = 0; t < span.tokens + kPast; ++t) {
    VF slope = hn::Zero(d);
    if (t < span.tokens) {
      const int64_t token = span.first + t;
      const VF now = LoadPiece<kType>(
          in.inputs.Row(span.batch, token, 0) + first * kBytes, left);
      slope = LoadPiece<kType>(
          grad.grad_out.Row(span.batch, token, 0) + first * kBytes, left);
      if (silu) {
        slope = hn::Mul(slope, SiluSlope(x.Convolve(taps, lane, now)));
      }
      HWY_UNROLL(8)
      for (int j = 0; j < kPast; ++j) {
        sum[j] = hn::MulAdd(slope, x.at[j], sum[j]);
      }
      sum[kPast] = hn::MulAdd(slope, now, sum[kPast]);
      sum[kWidth] = hn::Add(sum[kWidth], slope);
      x.Push(now);
      if (t % kSumTokens == kSumTokens - 1) {
        for (int j = 0; j <= kWidth; ++j) {
          total[j] = hn::Add(total[j], sum[j]);
          sum[j] = hn::Zero(d);
        }
      }
    }
    // dx of token t - W + 1 meets dz_t with its first tap.
    VF dx = hn::Mul(hn::Load(d, taps.weight[0] + lane), slope);
    HWY_UNROLL(8)
    for (int j = 1; j < kWidth; ++j) {
      dx = hn::MulAdd(hn::Load(d, taps.weight[j] + lane), dz.at[kPast - j], dx);
    }
    dz.Push(slope);
    const int64_t s = t - kPast;
    const int64_t kept = s - (span.tokens - kPast);  // its row of the state
    if (kept >= 0 && grad.grad_final_state != nullptr) {
      dx = hn::Add(
          dx, LoadPiece<DType::kF32>(state(grad.grad_final_state, kept), left));
    }
    if (s >= 0) {
      StorePiece<kType>(
          dx,
          grad.grad_inputs.Row(span.batch, span.first + s, 0) + first * kBytes,
          left);
    } else if (grad.grad_initial_state != nullptr) {
      StorePiece<DType::kF32>(dx, state(grad.grad_initial_state, t), left);
    }
  }
  for (int j = 0; j <= kWidth; ++j) {
    StorePiece<DType::kF32>(hn::Add(total[j], sum[j]),
                            task.sums + j * width + first, left);
  }
}

static void ConvolutionGradientBlock(const ConvolutionTask& task) {
  const ShortConvolutionInputs& in = *task.in;
  const ConvolutionSpan span = ConvolutionSpanAt(in, task.sequence);
  Taps taps;
  LoadTaps(in, task.channel, task.channels, taps);
  WithWidth(in.width, [&](auto w) HWY_ATTR {
    WithDType(in.inputs.dtype, [&](auto type) HWY_ATTR {
      for (int64_t lane = 0; lane < task.channels; lane += kLanes) {
        GradientLanes<decltype(w)::value, decltype(type)::value>(task, span,
                                                                 taps, lane);
      }
    });
  });
  const TensorView& to = task.gradient->grad_inputs;
  const int64_t bytes = static_cast<int64_t>(DTypeBytes(to.dtype));
  for (int64_t t = span.tokens; t < span.rows; ++t) {
    std::memset(to.Row(span.batch, span.first + t, 0) + task.channel * bytes, 0,
                static_cast<size_t>(task.channels * bytes));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(ConvolutionGradientBlock);

size_t ShortConvolutionGradientBytes(const ShortConvolutionInputs& in) {
  return static_cast<size_t>(in.SequenceCount() * (in.width + 1) *
                             in.inputs.size[3]) *
         sizeof(float);
}

void ShortConvolutionBackward(const ShortConvolutionInputs& in,
                              const ShortConvolutionGradients& grad,
                              Executor& executor, void* workspace) {
  CheckConvolutionCall(in, grad.grad_inputs, "grad_inputs");
  CheckConvolutionTensor(in, grad.grad_out, "grad_out");
  const int64_t blocks = ConvolutionBlocks(in), width = in.inputs.size[3];
  const int64_t floats = (in.width + 1) * width;
  float* sums = static_cast<float*>(workspace);
  executor.ParallelFor(in.SequenceCount() * blocks, [&](int64_t index, int) {
    const int64_t channel = index % blocks * kConvolutionChannels;
    const int64_t sequence = index / blocks;
    HWY_DYNAMIC_DISPATCH(ConvolutionGradientBlock)
    ({&in, nullptr, nullptr, &grad, sums + sequence * floats, sequence, channel,
      std::min(kConvolutionChannels, width - channel)});
  });
  // The sequences' parts are added in their order, whatever the threads.
  for (int64_t c = 0; c < width; ++c) {
    for (int64_t j = 0; j <= in.width; ++j) {
      float* to =
          j == in.width
              ? (grad.grad_bias ? grad.grad_bias + c : nullptr)
              : (grad.grad_weights ? grad.grad_weights + c * in.width + j
                                   : nullptr);
      if (to == nullptr) continue;
      float sum = 0.0f;
      for (int64_t n = 0; n < in.SequenceCount(); ++n) {
        sum += sums[n * floats + j * width + c];
      }
      *to = sum;
    }
  }
}

}  // namespace tarn
#endif  // HWY_ONCE
