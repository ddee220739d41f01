// The row before each row of a sequence, which RWKV's mixers and its channel
// mix read beside the row itself. What a state carries is the row before the
// next token's.
#pragma once

#include "torch_nn/state/sequence_cut.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// The row in front of the first, [B, 1, D]: zeros.
torch::Tensor NoRowBefore(const torch::Tensor& rows);
/// The row in front of a piece of a cut sequence, [B, 1, D]: the last one of
/// the rank before, zeros on the first. One exchange; differentiable.
torch::Tensor RowBeforePiece(const torch::Tensor& rows, const SequenceCut& cut);

/// x' - x for rows x [B, T, D] behind `before` [B, 1, D], x' the one before x.
torch::Tensor StepBack(const torch::Tensor& x, const torch::Tensor& before);

/// The last of `added` [B] int64 rows of x behind `before`, or that row itself:
/// [B, D] in the dtype of `before`.
torch::Tensor LastRow(const torch::Tensor& x, const torch::Tensor& before,
                      const torch::Tensor& added);

}  // namespace tarn::nn
