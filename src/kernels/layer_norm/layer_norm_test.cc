#include "kernels/layer_norm/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "kernels/simd_target.h"

namespace tarn {
namespace {

class LayerNormTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

std::vector<double> Reference(const std::vector<float>& x,
                              const std::vector<float>& gamma,
                              const std::vector<float>& beta, double eps) {
  double mean = 0, variance = 0;
  for (float v : x) mean += v;
  mean /= static_cast<double>(x.size());
  for (float v : x) variance += (v - mean) * (v - mean);
  variance /= static_cast<double>(x.size());
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back((x[i] - mean) / std::sqrt(variance + eps) * gamma[i] + beta[i]);
  }
  return y;
}

TEST_P(LayerNormTest, MatchesTheDoubleReference) {
  Rng rng(1);
  for (const int64_t width : {1, 2, 3, 15, 16, 17, 31, 64, 100, 257, 1000}) {
    for (const float shift : {0.0f, 30.0f}) {
      // One guard entry after the row must survive.
      std::vector<float> x(width + 1), gamma(width), beta(width), y(width + 1);
      for (float& v : x) v = static_cast<float>(rng.Normal()) + shift;
      for (float& v : gamma) v = static_cast<float>(rng.Normal());
      for (float& v : beta) v = static_cast<float>(rng.Normal());
      y[width] = 77.0f;
      LayerNormRow(x.data(), width, gamma.data(), beta.data(), 1e-5f, y.data());
      EXPECT_EQ(77.0f, y[width]);
      const std::vector<float> row(x.begin(), x.begin() + width);
      const std::vector<double> want = Reference(row, gamma, beta, 1e-5);
      // A mean of `shift` costs that many units of 2^-24 against a deviation
      // of 1 (of sqrt(eps) in a row of one).
      const double bound = (1 + shift) * (width == 1 ? 1e-4 : 2e-6);
      for (int64_t i = 0; i < width; ++i) {
        ASSERT_NEAR(want[i], y[i], bound * (1 + std::fabs(gamma[i])))
            << "width " << width << " entry " << i;
      }
      LayerNormRow(x.data(), width, gamma.data(), beta.data(), 1e-5f, x.data());
      EXPECT_EQ(0, std::memcmp(x.data(), y.data(), width * sizeof(float)));
    }
  }
}

TEST_P(LayerNormTest, EpsStandsInsideTheRoot) {
  const std::vector<float> x = {1.0f, -1.0f}, one = {1.0f, 1.0f},
                           zero = {0.0f, 0.0f};
  std::vector<float> y(2);
  LayerNormRow(x.data(), 2, one.data(), zero.data(), 3.0f, y.data());
  EXPECT_FLOAT_EQ(0.5f, y[0]);  // 1 / sqrt(1 + 3)
  EXPECT_FLOAT_EQ(-0.5f, y[1]);
}

TEST_P(LayerNormTest, NaNSpreadsOverItsRow) {
  std::vector<float> x(37, 1.0f), gamma(37, 1.0f), beta(37, 0.0f), y(37, 0.0f);
  x[36] = std::numeric_limits<float>::quiet_NaN();
  LayerNormRow(x.data(), 37, gamma.data(), beta.data(), 1e-5f, y.data());
  for (float v : y) EXPECT_TRUE(std::isnan(v));
}

INSTANTIATE_TEST_SUITE_P(Targets, LayerNormTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn
