// For tests: whether the gradient of gates keeps its digits, however strong
// they are.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/recurrence/test_problem.h"

namespace tarn::testing {

// Sizes between gates that forget nothing over 256 tokens and exact resets.
constexpr double kGateSizes[] = {1e-3, 0.1, 1, 10, 20, 40, 80, 1e4};

// 4,096 tokens whose gates are between -1.5 and -0.5 of a size, none of them
// weak: the gradient is as small as they are strong.
inline RecurrentShape DigitsShape() { return {4096, 1, 1, 8, 8}; }
inline void SetGates(DecayProblem& p, double size) {
  std::mt19937_64 rng(17);
  std::uniform_real_distribution<double> uniform(0.5, 1.5);
  for (double& g : p.gates) g = static_cast<float>(-size * uniform(rng));
}

// Relative to the gradient's own size. Factors are 2 ulp and sums have some 300
// terms; below -87 a factor is 0 and so is its gradient, where the reference
// has less than 1e-37.
inline void ExpectGateDigits(const std::vector<double>& got,
                             const std::vector<double>& ref,
                             const std::string& what, double bound = 1e-5) {
  ASSERT_EQ(got.size(), ref.size()) << what;
  double error = 0, size = 0;
  for (size_t i = 0; i < ref.size(); ++i) {
    error += (got[i] - ref[i]) * (got[i] - ref[i]);
    size += ref[i] * ref[i];
  }
  EXPECT_LE(std::sqrt(error), bound * std::sqrt(size) + 1e-36) << what;
}

}  // namespace tarn::testing
