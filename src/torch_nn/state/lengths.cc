#include "torch_nn/state/lengths.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn::nn {

torch::Tensor PrefixMask(const char* where, const torch::Tensor& lengths,
                         int64_t batch, int64_t size) {
  if (!lengths.defined()) return {};
  const std::string name = StrCat(where, ": lengths");
  if (lengths.dim() != 1 || lengths.size(0) != batch) {
    throw ShapeError(name, StrCat("[", batch, "]"),
                     ShapeText(lengths.sizes().vec()));
  }
  if (lengths.scalar_type() != torch::kInt64) {
    throw DTypeError(name, "int64", c10::toString(lengths.scalar_type()));
  }
  if (batch > 0) {
    const auto [least, largest] = torch::aminmax(lengths);
    const int64_t low = least.item<int64_t>(), high = largest.item<int64_t>();
    if (low < 0 || high > size) {
      throw ArgumentError(name, StrCat("lengths in [0, ", size, "]"),
                          StrCat(low < 0 ? low : high));
    }
  }
  return torch::arange(size, lengths.options()).unsqueeze(0) <
         lengths.unsqueeze(1);
}

}  // namespace tarn::nn
