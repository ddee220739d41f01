#include "kernels/gate_rows/gate_rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gate_rows/row_checks.h"
#include "kernels/row_tests.h"

namespace tarn::testing {
namespace {

// Definitions, in double. exp(-|x|) is exact to 1e-16 here, so nothing cancels
// that shows in float32.
double Sigma(double x) { return 1 / (1 + std::exp(-x)); }
double Softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
double Silu(double x) { return std::isinf(x) && x < 0 ? 0 : x * Sigma(x); }

class GateRowsTest : public SimdTargetTest {};

TEST_P(GateRowsTest, Activations) {
  ExpectRow("silu", SiluRow, Silu);
  ExpectRow("sigmoid", SigmoidRow, Sigma);
  ExpectRow("square relu", SquareReluRow,
            [](double x) { return x > 0 ? x * x : 0; });
  ExpectRow("tanh", TanhRow, [](double x) { return std::tanh(x); });
  ExpectRow(
      "softplus",
      [](const float* x, int64_t n, float* y) {
        SoftplusRow(x, nullptr, n, y);
      },
      Softplus);
}

INSTANTIATE_TEST_SUITE_P(Targets, GateRowsTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn::testing
