// Forward pass: a task is a block of channels of one sequence, whose states
// stay in L1 from token to token.
#include "kernels/selective_scan/selective_scan.h"

#include <cstdint>

#include "kernels/selective_scan/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_scan/selective_scan.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/selective_scan/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static HWY_INLINE void KeepCheckpoint(const ScanTask& task, const float* state,
                                      int64_t slot) {
  for (int64_t n = 0; n < task.states(); ++n) {
    std::memcpy(CheckpointRow(task, task.out->checkpoints, slot, n),
                state + n * kScanChannels,
                static_cast<size_t>(task.channels) * sizeof(float));
  }
}

template <DType kType, DType kSteps>
static HWY_INLINE void ScanSequence(const ScanRows<kType, kSteps>& rows) {
  const ScanTask& task = rows.task;
  const SelectiveScanInputs& in = *task.in;
  const DF d;
  HWY_ALIGN float rates[kMostScanStates * kScanChannels];
  HWY_ALIGN float state[kMostScanStates * kScanChannels];
  float keys[kMostScanStates], queries[kMostScanStates];
  const int64_t states = task.states();
  LoadScanPanel(task, in.rates, rates);
  LoadScanPanel(task, ScanStateOf(task, in.initial_state), state);
  for (int64_t t = 0; t < rows.span.tokens; ++t) {
    if (t != 0 && t % kScanGroup == 0 && task.out->checkpoints != nullptr) {
      KeepCheckpoint(task, state, rows.span.checkpoint + t / kScanGroup - 1);
    }
    rows.States(in.keys, t, keys);
    rows.States(in.queries, t, queries);
    for (int64_t lane = 0; lane < task.channels; lane += kLanes) {
      const VF step = rows.Step(t, lane), x = rows.Load(in.inputs, t, lane);
      const VF moved = hn::Mul(step, x);
      VF y = hn::Mul(ScanSkip(task, lane), x);
      for (int64_t n = 0; n < states; ++n) {
        float* const at = state + n * kScanChannels + lane;
        const VF rate = hn::Load(d, rates + n * kScanChannels + lane);
        const VF h =
            hn::MulAdd(DecayFactor(hn::Mul(step, rate)), hn::Load(d, at),
                       hn::Mul(hn::Set(d, keys[n]), moved));
        hn::Store(h, d, at);
        y = hn::MulAdd(hn::Set(d, queries[n]), h, y);
      }
      rows.Store(y, task.out->out, t, lane);
    }
  }
  StoreScanPanel(task, state, ScanStateOf(task, task.out->final_state));
  ZeroScanPads(rows.span, task.out->out, task.channel, task.channels);
}

static void SelectiveScanBlock(const ScanTask& task) {
  WithScanTypes(*task.in, [&](auto type, auto steps) HWY_ATTR {
    ScanSequence(ScanRows<decltype(type)::value, decltype(steps)::value>{
        task, ScanSpanAt(*task.in, task.sequence)});
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(SelectiveScanBlock);

void SelectiveScanForward(const SelectiveScanInputs& in,
                          const SelectiveScanOutputs& outputs,
                          Executor& executor) {
  // Numbers below which waking workers costs more than it saves (20 us).
  constexpr int64_t kInlineWork = 16384;
  CheckSelectiveScan(in, outputs.out);
  const int64_t blocks = ScanBlocks(in);
  const auto run = [&](int64_t index, int) {
    const int64_t channel = index % blocks * kScanChannels;
    HWY_DYNAMIC_DISPATCH(SelectiveScanBlock)
    ({&in, &outputs, nullptr, index / blocks, channel,
      std::min(kScanChannels, in.channels() - channel), nullptr, nullptr});
  };
  const int64_t tasks = in.SequenceCount() * blocks;
  if (in.inputs.size[0] * in.inputs.size[1] * in.channels() * in.states() <
      kInlineWork) {
    SerialExecutor().ParallelFor(tasks, run);
  } else {
    executor.ParallelFor(tasks, run);
  }
}

}  // namespace tarn
#endif  // HWY_ONCE
