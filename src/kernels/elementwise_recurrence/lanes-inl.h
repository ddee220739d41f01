// Blocks of channels: what the forward pass and the gradient of an elementwise
// recurrence share.

#if defined(TARN_KERNELS_ELEMENTWISE_RECURRENCE_LANES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_ELEMENTWISE_RECURRENCE_LANES_INL_H_
#undef TARN_KERNELS_ELEMENTWISE_RECURRENCE_LANES_INL_H_
#else
#define TARN_KERNELS_ELEMENTWISE_RECURRENCE_LANES_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/decay_factor-inl.h"
#include "kernels/elementwise_recurrence/channels.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kVectors vectors of channels of one task, `lane` channels into its block.
template <DType kType, DType kGates, int kVectors>
struct ElementwiseLanes {
  static constexpr int kCount = kVectors;
  const ElementwiseTask& task;
  ElementwiseSpan span;
  int64_t channel, left;  // the first channel, and those from it on

  ElementwiseLanes(const ElementwiseTask& t, const ElementwiseSpan& s,
                   int64_t lane)
      : task(t), span(s), channel(t.channel + lane), left(t.channels - lane) {}

  template <DType kOf>
  static HWY_INLINE VF Load(const char* row, int v, int64_t left) {
    return LoadPiece<kOf>(
        row + v * kLanes * static_cast<int64_t>(DTypeBytes(kOf)),
        left - v * kLanes);
  }
  template <DType kOf>
  static HWY_INLINE void Store(VF x, char* row, int v, int64_t left) {
    StorePiece<kOf>(x, row + v * kLanes * static_cast<int64_t>(DTypeBytes(kOf)),
                    left - v * kLanes);
  }
  // The address of these channels of token t.
  template <DType kOf>
  HWY_INLINE char* At(const TensorView& view, int64_t t) const {
    return view.Row(span.batch, span.first + t, 0) +
           channel * static_cast<int64_t>(DTypeBytes(kOf));
  }
  HWY_INLINE VF Input(const char* row, int v) const {
    return Load<kType>(row, v, left);
  }
  HWY_INLINE VF Factor(const char* row, int v) const {
    return DecayFactor(Load<kGates>(row, v, left));
  }

  // The vectors from or into row `index` of states [.., D]; null holds zeros.
  HWY_INLINE void LoadState(const float* states, int64_t index,
                            VF (&to)[kVectors]) const {
    const int64_t width = task.in->inputs.size[3];
    for (int v = 0; v < kVectors; ++v) {
      to[v] = states == nullptr
                  ? hn::Zero(DF())
                  : LoadPiece<DType::kF32>(
                        states + index * width + channel + v * kLanes,
                        left - v * kLanes);
    }
  }
  HWY_INLINE void StoreState(const VF (&from)[kVectors], float* states,
                             int64_t index) const {
    const int64_t width = task.in->inputs.size[3];
    for (int v = 0; v < kVectors && states != nullptr; ++v) {
      StorePiece<DType::kF32>(from[v],
                              states + index * width + channel + v * kLanes,
                              left - v * kLanes);
    }
  }
};

// f(lanes) for all channels of a task: four vectors at a time, so that whole
// lines are read, then one.
template <class F>
HWY_INLINE void ForLanes(const ElementwiseTask& task, const F& f) {
  const ElementwiseSpan span = ElementwiseSpanAt(*task.in, task.sequence);
  const auto with = [&](auto type, auto gates) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr DType kGates = decltype(gates)::value;
    int64_t lane = 0;
    for (; lane + 4 * kLanes <= task.channels; lane += 4 * kLanes) {
      f(ElementwiseLanes<kType, kGates, 4>(task, span, lane));
    }
    for (; lane < task.channels; lane += kLanes) {
      f(ElementwiseLanes<kType, kGates, 1>(task, span, lane));
    }
  };
  WithDType(task.in->inputs.dtype, [&](auto type) HWY_ATTR {
    using F32 = std::integral_constant<DType, DType::kF32>;
    if (task.in->gates.dtype == DType::kF32) return with(type, F32());
    with(type, type);
  });
}

// Zeros at the tokens after the last of a task's sequence.
HWY_INLINE void ZeroPads(const ElementwiseTask& task, const TensorView& to) {
  const ElementwiseSpan span = ElementwiseSpanAt(*task.in, task.sequence);
  const int64_t bytes = static_cast<int64_t>(DTypeBytes(to.dtype));
  for (int64_t t = span.tokens; t < span.rows; ++t) {
    std::memset(to.Row(span.batch, span.first + t, 0) + task.channel * bytes, 0,
                static_cast<size_t>(task.channels * bytes));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
