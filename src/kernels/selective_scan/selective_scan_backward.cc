// Gradient. With f = exp(delta A), m = delta x and, after the last token, dh =
// that of the final state, in reverse:
//   dh    = dh + C dy            dC[n] = sum_d dy h      dB[n] = sum_d dh m
//   dm    = sum_n dh B           dg = dh f h_{t-1}       (g = delta A)
//   dx    = dm delta + D dy      ddelta = dm x + sum_n dg A
//   dA    = sum_t dg delta       dD = sum_t dy x         dh = dh f
// A task is a block of channels of all sequences, one after another, which adds
// up what is summed over time; its part of dB and dC goes into scratch, where a
// second pass adds the blocks up in their order. The states of a group of
// tokens are made again from its checkpoint and held with the factors, so that
// an exponential is taken once.
#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/selective_scan/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_scan/selective_scan_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/selective_scan/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// The panels of a worker.
struct ScanPanels {
  float *before, *factors;  // of each token of a group
  float *state, *flow, *rates, *grad_rates;

  explicit ScanPanels(const ScanTask& task) {
    const int64_t panel = ScanPanel(*task.in);
    before = task.scratch;
    factors = before + kScanGroup * panel;
    state = factors + kScanGroup * panel;
    flow = state + panel;
    rates = flow + panel;
    grad_rates = rates + panel;
  }
};

// States before tokens [begin, end), a group or its part, and their factors.
template <DType kType, DType kSteps>
static HWY_INLINE void RebuildScan(const ScanRows<kType, kSteps>& rows,
                                   int64_t begin, int64_t end,
                                   const ScanPanels& p) {
  const ScanTask& task = rows.task;
  const SelectiveScanInputs& in = *task.in;
  const DF d;
  const int64_t states = task.states(), panel = ScanPanel(in);
  float keys[kMostScanStates];
  if (begin == 0) {
    LoadScanPanel(task, ScanStateOf(task, in.initial_state), p.state);
  } else {
    for (int64_t n = 0; n < states; ++n) {
      std::memcpy(
          p.state + n * kScanChannels,
          CheckpointRow(task, task.gradient->checkpoints,
                        rows.span.checkpoint + begin / kScanGroup - 1, n),
          static_cast<size_t>(task.channels) * sizeof(float));
    }
  }
  for (int64_t t = begin; t < end; ++t) {
    rows.States(in.keys, t, keys);
    float* const before = p.before + (t - begin) * panel;
    float* const factors = p.factors + (t - begin) * panel;
    for (int64_t lane = 0; lane < task.channels; lane += kLanes) {
      const VF step = rows.Step(t, lane);
      const VF moved = hn::Mul(step, rows.Load(in.inputs, t, lane));
      for (int64_t n = 0; n < states; ++n) {
        const int64_t at = n * kScanChannels + lane;
        const VF factor = DecayFactor(hn::Mul(step, hn::Load(d, p.rates + at)));
        const VF h = hn::Load(d, p.state + at);
        hn::Store(factor, d, factors + at);
        hn::Store(h, d, before + at);
        hn::Store(hn::MulAdd(factor, h, hn::Mul(hn::Set(d, keys[n]), moved)), d,
                  p.state + at);
      }
    }
  }
}

// One token, `local` tokens into its group. skip: sums of dD.
template <DType kType, DType kSteps>
static HWY_INLINE void ScanGradientToken(const ScanRows<kType, kSteps>& rows,
                                         int64_t t, int64_t local,
                                         const ScanPanels& p, float* skip) {
  const ScanTask& task = rows.task;
  const SelectiveScanInputs& in = *task.in;
  const SelectiveScanGradients& grad = *task.gradient;
  const DF d;
  const int64_t states = task.states(), panel = ScanPanel(in);
  const float* const before = p.before + local * panel;
  const float* const factors = p.factors + local * panel;
  float keys[kMostScanStates], queries[kMostScanStates];
  HWY_ALIGN float sums[2 * kMostScanStates * kLanes];  // dB, dC by lane
  rows.States(in.keys, t, keys);
  rows.States(in.queries, t, queries);
  std::memset(sums, 0,
              static_cast<size_t>(2 * states * kLanes) * sizeof(float));
  for (int64_t lane = 0; lane < task.channels; lane += kLanes) {
    const VF dy = rows.Load(grad.grad_out, t, lane);
    const VF step = rows.Step(t, lane), x = rows.Load(in.inputs, t, lane);
    const VF moved = hn::Mul(step, x);
    VF grad_moved = hn::Zero(d), grad_step = hn::Zero(d);
    for (int64_t n = 0; n < states; ++n) {
      const int64_t at = n * kScanChannels + lane;
      const VF key = hn::Set(d, keys[n]);
      const VF old = hn::Load(d, before + at), f = hn::Load(d, factors + at);
      const VF h = hn::MulAdd(f, old, hn::Mul(key, moved));
      const VF dh =
          hn::MulAdd(hn::Set(d, queries[n]), dy, hn::Load(d, p.flow + at));
      const VF flow = hn::Mul(dh, f), dg = hn::Mul(flow, old);
      hn::Store(flow, d, p.flow + at);
      float* const db = sums + n * kLanes;
      float* const dc = sums + (states + n) * kLanes;
      hn::Store(hn::MulAdd(dh, moved, hn::Load(d, db)), d, db);
      hn::Store(hn::MulAdd(dy, h, hn::Load(d, dc)), d, dc);
      grad_moved = hn::MulAdd(dh, key, grad_moved);
      grad_step = hn::MulAdd(dg, hn::Load(d, p.rates + at), grad_step);
      float* const da = p.grad_rates + at;
      hn::Store(hn::MulAdd(dg, step, hn::Load(d, da)), d, da);
    }
    rows.Store(hn::MulAdd(grad_moved, step, hn::Mul(ScanSkip(task, lane), dy)),
               grad.grad_inputs, t, lane);
    rows.template Store<kSteps>(hn::MulAdd(grad_moved, x, grad_step),
                                grad.grad_steps, t, lane);
    hn::Store(hn::MulAdd(dy, x, hn::Load(d, skip + lane)), d, skip + lane);
  }
  float* const to =
      task.sums +
      (rows.span.batch * in.inputs.size[1] + rows.span.first + t) * 2 * states;
  for (int64_t n = 0; n < 2 * states; ++n) {
    to[n] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums + n * kLanes)));
  }
}

template <DType kType, DType kSteps>
static HWY_INLINE void ScanGradientSequence(const ScanRows<kType, kSteps>& rows,
                                            const ScanPanels& p, float* skip) {
  const ScanTask& task = rows.task;
  const SelectiveScanGradients& grad = *task.gradient;
  LoadScanPanel(task, ScanStateOf(task, grad.grad_final_state), p.flow);
  for (int64_t end = rows.span.tokens; end > 0;) {
    const int64_t begin = (end - 1) / kScanGroup * kScanGroup;
    RebuildScan(rows, begin, end, p);
    for (int64_t t = end - 1; t >= begin; --t) {
      ScanGradientToken(rows, t, t - begin, p, skip);
    }
    end = begin;
  }
  StoreScanPanel(task, p.flow, ScanStateOf(task, grad.grad_initial_state));
  ZeroScanPads(rows.span, grad.grad_inputs, task.channel, task.channels);
  ZeroScanPads(rows.span, grad.grad_steps, task.channel, task.channels);
}

static void SelectiveScanGradientBlock(const ScanTask& whole) {
  ScanTask task = whole;
  const ScanPanels panels(task);
  HWY_ALIGN float skip[kScanChannels] = {0};
  // What lies past the channels of the last block is read, and must be numbers.
  std::memset(
      task.scratch, 0,
      static_cast<size_t>(kScanPanels * ScanPanel(*task.in)) * sizeof(float));
  LoadScanPanel(task, task.in->rates, panels.rates);
  for (; task.sequence < task.in->SequenceCount(); ++task.sequence) {
    WithScanTypes(*task.in, [&](auto type, auto steps) HWY_ATTR {
      ScanGradientSequence(
          ScanRows<decltype(type)::value, decltype(steps)::value>{
              task, ScanSpanAt(*task.in, task.sequence)},
          panels, skip);
    });
  }
  StoreScanPanel(task, panels.grad_rates, task.gradient->grad_rates);
  if (task.gradient->grad_skip != nullptr) {
    std::memcpy(task.gradient->grad_skip + task.channel, skip,
                static_cast<size_t>(task.channels) * sizeof(float));
  }
}

// Tokens [begin, end) of a sequence: the blocks' parts of dB and dC, in order.
static void AddScanBlocks(const ScanTask& task, int64_t begin, int64_t end) {
  const SelectiveScanInputs& in = *task.in;
  const ScanSpan span = ScanSpanAt(in, task.sequence);
  const int64_t states = task.states(), blocks = ScanBlocks(in);
  const int64_t rows = in.inputs.size[0] * in.inputs.size[1];
  const auto add = [&](auto type, const TensorView& to, int64_t t,
                       int64_t column) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    const int64_t row = span.batch * in.inputs.size[1] + span.first + t;
    for (int64_t n = 0; n < states; n += kLanes) {
      VF sum = hn::Zero(DF());
      for (int64_t block = 0; block < blocks; ++block) {
        sum = hn::Add(
            sum, LoadPiece<DType::kF32>(
                     task.sums + (block * rows + row) * 2 * states + column + n,
                     states - n));
      }
      StorePiece<kType>(sum,
                        to.Row(span.batch, span.first + t, 0) +
                            n * static_cast<int64_t>(DTypeBytes(kType)),
                        states - n);
    }
  };
  WithDType(in.inputs.dtype, [&](auto type) HWY_ATTR {
    for (int64_t t = begin; t < std::min(end, span.tokens); ++t) {
      add(type, task.gradient->grad_keys, t, 0);
      add(type, task.gradient->grad_queries, t, states);
    }
  });
  if (begin != 0) return;
  ZeroScanPads(span, task.gradient->grad_keys, 0, states);
  ZeroScanPads(span, task.gradient->grad_queries, 0, states);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(SelectiveScanGradientBlock);
HWY_EXPORT(AddScanBlocks);

void SelectiveScanBackward(const SelectiveScanInputs& in,
                           const SelectiveScanGradients& grad,
                           Executor& executor) {
  CheckScanCall(in, grad.grad_inputs, "grad_inputs");
  CheckScanTensor(grad.grad_out, in.inputs, "grad_out");
  CheckScanTensor(grad.grad_steps, in.steps, "grad_steps");
  CheckScanTensor(grad.grad_keys, in.keys, "grad_keys");
  CheckScanTensor(grad.grad_queries, in.queries, "grad_queries");
  if (grad.checkpoints == nullptr && SelectiveScanCheckpoints(in) != 0) {
    throw ArgumentError("selective_scan: checkpoints",
                        "those of the forward call", "a null pointer");
  }
  if (grad.scratch == nullptr) {
    throw ArgumentError("selective_scan: scratch",
                        "SelectiveScanScratch() floats", "a null pointer");
  }
  const int64_t rows = in.inputs.size[0] * in.inputs.size[1];
  const int64_t panels = kScanPanels * ScanPanel(in);
  float* const sums = grad.scratch + executor.width() * panels;
  const auto task = [&](int64_t sequence, int64_t block, int worker) {
    const int64_t channel = block * kScanChannels;
    return ScanTask{&in,
                    nullptr,
                    &grad,
                    sequence,
                    channel,
                    std::min(kScanChannels, in.channels() - channel),
                    grad.scratch + worker * panels,
                    sums + block * rows * 2 * in.states()};
  };
  executor.ParallelFor(ScanBlocks(in), [&](int64_t block, int worker) {
    HWY_DYNAMIC_DISPATCH(SelectiveScanGradientBlock)(task(0, block, worker));
  });
  constexpr int64_t kTokens = 64;  // of a task
  const int64_t pieces =
      std::max<int64_t>(1, (in.inputs.size[1] + kTokens - 1) / kTokens);
  executor.ParallelFor(
      in.SequenceCount() * pieces, [&](int64_t index, int worker) {
        const int64_t begin = index % pieces * kTokens;
        HWY_DYNAMIC_DISPATCH(AddScanBlocks)
        (task(index / pieces, 0, worker), begin, begin + kTokens);
      });
}

}  // namespace tarn
#endif  // HWY_ONCE
