// How the forward calls of the gated recurrences are split into tasks: the same
// for every operator, whose kernels come as functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "kernels/recurrence/tasks.h"

namespace tarn {

// Adjacent heads that one forward task processes together, chunk by chunk: in a
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

}  // namespace tarn
