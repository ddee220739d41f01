#include "kernels/row_product/row_product_ref.h"

#include <cstddef>

namespace tarn {

std::vector<double> RowProductRef(const std::vector<float>& x, int64_t rows,
                                  const std::vector<float>& weight,
                                  const std::vector<float>& bias,
                                  int64_t outputs) {
  const int64_t inputs =
      outputs == 0 ? 0 : static_cast<int64_t>(weight.size()) / outputs;
  std::vector<double> y;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < outputs; ++n) {
      double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(n)];
      for (int64_t k = 0; k < inputs; ++k) {
        sum += static_cast<double>(x[static_cast<size_t>(m * inputs + k)]) *
               weight[static_cast<size_t>(n * inputs + k)];
      }
      y.push_back(sum);
    }
  }
  return y;
}

}  // namespace tarn
