#include "torch_nn/state/sequence_cut.h"

namespace tarn::nn {

std::vector<std::vector<torch::Tensor>> SequenceCut::Earlier(
    const std::vector<torch::Tensor>& own,
    const std::vector<torch::Tensor>& initial) const {
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& one : own) flat.push_back(one.flatten());
  const torch::Tensor all = ranks->Gather(torch::cat(flat));  // [size, n]
  const auto tensors_of = [&](int64_t rank) {
    std::vector<torch::Tensor> tensors;
    int64_t at = 0;
    for (const torch::Tensor& one : own) {
      tensors.push_back(
          all[rank].slice(0, at, at + one.numel()).view(one.sizes()));
      at += one.numel();
    }
    return tensors;
  };
  std::vector<std::vector<torch::Tensor>> earlier;
  for (int64_t rank = 0; rank < ranks->rank(); ++rank) {
    earlier.push_back(tensors_of(rank));
  }
  if (!earlier.empty()) return earlier;
  // The values of `initial`, in a graph that leads to the exchange.
  earlier.push_back(tensors_of(0));
  const torch::Tensor always =
      torch::ones({}, all.options().dtype(torch::kBool));
  for (size_t i = 0; i < initial.size(); ++i) {
    earlier[0][i] = torch::where(always, initial[i], earlier[0][i]);
  }
  return earlier;
}

// Every rank gives its last rows, and takes those of the rank before it.
torch::Tensor SequenceCut::LastRowsBefore(const torch::Tensor& rows,
                                          int64_t last) const {
  const torch::Tensor own = rows.slice(1, rows.size(1) - last);
  const torch::Tensor all = ranks->Gather(own.flatten());
  const int64_t rank = ranks->rank();
  return all[std::max<int64_t>(rank - 1, 0)]
      .view(own.sizes())
      .slice(1, 0, rank == 0 ? 0 : last);
}

torch::Tensor SequenceCut::EarlierRows(const torch::Tensor& rows,
                                       int64_t last) const {
  if (last <= tokens / ranks->size()) return LastRowsBefore(rows, last);
  // Ranks with a token less fill up; the filling is cut off again.
  const int64_t most = Begin(1) - Begin(0);
  std::vector<int64_t> filling = rows.sizes().vec();
  filling[1] = most - rows.size(1);
  const torch::Tensor even =
      filling[1] == 0
          ? rows
          : torch::cat({rows, torch::zeros(filling, rows.options())}, 1);
  const torch::Tensor all = ranks->Gather(even.flatten());
  std::vector<torch::Tensor> pieces = {
      all[0].view(even.sizes()).slice(1, 0, 0)};
  for (int64_t rank = 0; rank < ranks->rank(); ++rank) {
    pieces.push_back(all[rank]
                         .view(even.sizes())
                         .slice(1, 0, Begin(rank + 1) - Begin(rank)));
  }
  return torch::cat(pieces, 1).slice(1, std::max<int64_t>(begin() - last, 0));
}

}  // namespace tarn::nn
