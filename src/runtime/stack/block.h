// Rows of tokens on their way through a stack of layers: what a causal decoder
// and an encoder have in common. Everything here treats each row by itself or
// is a matrix product over rows, which gives a row the same bits in any block;
// attention is left to Forward and Encoder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/model_config.h"
#include "core/executor.h"
#include "kernels/aligned_buffer.h"
#include "kernels/matmul/matmul.h"
#include "runtime/mixer/mixer_block.h"
#include "runtime/stack/position_rows.h"
#include "runtime/weights/weights.h"

namespace tarn {

/// to = norm(from), [d_model]; they may be the same.
void NormRow(const ModelConfig& config, const NormWeights& norm,
             const float* from, float* to);

/// Owns the scratch of its rows and keeps it from call to call. One thread at a
/// time; config, weights and executor must outlive it.
class Block : public MixerBlock {
 protected:
  Block(const ModelConfig& config, const StackWeights& weights,
        Executor& executor);

  void ClearRows();
  void AddRows(std::span<const int32_t> tokens, int64_t position);
  /// Makes room for rows(); allocates when there are more than ever before.
  void GrowScratch(int64_t most);
  /// Makes room for at least `floats` floats of scratch for each worker.
  void GrowWorkerScratch(int64_t floats);
  /// Gives back the scratch of a long sequence.
  void Shrink();

  void EmbedRows();
  /// to = W before(x); an empty W is the identity.
  void Project(const PartNorms& norms, const WeightMatrix& w, Rows to);
  /// x = closing(x + residual_factor after(W out)); an empty W is the identity.
  void AddOut(const PartNorms& norms, const WeightMatrix& w);
  /// x = closing(x + residual_factor after(FFN(before(x)))); nothing for a
  /// layer without a part.
  void FeedForward(const LayerWeights& w, int64_t layer);
  /// logits times logit_factor under logit_softcap, in place.
  void ScaleLogits(float* logits) const;
  /// The row of the stack's output, after the final norm if there is one.
  void FinalRow(int64_t row, float* out) const { FinalOf(x_[row], out); }
  /// The same of a row of floats.
  void FinalOf(const float* x, float* out) const;
  void Norm(const NormWeights& norm, const float* from, float* to) const {
    NormRow(config_, norm, from, to);
  }
  void CopyRows(Rows from, int64_t count, int64_t width, Rows to);
  int64_t passed_width() const { return passed_width_; }

  const ModelConfig& config_;
  const StackWeights& weights_;
  int64_t in_width_ = 0, out_width_ = 0;  // of the widest mixer
  int64_t extra_width_ = 0;               // floats it keeps for a row
  int64_t passed_width_ = 0;              // floats of a row passed on
  int64_t hidden_width_ = 0;              // of the widest feed-forward part
  int64_t piece_rows_ = 1;  // rows that go through a layer at a time

  std::vector<int32_t> tokens_;     // [rows]
  std::vector<int64_t> positions_;  // [rows]
  std::vector<Segment> segments_;

  Rows x_;       // [d_model]
  Rows normed_;  // [d_model], of a piece
  Rows hidden_;  // [hidden_width_], of a piece
  Rows branch_;  // [d_model], of a piece, where sums are not plain

 private:
  void AssignScratch(int64_t rows);
  void Embed(int64_t row);
  void Close(const PartNorms& norms);
  // Rows [begin, begin + count) as a part reads them.
  Rows Input(const PartNorms& norms, int64_t begin, int64_t count);
  // x += residual_factor after(branch) for those rows.
  void AddBranch(const PartNorms& norms, int64_t begin, int64_t count);
  // f(begin, count) for the rows, a piece at a time.
  template <typename F>
  void ForPieces(const F& f) {
    for (int64_t begin = 0; begin < rows(); begin += piece_rows_) {
      f(begin, std::min(piece_rows_, rows() - begin));
    }
  }

  PositionRows position_rows_;
  int64_t row_floats_ = 0;  // scratch of one row
  AlignedBuffer<float> scratch_, worker_memory_;
  int64_t scratch_rows_ = 0;
};

}  // namespace tarn
