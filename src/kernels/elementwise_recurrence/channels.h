// How an elementwise recurrence is cut: sequences, blocks of channels, groups
// of tokens. Plain integers, no tensor data.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/elementwise_recurrence/elementwise_recurrence.h"

namespace tarn {

// Channels of a task: four AVX-512 vectors, whose states stay in registers.
constexpr int64_t kElementwiseChannels = 64;
// Tokens between checkpoints: the states and factors of a group and a block
// take 16 KiB of a worker's stack in the gradient.
constexpr int64_t kElementwiseGroup = 32;

// checkpoint: slot of the state before token 32. A packed sequence finds its
// own by its first token: floor(cu[n] / 32) leaves each the floor(tokens / 32)
// slots that it needs.
struct ElementwiseSpan {
  int64_t batch, first, tokens, rows;  // rows: with the padding
  int64_t checkpoint;
};

inline ElementwiseSpan ElementwiseSpanAt(const ElementwiseRecurrenceInputs& in,
                                         int64_t index) {
  if (in.cu_seqlens != nullptr) {
    const int64_t first = in.cu_seqlens[index];
    const int64_t tokens = in.cu_seqlens[index + 1] - first;
    return {0, first, tokens, tokens, first / kElementwiseGroup};
  }
  const int64_t rows = in.inputs.size[1];
  return {index, 0, in.lengths != nullptr ? in.lengths[index] : rows, rows,
          index * (rows / kElementwiseGroup)};
}

// One task: a sequence and a block of channels.
struct ElementwiseTask {
  const ElementwiseRecurrenceInputs* in;
  const ElementwiseRecurrenceOutputs* out;         // forward
  const ElementwiseRecurrenceGradients* gradient;  // backward
  int64_t sequence, channel, channels;
};

// CheckElementwiseRecurrence for a result that messages call `name`.
void CheckElementwiseCall(const ElementwiseRecurrenceInputs& in,
                          const TensorView& out, const char* name);

// Throws unless `view` has the shape of the inputs, the dtype of `like`, and
// data.
void CheckElementwiseTensor(const ElementwiseRecurrenceInputs& in,
                            const TensorView& view, const TensorView& like,
                            const char* name);

// f(task) for every sequence and block of channels.
template <class F>
void ForElementwiseTasks(const ElementwiseTask& call, Executor& executor,
                         const F& f) {
  // Numbers below which waking workers costs more than it saves (20 us).
  constexpr int64_t kInlineWork = 32768;
  const ElementwiseRecurrenceInputs& in = *call.in;
  const int64_t width = in.inputs.size[3];
  const int64_t blocks =
      (width + kElementwiseChannels - 1) / kElementwiseChannels;
  const auto run = [&](int64_t index, int) {
    ElementwiseTask task = call;
    task.sequence = index / blocks;
    task.channel = index % blocks * kElementwiseChannels;
    task.channels = std::min(kElementwiseChannels, width - task.channel);
    f(task);
  };
  const int64_t tasks = in.SequenceCount() * blocks;
  if (in.inputs.size[0] * in.inputs.size[1] * width < kInlineWork) {
    SerialExecutor().ParallelFor(tasks, run);
  } else {
    executor.ParallelFor(tasks, run);
  }
}

}  // namespace tarn
