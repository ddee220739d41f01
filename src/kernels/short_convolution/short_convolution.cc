// Forward pass: each vector of channels runs over time with its window in
// registers, four vectors at a time so that whole lines are read.
#include "kernels/short_convolution/short_convolution.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/short_convolution/channels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/short_convolution/short_convolution.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/short_convolution/taps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// kVectors vectors of channels from `lane` of the block on.
template <int kWidth, DType kType, int kVectors>
static HWY_INLINE void ConvolveLanes(const ConvolutionTask& task,
                                     const ConvolutionSpan& span,
                                     const Taps& taps, int64_t lane) {
  const ShortConvolutionInputs& in = *task.in;
  const int64_t width = in.inputs.size[3], first = task.channel + lane;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const int64_t rows = task.sequence * (kWidth - 1) * width + first;
  const bool silu = in.activation == ConvolutionActivation::kSilu;
  const auto left = [&](int v) { return task.channels - lane - v * kLanes; };
  Window<kWidth> window[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const float* state = in.initial_state == nullptr
                             ? nullptr
                             : in.initial_state + rows + v * kLanes;
    window[v].Load(state, width, left(v));
  }
  for (int64_t t = 0; t < span.tokens; ++t) {
    const char* from =
        in.inputs.Row(span.batch, span.first + t, 0) + first * kBytes;
    char* to = task.out->Row(span.batch, span.first + t, 0) + first * kBytes;
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const VF x = LoadPiece<kType>(from + v * kLanes * kBytes, left(v));
      VF z = window[v].Convolve(taps, lane + v * kLanes, x);
      window[v].Push(x);
      if (silu) z = hn::Mul(z, Sigmoid(z));
      StorePiece<kType>(z, to + v * kLanes * kBytes, left(v));
    }
  }
  for (int v = 0; v < kVectors && task.final_state != nullptr; ++v) {
    window[v].Store(task.final_state + rows + v * kLanes, width, left(v));
  }
}

static void ConvolutionBlock(const ConvolutionTask& task) {
  const ShortConvolutionInputs& in = *task.in;
  const ConvolutionSpan span = ConvolutionSpanAt(in, task.sequence);
  Taps taps;
  LoadTaps(in, task.channel, task.channels, taps);
  WithWidth(in.width, [&](auto w) HWY_ATTR {
    WithDType(in.inputs.dtype, [&](auto type) HWY_ATTR {
      constexpr int kWidth = decltype(w)::value;
      constexpr DType kType = decltype(type)::value;
      int64_t lane = 0;
      for (; lane + 4 * kLanes <= task.channels; lane += 4 * kLanes) {
        ConvolveLanes<kWidth, kType, 4>(task, span, taps, lane);
      }
      for (; lane < task.channels; lane += kLanes) {
        ConvolveLanes<kWidth, kType, 1>(task, span, taps, lane);
      }
    });
  });
  const int64_t bytes = static_cast<int64_t>(DTypeBytes(task.out->dtype));
  for (int64_t t = span.tokens; t < span.rows; ++t) {
    std::memset(
        task.out->Row(span.batch, span.first + t, 0) + task.channel * bytes, 0,
        static_cast<size_t>(task.channels * bytes));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(ConvolutionBlock);

void ShortConvolutionForward(const ShortConvolutionInputs& in,
                             const TensorView& out, float* final_state,
                             Executor& executor) {
  CheckShortConvolution(in, out);
  // Work below which waking workers costs more than it saves (20 us).
  constexpr int64_t kInlineWork = 32768;
  const int64_t blocks = ConvolutionBlocks(in);
  const auto run = [&](int64_t index, int) {
    const int64_t channel = index % blocks * kConvolutionChannels;
    HWY_DYNAMIC_DISPATCH(ConvolutionBlock)
    ({&in, &out, final_state, nullptr, nullptr, index / blocks, channel,
      std::min(kConvolutionChannels, in.inputs.size[3] - channel)});
  };
  const int64_t tasks = in.SequenceCount() * blocks;
  if (in.inputs.size[0] * in.inputs.size[1] * in.inputs.size[3] < kInlineWork) {
    SerialExecutor().ParallelFor(tasks, run);
  } else {
    executor.ParallelFor(tasks, run);
  }
}

void ShortConvolutionChannels(const ShortConvolutionInputs& in,
                              const TensorView& out, float* final_state,
                              int64_t first, int64_t count) {
  for (int64_t sequence = 0; sequence < in.SequenceCount(); ++sequence) {
    for (int64_t done = 0; done < count; done += kConvolutionChannels) {
      HWY_DYNAMIC_DISPATCH(ConvolutionBlock)
      ({&in, &out, final_state, nullptr, nullptr, sequence, first + done,
        std::min(kConvolutionChannels, count - done)});
    }
  }
}

}  // namespace tarn
#endif  // HWY_ONCE
