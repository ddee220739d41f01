// The forward pass over one block of tokens, which may belong to several
// sequences. A block's projections are matrix products over all its rows; the
// recurrence runs token by token, head by head; everything else row by row.
// Each of these gives a row the same bits in any company, hence so does the
// whole pass: any split of a prompt, any batch, any thread count.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/config.h"
#include "core/executor.h"
#include "kernels/aligned_buffer.h"
#include "kernels/matmul/matmul.h"
#include "runtime/position_rows.h"
#include "runtime/sequence_state.h"
#include "runtime/weights.h"

namespace tarn {

/// Owns the scratch of a block and keeps it from call to call: a block no
/// larger than an earlier one allocates nothing. One thread at a time; config,
/// weights and executor must outlive it.
class Forward {
 public:
  Forward(const ModelConfig& config, const Weights& weights,
          Executor& executor);

  /// Starts a new block.
  void Clear();
  /// Appends tokens of one sequence (each sequence once a block) as far as the
  /// block has room; returns how many. Tokens must be in [0, vocab_size), and
  /// a softmax state must have Reserve()d their positions.
  int64_t Add(SequenceState& state, std::span<const int32_t> tokens);
  int64_t rows() const { return static_cast<int64_t>(tokens_.size()); }
  bool full() const { return rows() == max_rows_; }
  /// Asks for the logits of a row: vocab_size floats to `out`.
  void WantLogits(int64_t row, float* out);
  /// Runs the block; states advance by the tokens they gave.
  void Run();

 private:
  struct Segment {  // a run of rows of one sequence
    SequenceState* state;
    int64_t row, count;
  };
  struct Rows {  // [rows, width], `stride` floats apart
    float* data = nullptr;
    int64_t stride = 0;
    float* operator[](int64_t row) const { return data + row * stride; }
  };

  void Prepare();
  void AssignScratch(int64_t rows);
  void Embed(int64_t row);
  void EmbedRows();
  void RunLayer(int64_t layer);
  void Attend(int64_t layer);
  void RotateRows();
  void RotateFeatures(int64_t row);
  void AttendLinear(int64_t layer);
  void AttendHeads(const Segment& segment, int64_t layer, int64_t head,
                   int64_t heads);
  void AttendHeadRotated(const Segment& segment, int64_t layer, int64_t head,
                         int worker);
  void Divide(const Segment& segment, int64_t head);
  void AppendToCache(const Segment& segment, int64_t layer, int64_t head);
  void AttendFull(int64_t layer);
  void RunHead();
  void Multiply(Rows x, const PackedMatrix& w, Rows y,
                MatMulFinish finish = MatMulFinish::kStore);
  // f(task, worker) for every task, in parallel when the whole is worth it.
  template <typename F>
  void ForTasks(int64_t tasks, int64_t ns_per_task, const F& f) {
    // Below 20 us, waking workers costs more than it saves.
    constexpr int64_t kInlineNs = 20000;
    if (executor_.width() == 1 || tasks * ns_per_task < kInlineNs) {
      for (int64_t task = 0; task < tasks; ++task) f(task, 0);
    } else {
      executor_.ParallelFor(tasks, f);
    }
  }
  // f(row) for every row of the block, likewise.
  template <typename F>
  void ForRows(int64_t ns_per_row, const F& f) {
    ForTasks(rows(), ns_per_row, [&f](int64_t row, int) { f(row); });
  }

  const ModelConfig& config_;
  const Weights& weights_;
  Executor& executor_;
  const int64_t key_width_, value_width_;  // H K, H V
  const bool rotated_features_;            // rotary, after the feature map
  PositionRows position_rows_;
  int64_t max_rows_;
  int64_t row_floats_ = 0;  // scratch of one row

  std::vector<int32_t> tokens_;     // [rows]
  std::vector<int64_t> positions_;  // [rows]
  std::vector<Segment> segments_;
  std::vector<int64_t> head_rows_;  // rows with logits
  std::vector<float*> head_out_;    // and where they go

  AlignedBuffer<float> scratch_;
  int64_t scratch_rows_ = 0;
  Rows x_, normed_;    // [d_model]
  Rows qkv_;           // [H K | H K | H V]
  Rows attended_;      // [H V]
  Rows hidden_;        // [d_ff]
  Rows places_;        // of sinusoidal and rotary: position_rows.h
  Rows features_;      // [H K | H K] phi(q), phi(k) before rotation
  Rows denominators_;  // [H], rotated features
  AlignedBuffer<float> worker_scratch_;  // [workers, worker_floats_]
  int64_t worker_floats_ = 0;            // scores, or a normalizer nobody reads
};

}  // namespace tarn
