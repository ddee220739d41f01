#include "torch_nn/state/token_shift.h"

namespace tarn::nn {

// Zeros come before the first rank's rows, which stay in the graph.
torch::Tensor RowBeforePiece(const torch::Tensor& rows,
                             const SequenceCut& cut) {
  const torch::Tensor none =
      torch::zeros({rows.size(0), 1, rows.size(2)}, rows.options());
  const torch::Tensor before = torch::cat({none, cut.EarlierRows(rows, 1)}, 1);
  return before.select(1, before.size(1) - 1);
}

// Row `added` of the earlier row and the new ones.
torch::Tensor LastRow(const torch::Tensor& x, const torch::Tensor& before,
                      const torch::Tensor& added) {
  const torch::Tensor rows =
      torch::cat({before.unsqueeze(1), x.to(before.scalar_type())}, 1);
  const torch::Tensor last =
      added.to(x.device()).view({-1, 1, 1}).expand({-1, 1, x.size(2)});
  return rows.gather(1, last).squeeze(1);
}

}  // namespace tarn::nn
