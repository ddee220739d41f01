// How a step or prefill of the gated recurrences is split into tasks.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn {

// One value head of one row over some tokens, in order.
struct RecurrentStepTask {
  const RecurrentOptions* options;
  const RecurrentInputs* in;
  const TensorView* out;
  int64_t batch, head, value_head, tokens;
  // [d_key, d_value], dense: before the first token, and after each.
  const float* old_state;
  float* state;
};

// run(RecurrentStepTask) for every row and value head. A row whose slot is
// negative has no tokens and no state.
template <class F>
void RunRecurrentStep(const RecurrentOptions& options,
                      const RecurrentInputs& in, const RecurrentState& state,
                      const TensorView& out, Executor& executor, const F& run) {
  // State entries below which waking workers costs more than it saves (20 us).
  constexpr int64_t kInlineWork = 131072;
  const int64_t value_heads = in.values.size[2];
  const int64_t group = value_heads / in.keys.size[2];
  const int64_t floats = in.keys.size[3] * in.values.size[3];
  const int64_t tasks = in.queries.size[0] * value_heads;
  const auto task = [&](int64_t index, int) {
    const int64_t b = index / value_heads, h = index % value_heads;
    const int64_t from = state.read_slots ? state.read_slots[b] : b;
    const int64_t to = state.write_slots ? state.write_slots[b] : b;
    const bool skip = from < 0 || to < 0;
    const int64_t tokens = skip                    ? 0
                           : in.lengths != nullptr ? in.lengths[b]
                                                   : in.queries.size[1];
    run(RecurrentStepTask{
        &options, &in, &out, b, h / group, h, tokens,
        skip ? nullptr : state.state + (from * value_heads + h) * floats,
        skip ? nullptr : state.next + (to * value_heads + h) * floats});
  };
  if (tasks * floats * in.queries.size[1] < kInlineWork) {
    SerialExecutor().ParallelFor(tasks, task);
  } else {
    executor.ParallelFor(tasks, task);
  }
}

}  // namespace tarn
