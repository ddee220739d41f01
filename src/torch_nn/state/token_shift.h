// The row before the next one, which the states of RWKV's mixers and of its
// channel mix carry; ops::TokenShift mixes each row with the one before it.
#pragma once

#include "torch_nn/state/sequence_cut.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// The row in front of a piece of a cut sequence, [B, D]: the last one of
/// the rank before, zeros on the first. One exchange; differentiable.
torch::Tensor RowBeforePiece(const torch::Tensor& rows, const SequenceCut& cut);

/// The last of `added` [B] int64 rows of x after `before` [B, D], or that row
/// itself: [B, D] in the dtype of `before`.
torch::Tensor LastRow(const torch::Tensor& x, const torch::Tensor& before,
                      const torch::Tensor& added);

}  // namespace tarn::nn
