// The ranks of a sequence that is cut over them, by the exchanges of Ranks.
#pragma once

#include "torch_nn/state/sequence_cut.h"
#include "train/distributed/ranks.h"

namespace tarn::train {

/// Outlives every graph made with it, and `ranks` outlives it. One thread at a
/// time.
class RankedSequence final : public nn::SequenceRanks {
 public:
  explicit RankedSequence(Ranks& ranks) : ranks_(ranks) {}
  int64_t rank() const override { return ranks_.rank(); }
  int64_t size() const override { return ranks_.size(); }
  torch::Tensor Gather(const torch::Tensor& own) const override;
  /// Adds `values` up in place over these ranks, with the same bits on each.
  void Sum(std::span<double> values) const { ranks_.Sum(values); }
  double seconds() const { return ranks_.seconds(); }
  int64_t bytes() const { return ranks_.bytes(); }

 private:
  Ranks& ranks_;
};

/// The ranks of a run.
struct RunRanks {
  Ranks& all;
  // The ranks that share the tokens of this rank's rows: consecutive ones of
  // all. Null: every rank has whole rows.
  const RankedSequence* sequence = nullptr;

  /// Seconds spent on numbers of other ranks so far.
  double seconds() const {
    return all.seconds() + (sequence == nullptr ? 0 : sequence->seconds());
  }

  /// Whether this rank works on held-out data: the first, and those that share
  /// the tokens of its rows.
  bool evaluates() const {
    return all.rank() < (sequence == nullptr ? 1 : sequence->size());
  }
  /// The rows of this rank: those that share tokens have the same.
  RowShare RowsOf(int64_t rows) const {
    const int64_t pieces = sequence == nullptr ? 1 : sequence->size();
    return ShareOfRows(rows, all.rank() / pieces, all.size() / pieces);
  }
};

}  // namespace tarn::train
