// A block of channels: what the forward pass and the gradient of a selective
// scan share. Panels are [states, kScanChannels]: a vector holds one state of
// neighbouring channels.

#if defined(TARN_KERNELS_SELECTIVE_SCAN_BLOCK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_SELECTIVE_SCAN_BLOCK_INL_H_
#undef TARN_KERNELS_SELECTIVE_SCAN_BLOCK_INL_H_
#else
#define TARN_KERNELS_SELECTIVE_SCAN_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/decay_factor-inl.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"
#include "kernels/selective_scan/blocks.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of one sequence of a task, as a kernel for these dtypes reads them.
template <DType kType, DType kSteps>
struct ScanRows {
  const ScanTask& task;
  ScanSpan span;

  template <DType kOf>
  HWY_INLINE char* At(const TensorView& view, int64_t t, int64_t column) const {
    return view.Row(span.batch, span.first + t, 0) +
           column * static_cast<int64_t>(DTypeBytes(kOf));
  }
  // Channels [lane, lane + kLanes) of the task of token t.
  template <DType kOf = kType>
  HWY_INLINE VF Load(const TensorView& view, int64_t t, int64_t lane) const {
    return LoadPiece<kOf>(At<kOf>(view, t, task.channel + lane),
                          task.channels - lane);
  }
  HWY_INLINE VF Step(int64_t t, int64_t lane) const {
    return Load<kSteps>(task.in->steps, t, lane);
  }
  template <DType kOf = kType>
  HWY_INLINE void Store(VF x, const TensorView& view, int64_t t,
                        int64_t lane) const {
    StorePiece<kOf>(x, At<kOf>(view, t, task.channel + lane),
                    task.channels - lane);
  }
  // Keys or queries of token t as floats.
  HWY_INLINE void States(const TensorView& view, int64_t t, float* to) const {
    const int64_t states = task.states();
    for (int64_t n = 0; n < states; n += kLanes) {
      StorePiece<DType::kF32>(
          LoadPiece<kType>(At<kType>(view, t, n), states - n), to + n,
          states - n);
    }
  }
};

// The skip weights of channels from `lane` on.
HWY_INLINE VF ScanSkip(const ScanTask& task, int64_t lane) {
  if (task.in->skip == nullptr) return hn::Zero(DF());
  return LoadPiece<DType::kF32>(task.in->skip + task.channel + lane,
                                task.channels - lane);
}

// A panel from rows [channels, states] of one sequence; null holds zeros. What
// lies past the channels is zero.
HWY_INLINE void LoadScanPanel(const ScanTask& task, const float* rows,
                              float* panel) {
  const int64_t states = task.states();
  std::memset(panel, 0,
              static_cast<size_t>(states * kScanChannels) * sizeof(float));
  if (rows == nullptr) return;
  rows += task.channel * states;
  for (int64_t d = 0; d < task.channels; ++d) {
    for (int64_t n = 0; n < states; ++n) {
      panel[n * kScanChannels + d] = rows[d * states + n];
    }
  }
}

HWY_INLINE void StoreScanPanel(const ScanTask& task, const float* panel,
                               float* rows) {
  if (rows == nullptr) return;
  const int64_t states = task.states();
  rows += task.channel * states;
  for (int64_t d = 0; d < task.channels; ++d) {
    for (int64_t n = 0; n < states; ++n) {
      rows[d * states + n] = panel[n * kScanChannels + d];
    }
  }
}

// The states [.., D, states] of a sequence.
template <typename T>
HWY_INLINE T* ScanStateOf(const ScanTask& task, T* states) {
  return states == nullptr
             ? nullptr
             : states + task.sequence * task.in->channels() * task.states();
}

// The row of state n in checkpoint `slot`.
template <typename T>
HWY_INLINE T* CheckpointRow(const ScanTask& task, T* checkpoints, int64_t slot,
                            int64_t n) {
  return checkpoints + (slot * task.states() + n) * task.in->channels() +
         task.channel;
}

// Zeros at the tokens after the last of a task's sequence, in columns [begin,
// begin + width).
HWY_INLINE void ZeroScanPads(const ScanSpan& span, const TensorView& to,
                             int64_t begin, int64_t width) {
  const int64_t bytes = static_cast<int64_t>(DTypeBytes(to.dtype));
  for (int64_t t = span.tokens; t < span.rows; ++t) {
    std::memset(to.Row(span.batch, span.first + t, 0) + begin * bytes, 0,
                static_cast<size_t>(width * bytes));
  }
}

// f(type, steps) for the dtypes of a call.
template <class F>
HWY_INLINE void WithScanTypes(const SelectiveScanInputs& in, const F& f) {
  WithDType(in.inputs.dtype, [&](auto type) HWY_ATTR {
    using F32 = std::integral_constant<DType, DType::kF32>;
    if (in.steps.dtype == DType::kF32) return f(type, F32());
    f(type, type);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
