#include "kernels/rms_norm/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/test_util.h"
#include "kernels/residual_norm/residual_norm.h"
#include "kernels/simd_target.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

using testing::Normals;

class RmsNormTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

std::vector<double> Reference(const std::vector<float>& x,
                              const std::vector<float>& gamma, double eps) {
  double squares = 0;
  for (float v : x) squares += double{v} * v;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + eps);
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] / root * gamma[i]);
  return y;
}

TEST_P(RmsNormTest, MatchesTheDoubleReference) {
  for (const int64_t width : {1, 2, 3, 15, 16, 17, 31, 64, 100, 257, 1000}) {
    // Rows at every misalignment of a float in a vector of four.
    for (const int64_t offset : {0, 1, 3}) {
      std::vector<float> x = Normals(offset + width, 1);
      const std::vector<float> gamma = Normals(offset + width, 2);
      // One guard entry on either side of the row must survive.
      std::vector<float> y(offset + width + 1, 77.0f);
      RmsNormRow(&x[offset], width, &gamma[offset], 1e-5f, &y[offset]);
      EXPECT_EQ(77.0f, y.back());
      if (offset > 0) {
        EXPECT_EQ(77.0f, y[offset - 1]);
      }
      const std::vector<double> want =
          Reference({x.begin() + offset, x.end()},
                    {gamma.begin() + offset, gamma.end()}, 1e-5);
      for (int64_t i = 0; i < width; ++i) {
        // A handful of roundings of 2^-24; those of the sum average out.
        ASSERT_NEAR(want[i], y[offset + i], 1e-6 * (1 + std::fabs(want[i])))
            << "width " << width << " entry " << i;
      }
      RmsNormRow(&x[offset], width, &gamma[offset], 1e-5f, &x[offset]);
      EXPECT_EQ(0, std::memcmp(&x[offset], &y[offset], width * sizeof(float)));
    }
  }
}

TEST_P(RmsNormTest, EpsStandsInsideTheRootAndNoMeanIsTaken) {
  const std::vector<float> x = {1.0f, 1.0f}, two = {2.0f, 2.0f};
  std::vector<float> y(2);
  RmsNormRow(x.data(), 2, two.data(), 3.0f, y.data());
  EXPECT_FLOAT_EQ(1.0f, y[0]);  // 2 / sqrt(1 + 3)
  EXPECT_FLOAT_EQ(1.0f, y[1]);
}

TEST_P(RmsNormTest, NaNSpreadsOverItsRow) {
  std::vector<float> x(37, 1.0f), gamma(37, 1.0f), y(37, 0.0f);
  x[36] = std::numeric_limits<float>::quiet_NaN();
  RmsNormRow(x.data(), 37, gamma.data(), 1e-5f, y.data());
  for (float v : y) EXPECT_TRUE(std::isnan(v));
}

// What the runtime computes row by row is what training computed.
TEST_P(RmsNormTest, HasTheBitsOfTheTrainingPass) {
  SerialExecutor serial;
  for (const int64_t width : {1, 17, 128, 300}) {
    const std::vector<float> x = Normals(width, 3), gamma = Normals(width, 4);
    std::vector<float> row(width), pass(width), inverse(1);
    RmsNormRow(x.data(), width, gamma.data(), 1e-5f, row.data());
    ResidualNormTensors t;
    t.x = x.data();
    t.gamma = gamma.data();
    t.y = pass.data();
    t.inverse = inverse.data();
    ResidualNormForward({1e-5, {}, NormKind::kRms}, 1, width, t, serial);
    EXPECT_EQ(0, std::memcmp(row.data(), pass.data(), width * sizeof(float)));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RmsNormTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn
