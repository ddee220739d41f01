// One sequence whose tokens are split into consecutive pieces on several ranks:
// every rank runs the whole model on its piece, and a mixer needs of the others
// only the state that the earlier pieces leave. For a recurrence with a state
// of fixed size that is one small exchange a layer, whatever the length; a
// cache of keys and values grows with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "torch_nn/torch.h"

namespace tarn::nn {

/// How the ranks of a sequence exchange numbers. Every rank makes the same
/// calls in the same order.
class SequenceRanks {
 public:
  virtual ~SequenceRanks() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// own [n], n the same on all ranks -> [size, n]. Differentiable: the
  /// gradient of `own` is the sum over the ranks of those of its row.
  virtual torch::Tensor Gather(const torch::Tensor& own) const = 0;
};

/// `tokens` tokens over the ranks: rank r holds [Begin(r), Begin(r + 1)), a
/// piece as long as any other or one token shorter. A value; `ranks` outlives
/// it.
struct SequenceCut {
  const SequenceRanks* ranks = nullptr;
  int64_t tokens = 0;

  int64_t Begin(int64_t rank) const {
    const int64_t each = tokens / ranks->size(), more = tokens % ranks->size();
    return rank * each + std::min(rank, more);
  }
  int64_t begin() const { return Begin(ranks->rank()); }
  int64_t end() const { return Begin(ranks->rank() + 1); }
  int64_t size() const { return end() - begin(); }
  /// The piece here of rows [B, tokens, ...]: a view.
  torch::Tensor Piece(const torch::Tensor& rows) const {
    return rows.slice(1, begin(), end());
  }

  /// own: tensors that have these shapes on all ranks. Returns those of the
  /// earlier ranks, the first rank first, or `initial` where there is none;
  /// differentiable. One exchange. What it returns has to be used on every
  /// rank: the first, which needs nothing of the others, receives their
  /// gradients through it.
  std::vector<std::vector<torch::Tensor>> Earlier(
      const std::vector<torch::Tensor>& own,
      const std::vector<torch::Tensor>& initial) const;
  /// rows [B, size(), ...] -> the rows of the `last` tokens in front of this
  /// piece, [B, min(begin(), last), ...]; differentiable, and to be used on
  /// every rank. One exchange of the rows of all ranks, or of as many as `last`
  /// where no piece is shorter than that.
  torch::Tensor EarlierRows(const torch::Tensor& rows, int64_t last) const;

 private:
  torch::Tensor LastRowsBefore(const torch::Tensor& rows, int64_t last) const;
};

}  // namespace tarn::nn
