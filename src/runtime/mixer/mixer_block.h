// The rows of a block as a mixer sees them, and the workers it may use.
#pragma once

#include <cstdint>
#include <vector>

#include "core/executor.h"
#include "runtime/state/sequence_state.h"

namespace tarn {

/// One vector more than the width: rows 4096 bytes apart would share L1 sets.
constexpr int64_t RowStride(int64_t width) {
  return (width + 15) / 16 * 16 + 16;
}

/// [rows, width], `stride` floats apart.
struct Rows {
  float* data = nullptr;
  int64_t stride = 0;
  float* operator[](int64_t row) const { return data + row * stride; }
  Rows From(int64_t row) const { return {(*this)[row], stride}; }
  /// The rows' columns from `at` on.
  Rows Columns(int64_t at) const { return {data + at, stride}; }
};

/// Rows of one head: row i at data + i * stride.
struct HeadRows {
  float* data = nullptr;
  int64_t stride = 0;
  int64_t count = 0;
  float* operator[](int64_t i) const { return data + i * stride; }
};

/// A run of rows of one sequence. A causal stack carries its state; an encoder
/// has none, and the run is the whole sequence.
struct Segment {
  SequenceState* state = nullptr;
  int64_t row = 0, count = 0;
};

/// Used by one thread at a time, except for what tasks of ForTasks and shares
/// of a step may touch: their own rows and their worker's scratch. A copy sees
/// the same rows.
class MixerBlock {
 public:
  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  int workers() const { return executor_.width(); }
  /// The executor for kernels that split their work themselves.
  Executor& executor() { return executor_; }

  Rows in;      // [in().outputs()] of the mixer: what its first product made
  Rows out;     // [out().inputs()]: what its last product reads
  Rows extra;   // [row_floats()] of the mixer
  Rows passed;  // what the first layer that passes rows on made for the others
  Rows places;  // cosines and sines of rotary positions, half RotaryWidth()
                // each, in the model's table and those of rotary_bases
  const std::vector<int64_t>& positions;  // [rows]
  const std::vector<Segment>& segments;

  /// A mixer that reads the row before each row keeps the last row of a
  /// sequence as tensor number `tensor` of the layer's state. RowBefore gives
  /// the row before `row` in its sequence, one of `from` or the one in the
  /// state. KeepLastRows puts the last row of every segment into the state,
  /// once all of them are read.
  const float* RowBefore(Rows from, int64_t row, int64_t layer,
                         int64_t tensor) const;
  void KeepLastRows(Rows from, int64_t layer, int64_t tensor) const;

  float* Scratch(int worker) {
    return worker_scratch_ + worker * worker_floats_;
  }

  // f(task, worker) for every task, in parallel when the whole is worth it.
  template <typename F>
  void ForTasks(int64_t tasks, int64_t ns_per_task, const F& f) {
    // Below 20 us, waking workers costs more than it saves.
    constexpr int64_t kInlineNs = 20000;
    if (tasks * ns_per_task < kInlineNs) {
      for (int64_t task = 0; task < tasks; ++task) f(task, 0);
    } else {
      executor_.ParallelFor(tasks, f);
    }
  }
  // f(row) for every row of the block, in the same way.
  template <typename F>
  void ForRows(int64_t ns_per_row, const F& f) {
    ForTasks(rows(), ns_per_row, [&f](int64_t row, int) { f(row); });
  }

 protected:
  /// The vectors are the owner's and must outlive the block.
  MixerBlock(Executor& executor, const std::vector<int64_t>& block_positions,
             const std::vector<Segment>& block_segments)
      : positions(block_positions),
        segments(block_segments),
        executor_(executor) {}

  Executor& executor_;
  float* worker_scratch_ = nullptr;  // [workers, worker_floats_]
  int64_t worker_floats_ = 0;
};

}  // namespace tarn
