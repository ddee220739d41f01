#include "torch_nn/state/lengths.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn::nn {

void CheckLengths(const char* where, const torch::Tensor& lengths,
                  const torch::Tensor& rows) {
  if (!lengths.defined()) return;
  const std::string name = StrCat(where, ": lengths");
  const int64_t batch = rows.size(0), size = rows.size(1);
  if (lengths.dim() != 1 || lengths.size(0) != batch) {
    throw ShapeError(name, StrCat("[", batch, "]"),
                     ShapeText(lengths.sizes().vec()));
  }
  if (lengths.scalar_type() != torch::kInt64) {
    throw DTypeError(name, "int64", c10::toString(lengths.scalar_type()));
  }
  if (batch == 0) return;
  const auto [least, largest] = torch::aminmax(lengths);
  const int64_t low = least.item<int64_t>(), high = largest.item<int64_t>();
  if (low >= 0 && high <= size) return;
  throw ArgumentError(name, StrCat("lengths in [0, ", size, "]"),
                      StrCat(low < 0 ? low : high));
}

torch::Tensor PrefixMask(const char* where, const torch::Tensor& lengths,
                         const torch::Tensor& rows) {
  CheckLengths(where, lengths, rows);
  if (!lengths.defined()) return {};
  const torch::Tensor mask =
      torch::arange(rows.size(1), lengths.options()).unsqueeze(0) <
      lengths.unsqueeze(1);
  return mask.to(rows.device());
}

torch::Tensor Kept(const torch::Tensor& x, const torch::Tensor& kept) {
  if (!kept.defined() || !x.defined()) return x;
  torch::Tensor mask = kept;
  while (mask.dim() < x.dim()) mask = mask.unsqueeze(-1);
  return torch::where(mask, x, torch::zeros({}, x.options()));
}

}  // namespace tarn::nn
