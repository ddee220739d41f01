// How the calls of the gated recurrences are split into tasks: the same for
// every operator, whose kernels come as functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "kernels/decay/gradient_layout.h"
#include "kernels/decay/walk.h"

namespace tarn {

// Adjacent heads that one forward task walks together, chunk by chunk: in a
// time-first layout their rows touch, so that a page or line is fetched once.
// They are few enough to leave every worker two tasks and to keep the states
// within 128 KiB.
inline int64_t RecurrentHeads(const RecurrentInputs& in, int width) {
  constexpr int64_t kMostHeads = 4, kStateFloats = 32768;
  const int64_t heads = in.values.size[2];
  const int64_t balanced = in.StateCount() / (2 * int64_t{width});
  const int64_t floats = in.keys.size[3] * in.values.size[3];
  return std::clamp<int64_t>(
      std::min(balanced, kStateFloats / std::max<int64_t>(floats, 1)), 1,
      std::min(heads, kMostHeads));
}

inline int64_t RecurrentForwardFloats(const RecurrentInputs& in, int width) {
  return RecurrentForwardLayout(in, in.values.size[3],
                                RecurrentHeads(in, width))
      .total;
}

inline size_t RecurrentForwardBytes(const RecurrentInputs& in, int width) {
  return static_cast<size_t>(RecurrentForwardFloats(in, width) * width) *
         sizeof(float);
}

// run(RecurrentTask) for every sequence and block of heads. Columns of the
// state are independent: where there are fewer heads than workers, slices of a
// multiple of 32 divide the work and change no bit; each computes the scores.
template <class F>
void RunRecurrentForward(const RecurrentOptions& options,
                         const RecurrentInputs& in,
                         const RecurrentOutputs& outputs, Executor& executor,
                         void* workspace, const F& run) {
  constexpr int64_t kSlice = 2 * kRowPad;
  const int64_t d_value = in.values.size[3], value_heads = in.values.size[2];
  const int width = executor.width();
  const int64_t states = in.StateCount();
  const int64_t heads = RecurrentHeads(in, width);
  const int64_t blocks = (value_heads + heads - 1) / heads;
  int64_t slices = 1;
  if (states > 0 && states < width) {
    slices = std::min((d_value + kSlice - 1) / kSlice,
                      (width + states - 1) / states);
  }
  const int64_t columns =
      (d_value + slices * kSlice - 1) / (slices * kSlice) * kSlice;
  const int64_t floats = RecurrentForwardFloats(in, width);
  executor.ParallelFor(
      in.SequenceCount() * blocks * slices, [&](int64_t index, int worker) {
        const int64_t column = index % slices * columns;
        if (column >= d_value) return;
        const int64_t first = index / slices % blocks * heads;
        run(RecurrentTask{&options, &in, &outputs, index / slices / blocks,
                          first, std::min(heads, value_heads - first), column,
                          std::min(columns, d_value - column),
                          static_cast<float*>(workspace) + worker * floats});
      });
}

// The gradient's workspace: the workers' scratch, then what every sequence and
// value head adds to sums over the batch.
struct RecurrentGradientPlan {
  int64_t worker_floats, states, key;
  bool head_gates, bonus;
  RecurrentGradientPlan(const RecurrentInputs& in, bool has_checkpoints)
      : worker_floats(RecurrentGradientLayout(in, has_checkpoints).total),
        states(in.StateCount()),
        key(PadRow(in.keys.size[3])),
        head_gates(in.head_gates != nullptr),
        bonus(in.bonus != nullptr) {}
  int64_t gate_sums(int width) const { return worker_floats * width; }
  int64_t bonus_sums(int width) const {
    return gate_sums(width) + (head_gates ? PadRow(2 * states) : 0);
  }
  int64_t total(int width) const {
    return bonus_sums(width) + (bonus ? states * key : 0);
  }
};

inline size_t RecurrentGradientBytes(const RecurrentInputs& in, int width,
                                     bool has_checkpoints) {
  return static_cast<size_t>(
             RecurrentGradientPlan(in, has_checkpoints).total(width)) *
         sizeof(float);
}

// run(RecurrentGradientTask) for every sequence and query/key head; sums over
// the batch are added up in index order.
template <class F>
void RunRecurrentGradient(const RecurrentOptions& options,
                          const RecurrentInputs& in,
                          const RecurrentGradients& grad, Executor& executor,
                          void* workspace, const F& run) {
  const RecurrentGradientPlan plan(in, grad.checkpoints != nullptr);
  const int width = executor.width();
  float* w = static_cast<float*>(workspace);
  const int64_t heads = in.keys.size[2], value_heads = in.values.size[2];
  const int64_t group = value_heads / heads, d_key = in.keys.size[3];
  double* gates = reinterpret_cast<double*>(w + plan.gate_sums(width));
  float* bonus = w + plan.bonus_sums(width);
  if (plan.head_gates) std::fill_n(gates, plan.states, 0.0);
  if (plan.bonus) std::fill_n(bonus, plan.states * plan.key, 0.0f);
  executor.ParallelFor(in.SequenceCount() * heads, [&](int64_t index,
                                                       int worker) {
    const int64_t sequence = index / heads, head = index % heads;
    const int64_t row = sequence * value_heads + head * group;
    run(RecurrentGradientTask{&options, &in, &grad, sequence, head, group,
                              w + worker * plan.worker_floats,
                              plan.head_gates ? gates + row : nullptr,
                              plan.bonus ? bonus + row * plan.key : nullptr});
  });
  for (int64_t h = 0;
       h < value_heads && grad.grad_head_gates != nullptr && plan.head_gates;
       ++h) {
    double sum = 0;
    for (int64_t n = 0; n < in.SequenceCount(); ++n) {
      sum += gates[n * value_heads + h];
    }
    grad.grad_head_gates[h] = static_cast<float>(sum);
  }
  for (int64_t i = 0;
       i < value_heads * d_key && grad.grad_bonus != nullptr && plan.bonus;
       ++i) {
    float sum = 0.0f;
    for (int64_t n = 0; n < in.SequenceCount(); ++n) {
      sum += bonus[(n * value_heads + i / d_key) * plan.key + i % d_key];
    }
    grad.grad_bonus[i] = sum;
  }
}

}  // namespace tarn
