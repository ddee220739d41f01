#include "torch_nn/state/token_shift.h"

#include <algorithm>

namespace tarn::nn {

torch::Tensor NoRowBefore(const torch::Tensor& rows) {
  return torch::zeros({rows.size(0), 1, rows.size(2)}, rows.options());
}

// Zeros come before the first rank's rows, which stay in the graph.
torch::Tensor RowBeforePiece(const torch::Tensor& rows,
                             const SequenceCut& cut) {
  const torch::Tensor before =
      torch::cat({NoRowBefore(rows), cut.EarlierRows(rows, 1)}, 1);
  return before.slice(1, before.size(1) - 1, before.size(1));
}

torch::Tensor StepBack(const torch::Tensor& x, const torch::Tensor& before) {
  const int64_t seq_len = x.size(1);
  return torch::cat({before, x.slice(1, 0, std::max<int64_t>(seq_len - 1, 0))},
                    1)
             .slice(1, 0, seq_len) -
         x;
}

// Row `added` of the earlier row and the new ones.
torch::Tensor LastRow(const torch::Tensor& x, const torch::Tensor& before,
                      const torch::Tensor& added) {
  const torch::Tensor rows =
      torch::cat({before, x.to(before.scalar_type())}, 1);
  const torch::Tensor last =
      added.to(x.device()).view({-1, 1, 1}).expand({-1, 1, x.size(2)});
  return rows.gather(1, last).squeeze(1);
}

}  // namespace tarn::nn
