#include "kernels/rotary/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

#include "core/rng.h"
#include "kernels/positions/positions.h"
#include "kernels/simd_target.h"

namespace tarn {
namespace {

class RotaryTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(RotaryTest, TurnsPairsAsComplexNumbers) {
  Rng rng(1);
  for (const int64_t d_key : {2, 6, 16, 32, 34, 64, 100}) {
    const int64_t heads = 3, half = d_key / 2, position = 12345;
    std::vector<float> cos(half), sin(half);
    RotaryRow(position, d_key, 10000.0, cos.data(), sin.data());
    std::vector<float> row(heads * d_key + 1, 77.0f);
    for (int64_t i = 0; i < heads * d_key; ++i) {
      row[i] = static_cast<float>(rng.Normal());
    }
    const std::vector<float> before = row;
    RotateRow(cos.data(), sin.data(), heads, d_key, row.data());
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            position * std::pow(10000.0, -2.0 * i / static_cast<double>(d_key));
        const float* from = before.data() + h * d_key;
        const float* to = row.data() + h * d_key;
        const std::complex<double> want =
            std::complex<double>(from[i], from[i + half]) *
            std::polar(1.0, angle);
        EXPECT_NEAR(want.real(), to[i], 1e-6);
        EXPECT_NEAR(want.imag(), to[i + half], 1e-6);
      }
    }
    EXPECT_EQ(77.0f, row.back());
  }
}

// What rotary positions are for: products depend on the distance alone.
TEST_P(RotaryTest, ProductsDependOnTheDistance) {
  const int64_t d_key = 20;
  Rng rng(2);
  std::vector<float> query(d_key), key(d_key);
  for (float& x : query) x = static_cast<float>(rng.Normal());
  for (float& x : key) x = static_cast<float>(rng.Normal());
  const auto product = [&](int64_t query_at, int64_t key_at) {
    std::vector<float> cos(d_key / 2), sin(d_key / 2), q = query, k = key;
    RotaryRow(query_at, d_key, 10000.0, cos.data(), sin.data());
    RotateRow(cos.data(), sin.data(), 1, d_key, q.data());
    RotaryRow(key_at, d_key, 10000.0, cos.data(), sin.data());
    RotateRow(cos.data(), sin.data(), 1, d_key, k.data());
    double sum = 0;
    for (int64_t i = 0; i < d_key; ++i) sum += double{q[i]} * k[i];
    return sum;
  };
  EXPECT_NEAR(product(7, 3), product(1004, 1000), 1e-5);
  EXPECT_GT(std::fabs(product(7, 3) - product(7, 5)), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Targets, RotaryTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn
