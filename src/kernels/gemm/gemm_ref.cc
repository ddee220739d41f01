#include "kernels/gemm/gemm_ref.h"

namespace tarn {

std::vector<double> GemmRef(const GemmProblem& problem) {
  const auto at = [](const GemmOperand& x, int64_t i, int64_t j) {
    return static_cast<double>(x.transposed ? x.data[j * x.stride + i]
                                            : x.data[i * x.stride + j]);
  };
  std::vector<double> c;
  for (int64_t m = 0; m < problem.rows; ++m) {
    for (int64_t n = 0; n < problem.columns; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < problem.depth; ++k) {
        sum += at(problem.a, m, k) * at(problem.b, k, n);
      }
      c.push_back(sum);
    }
  }
  return c;
}

}  // namespace tarn
