// What the tests of single passes over rows share: a test for each SIMD target,
// rounded numbers, slopes by differences, and the same bits on any executor.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/executor.h"
#include "kernels/linear_attention/test_problem.h"
#include "kernels/reversed_executor.h"
#include "kernels/simd_target.h"

namespace tarn::testing {

/// Runs once for each SIMD target, whose name is the parameter.
class SimdTargetTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

/// Normal numbers that the dtype has.
inline std::vector<double> RandomOf(DType dtype, int64_t n,
                                    std::mt19937_64& rng, double size = 1.0) {
  std::vector<double> x = Random(n, rng, size);
  for (double& v : x) v = Round(v, dtype);
  return x;
}

/// The most that one rounding to the dtype changes a number by, relative to it;
/// 0 for float32, whose roundings are among the errors of the arithmetic.
inline double RoundingUnit(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0;
}

/// Expects results to be `wanted`, computed in float32 and rounded once; floor:
/// absolute error in addition.
inline void ExpectRounded(const std::vector<double>& got,
                          const std::vector<double>& wanted, DType dtype,
                          double floor, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double room =
        (1.001 * RoundingUnit(dtype) + 1e-6) * std::abs(wanted[i]) + floor;
    ASSERT_LE(std::abs(got[i] - wanted[i]), room) << what << ", entry " << i;
  }
}

/// Adds up a result times the gradient of it, for ExpectSlopes.
inline double Dot(const std::vector<double>& out,
                  const std::vector<double>& grad_out) {
  double sum = 0;
  for (size_t i = 0; i < out.size(); ++i) sum += out[i] * grad_out[i];
  return sum;
}

/// Expects dx to be the slopes of value() by the entries of x, which it reads,
/// by central differences.
template <typename F>
void ExpectSlopes(const F& value, std::vector<double>& x,
                  const std::vector<double>& dx, double room = 1e-7) {
  ASSERT_EQ(x.size(), dx.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i], step = 1e-6;
    x[i] = kept + step;
    const double up = value();
    x[i] = kept - step;
    const double down = value();
    x[i] = kept;
    EXPECT_NEAR(dx[i], (up - down) / (2 * step), room) << "entry " << i;
  }
}

/// Expects run(executor, spread) to give `one` on 1, 2, 3 and 8 threads with
/// rows spread out, and dense with the tasks in reverse.
template <typename Outcome, typename F>
void ExpectSameBits(const Outcome& one, const F& run) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(one == run(pool, true)) << threads << " threads";
  }
  ReversedExecutor reversed;
  EXPECT_TRUE(one == run(reversed, false)) << "in reverse";
}

}  // namespace tarn::testing
