// Rows of tokens on their way through a stack of layers: what a causal decoder
// and an encoder have in common. Everything here treats each row by itself or
// is a matrix product over rows, which gives a row the same bits in any
// company; attention is the business of Forward and Encoder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/model_config.h"
#include "core/executor.h"
#include "kernels/aligned_buffer.h"
#include "kernels/matmul/matmul.h"
#include "runtime/stack/linear_form.h"
#include "runtime/stack/position_rows.h"
#include "runtime/weights/weights.h"

namespace tarn {

/// Owns the scratch of its rows and keeps it from call to call. One thread at a
/// time; config, weights and executor must outlive it.
class Block {
 public:
  int64_t rows() const { return static_cast<int64_t>(tokens_.size()); }

 protected:
  struct Rows {  // [rows, width], `stride` floats apart
    float* data = nullptr;
    int64_t stride = 0;
    float* operator[](int64_t row) const { return data + row * stride; }
    Rows From(int64_t row) const { return {(*this)[row], stride}; }
  };

  Block(const ModelConfig& config, const StackWeights& weights,
        Executor& executor);

  void ClearRows();
  void AddRows(std::span<const int32_t> tokens, int64_t position);
  /// Room for rows(); allocates when they are more than ever before.
  void GrowScratch(int64_t most);
  /// At least `floats` floats of scratch for each worker.
  void GrowWorkerScratch(int64_t floats);
  float* WorkerScratch(int worker) {
    return worker_scratch_.data() + worker * worker_floats_;
  }
  /// Gives back the scratch of a long sequence.
  void Shrink();

  void EmbedRows();
  /// to = W in(x), where in is the norm in pre-norm models, nothing in others.
  void Project(const NormWeights& norm, const PackedMatrix& w, Rows to);
  /// x += W attended, then the norm of post-norm models.
  void AddAttended(const NormWeights& norm, const PackedMatrix& w);
  /// x += FFN(in(x)), likewise.
  void FeedForward(const LayerWeights& w);
  /// The row of the stack's output: through the final norm, if there is one.
  void FinalRow(int64_t row, float* out) const;
  /// Turns queries and keys in qkv_ to their positions; where rotation comes
  /// after the feature map, maps them first and keeps phi in features_.
  void RotateRows();
  /// One head's query and key, where rotation comes before the feature map.
  void RotateHead(int64_t row, int64_t head);
  void Norm(const NormWeights& norm, const float* from, float* to) const;

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
  const StackWeights& weights_;
  Executor& executor_;
  const LinearForm form_;
  const int64_t key_width_, value_width_;  // H K, H V
  const bool rotated_features_;            // rotary, after the feature map
  int64_t piece_rows_ = 1;  // rows that go through a layer at a time

  std::vector<int32_t> tokens_;     // [rows]
  std::vector<int64_t> positions_;  // [rows]

  Rows x_;             // [d_model]
  Rows normed_;        // [d_model], of a piece
  Rows qkv_;           // [H K | H K | H V]
  Rows attended_;      // [H V]
  Rows hidden_;        // [d_ff], of a piece
  Rows places_;        // of sinusoidal and rotary: position_rows.h
  Rows features_;      // [H K | H K] phi(q), phi(k) before rotation
  Rows denominators_;  // [H], rotated features

 private:
  void AssignScratch(int64_t rows);
  void Embed(int64_t row);
  void RotateFeatures(int64_t row);
  void CloseSublayer(const NormWeights& norm);
  // Rows [begin, begin + count) as a sublayer reads them.
  Rows Input(const NormWeights& norm, int64_t begin, int64_t count);
  // f(begin, count) for the rows, a piece at a time.
  template <typename F>
  void ForPieces(const F& f) {
    for (int64_t begin = 0; begin < rows(); begin += piece_rows_) {
      f(begin, std::min(piece_rows_, rows() - begin));
    }
  }

  PositionRows position_rows_;
  int64_t row_floats_ = 0;  // scratch of one row
  AlignedBuffer<float> scratch_;
  int64_t scratch_rows_ = 0;
  AlignedBuffer<float> worker_scratch_;  // [workers, worker_floats_]
  int64_t worker_floats_ = 0;
};

/// One vector beyond the width: rows 4096 bytes apart would share L1 sets.
constexpr int64_t RowStride(int64_t width) {
  return (width + 15) / 16 * 16 + 16;
}

}  // namespace tarn
