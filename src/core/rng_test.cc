#include "core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace tarn {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers for philox4x32-10 that Random123 publishes (kat_vectors).
// Words of the counter, low first: counter, then stream; of the key: seed.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox(0, 0, 0),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryArgumentMatters) {
  std::set<Words> seen;
  for (uint64_t bit = 0; bit < 64; ++bit) {
    seen.insert(Philox(uint64_t{1} << bit, 0, 0));
    seen.insert(Philox(0, uint64_t{1} << bit, 0));
    seen.insert(Philox(0, 0, uint64_t{1} << bit));
  }
  EXPECT_EQ(seen.size(), 3u * 64);
}

TEST(Rng, IsAPureFunctionOfSeedStreamCounter) {
  Rng rng(7, 3);
  for (int i = 0; i < 5; ++i) rng.Next();
  EXPECT_EQ(rng.counter(), 5u);
  Rng resumed(7, 3, rng.counter());
  Rng fork = rng;
  for (int i = 0; i < 100; ++i) {
    const uint64_t bits = rng.Next();
    EXPECT_EQ(bits, resumed.Next());
    EXPECT_EQ(bits, fork.Next());
  }
}

TEST(Rng, NextIsTheFirstTwoWords) {
  EXPECT_EQ(Rng(0).Next(), 0xe169c58d6627e8d5u);
  EXPECT_EQ(Rng(0).Uniform(),
            std::ldexp(static_cast<double>(0xe169c58d6627e8d5u >> 11), -53));
}

TEST(Rng, UniformIsInTheUnitIntervalWithTheRightMoments) {
  Rng rng(1);
  const int n = 100000;
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double u = rng.Uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  // Five standard errors: sqrt(1/12 / n) and sqrt(4/45 / n).
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
}

TEST(Rng, NormalHasTheRightMomentsAndTails) {
  Rng rng(2);
  const int n = 100000;
  double moment[5] = {};
  int beyond_two = 0;
  for (int i = 0; i < n; ++i) {
    const double x = rng.Normal();
    ASSERT_TRUE(std::isfinite(x));
    for (int k = 1; k < 5; ++k) moment[k] += std::pow(x, k) / n;
    beyond_two += std::abs(x) > 2;
  }
  EXPECT_EQ(rng.counter(), static_cast<uint64_t>(n));
  // Five standard errors; Var(x^k) is E[x^2k] - E[x^k]^2.
  EXPECT_NEAR(moment[1], 0, 5 * std::sqrt(1.0 / n));
  EXPECT_NEAR(moment[2], 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(moment[3], 0, 5 * std::sqrt(15.0 / n));
  EXPECT_NEAR(moment[4], 3, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(beyond_two, 0.04550026 * n, 5 * std::sqrt(0.0455 * n));
}

TEST(Rng, BelowIsUniformForBoundsThatDivideNothing) {
  Rng rng(3);
  const uint64_t bound = 7;
  const int n = 70000;
  std::vector<int> count(bound);
  for (int i = 0; i < n; ++i) {
    const uint64_t x = rng.Below(bound);
    ASSERT_LT(x, bound);
    ++count[x];
  }
  double chi_squared = 0;
  for (int c : count) {
    chi_squared += (c - n / 7.0) * (c - n / 7.0) / (n / 7.0);
  }
  EXPECT_LT(chi_squared, 30);  // 6 degrees of freedom: p < 4e-5
}

TEST(Rng, BelowHandlesTheExtremes) {
  Rng rng(4);
  EXPECT_EQ(rng.Below(1), 0u);
  // Just above 2^63 every second draw is refused: the redraw path runs.
  const uint64_t bound = (uint64_t{1} << 63) + 1;
  const uint64_t before = rng.counter();
  int upper = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t x = rng.Below(bound);
    ASSERT_LT(x, bound);
    upper += x > bound / 2;
  }
  EXPECT_GT(rng.counter() - before, 1700u);
  EXPECT_NEAR(upper, 500, 80);  // five standard errors
  EXPECT_LT(rng.Below(~uint64_t{0}), ~uint64_t{0});
}

}  // namespace
}  // namespace tarn
