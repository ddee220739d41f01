#include "kernels/activation/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "kernels/simd_target.h"

namespace tarn {
namespace {

void Elu1Row(const float* x, int64_t width, float* y) {
  FeatureMapRow(FeatureMap::kElu1, x, width, y);
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Kernel = void (*)(const float*, int64_t, float*);
using Reference = std::function<double(double)>;

class ActivationTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

// x from a grid over [-12, 12] in rows of every odd width; |error| <=
// bound * (1 + |x|). Also: nothing after the row is touched, in place works.
void ExpectMatches(Kernel kernel, const Reference& reference, double bound) {
  for (const int64_t width : {1, 3, 7, 15, 16, 17, 33, 1001}) {
    std::vector<float> x(width), y(width + 1, 77.0f);
    for (int64_t i = 0; i < width; ++i) {
      x[i] = width == 1 ? -0.7f
                        : -12.0f + 24.0f * static_cast<float>(i) /
                                       static_cast<float>(width - 1);
    }
    kernel(x.data(), width, y.data());
    for (int64_t i = 0; i < width; ++i) {
      ASSERT_NEAR(reference(x[i]), y[i], bound * (1 + std::fabs(x[i])))
          << "x = " << x[i];
    }
    EXPECT_EQ(77.0f, y[width]);
    kernel(x.data(), width, x.data());
    EXPECT_EQ(0, std::memcmp(x.data(), y.data(), width * sizeof(float)));
  }
}

TEST_P(ActivationTest, Relu) {
  ExpectMatches(
      ReluRow, [](double x) { return x > 0 ? x : 0; }, 0);
  const std::vector<float> x = {kNaN, -kInfinity, kInfinity, -0.0f};
  std::vector<float> y(4);
  ReluRow(x.data(), 4, y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(0.0f, y[1]);
  EXPECT_EQ(kInfinity, y[2]);
  EXPECT_EQ(0.0f, y[3]);
}

TEST_P(ActivationTest, GeluIsTheExactForm) {
  // The bound is the formula's error of 1.5e-7 / 2, and as much again for
  // rounding.
  ExpectMatches(
      GeluRow, [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); },
      3e-7);
  const std::vector<float> x = {kNaN, kInfinity, 1e30f, -1e30f, 0.0f};
  std::vector<float> y(5);
  GeluRow(x.data(), 5, y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(kInfinity, y[1]);
  EXPECT_EQ(1e30f, y[2]);
  EXPECT_EQ(0.0f, y[3]);
  EXPECT_EQ(0.0f, y[4]);
}

TEST_P(ActivationTest, GeluTanh) {
  ExpectMatches(
      GeluTanhRow,
      [](double x) {
        const double z = std::sqrt(2 / std::acos(-1.0));
        return x / 2 * (1 + std::tanh(z * (x + 0.044715 * x * x * x)));
      },
      3e-7);
  const std::vector<float> x = {kNaN, kInfinity, 1e30f, -1e30f, 0.0f};
  std::vector<float> y(5);
  GeluTanhRow(x.data(), 5, y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(kInfinity, y[1]);
  EXPECT_EQ(1e30f, y[2]);
  EXPECT_EQ(0.0f, y[3]);
  EXPECT_EQ(0.0f, y[4]);
}

TEST_P(ActivationTest, Elu1) {
  ExpectMatches(
      Elu1Row, [](double x) { return x > 0 ? x + 1 : std::exp(x); }, 2e-7);
  const std::vector<float> x = {kNaN, -kInfinity, -90.0f};
  std::vector<float> y(3);
  Elu1Row(x.data(), 3, y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(0.0f, y[1]);
  EXPECT_GE(y[2], 0.0f);
  EXPECT_LT(y[2], 1e-38f);
}

TEST_P(ActivationTest, AddToRow) {
  Rng rng(1);
  for (const int64_t width : {1, 15, 16, 17, 100}) {
    std::vector<float> x(width), y(width + 1, 5.0f), want(width + 1, 5.0f);
    for (int64_t i = 0; i < width; ++i) {
      x[i] = static_cast<float>(rng.Normal());
      y[i] = static_cast<float>(rng.Normal());
      want[i] = x[i] + y[i];
    }
    AddToRow(x.data(), width, y.data());
    EXPECT_EQ(want, y);
  }
}

TEST_P(ActivationTest, ScaleAndAddScaledRow) {
  Rng rng(1);
  for (const int64_t width : {0, 1, 15, 16, 17, 100}) {
    const float kept = 5.0f;
    std::vector<float> x(width), y(width + 1, kept), scaled(width + 1, kept);
    std::vector<double> want(width);
    for (int64_t i = 0; i < width; ++i) {
      x[i] = static_cast<float>(rng.Normal());
      y[i] = static_cast<float>(rng.Normal());
      scaled[i] = x[i];
      want[i] = double{y[i]} + 0.3f * double{x[i]};
    }
    AddScaledRow(x.data(), 0.3f, width, y.data());
    ScaleRow(0.3f, width, scaled.data());
    for (int64_t i = 0; i < width; ++i) {
      EXPECT_NEAR(want[i], y[i], 1e-6) << i;
      EXPECT_EQ(0.3f * x[i], scaled[i]) << i;
    }
    EXPECT_EQ(kept, y[width]);
    EXPECT_EQ(kept, scaled[width]);
  }
}

TEST_P(ActivationTest, AnEntryHasTheSameBitsWhereverItStands) {
  Rng rng(2);
  std::vector<float> x(53);
  for (float& v : x) v = static_cast<float>(2 * rng.Normal());
  for (const Kernel kernel : {ReluRow, GeluRow, GeluTanhRow, Elu1Row}) {
    std::vector<float> whole(x.size());
    kernel(x.data(), static_cast<int64_t>(x.size()), whole.data());
    for (size_t i = 0; i < x.size(); ++i) {
      float alone;
      kernel(&x[i], 1, &alone);
      EXPECT_EQ(0, std::memcmp(&alone, &whole[i], 4)) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ActivationTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn
