// The features' products against the kernel they stand for, in double.
#include "kernels/poly2/poly2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/rng.h"

namespace tarn {
namespace {

constexpr float kPoison = -1e30f;

std::vector<float> Features(const std::vector<float>& x) {
  const int64_t width = static_cast<int64_t>(x.size());
  std::vector<float> features(static_cast<size_t>(Poly2Width(width)) + 1,
                              kPoison);
  Poly2Row(x.data(), width, features.data());
  EXPECT_EQ(kPoison, features.back());  // not one past the end
  features.pop_back();
  return features;
}

TEST(Poly2, ProductsAreTheKernel) {
  Rng rng(1);
  for (const int64_t width : {1, 2, 3, 7, 16, 33, 64}) {
    std::vector<float> x, y;
    for (int64_t i = 0; i < width; ++i) {
      x.push_back(static_cast<float>(rng.Normal()));
      y.push_back(static_cast<float>(rng.Normal()));
    }
    double product = 0, similarity = 0, size = 0;
    for (int64_t i = 0; i < width; ++i) similarity += double{x[i]} * y[i];
    similarity /= std::sqrt(static_cast<double>(width));
    const std::vector<float> a = Features(x), b = Features(y);
    for (size_t i = 0; i < a.size(); ++i) {
      product += double{a[i]} * b[i];
      size += std::fabs(double{a[i]} * b[i]);
    }
    // Four roundings of 2^-24 in each factor.
    EXPECT_NEAR((1 + similarity) * (1 + similarity), product, 5e-7 * size)
        << width;
  }
}

TEST(Poly2, WidthsAndSpecialValues) {
  EXPECT_EQ(3, Poly2Width(1));
  EXPECT_EQ(6, Poly2Width(2));
  EXPECT_EQ(2145, Poly2Width(64));
  EXPECT_EQ((std::vector<float>{1, 0, 0, 0, 0, 0}), Features({0, 0}));
  const std::vector<float> nan =
      Features({std::numeric_limits<float>::quiet_NaN(), 1.0f});
  EXPECT_TRUE(std::isnan(nan[1]) && std::isnan(nan[3]) && std::isnan(nan[5]));
}

}  // namespace
}  // namespace tarn
