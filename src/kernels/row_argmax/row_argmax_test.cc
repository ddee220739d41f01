// Against a plain loop, on every SIMD target.
#include "kernels/row_argmax/row_argmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/test_util.h"
#include "kernels/row_tests.h"

namespace tarn::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t PlainArgmax(const std::vector<float>& row, size_t from) {
  size_t best = from;
  for (size_t i = from; i < row.size(); ++i) {
    if (!(row[i] < kInfinity)) return -1;
    if (row[i] > row[best]) best = i;
  }
  return static_cast<int64_t>(best - from);
}

class RowArgmaxTest : public SimdTargetTest {};

TEST_P(RowArgmaxTest, FindsTheFirstOfTheLargest) {
  std::mt19937_64 rng(1);
  for (int64_t count : {1, 2, 15, 16, 31, 33, 2047, 2048, 2049, 5000, 50280}) {
    for (size_t from : {0, 1, 3}) {  // misaligned
      for (int round = 0; round < 4; ++round) {
        std::vector<float> row(from + static_cast<size_t>(count), kInfinity);
        // Of few values, so that the largest is there several times.
        for (size_t i = from; i < row.size(); ++i) {
          row[i] = static_cast<float>(rng() % 1000) - 2000.0f;
        }
        EXPECT_EQ(PlainArgmax(row, from), RowArgmax(row.data() + from, count));
        row.back() = 7.0f;
        EXPECT_EQ(count - 1, RowArgmax(row.data() + from, count));
      }
    }
  }
}

TEST_P(RowArgmaxTest, TellsNumbersThatAreNotBelowInfinity) {
  for (const float bad : {kInfinity, std::nanf(""), -std::nanf("")}) {
    for (size_t count : {1, 17, 2048, 2050, 4200}) {
      for (size_t at : {size_t{0}, count / 2, count - 1}) {
        std::vector<float> row(count, 1.0f);
        row[at] = bad;
        EXPECT_EQ(-1, RowArgmax(row.data(), static_cast<int64_t>(count)))
            << bad << " at " << at << " of " << count;
      }
    }
  }
}

TEST_P(RowArgmaxTest, MinusInfinityIsANumber) {
  std::vector<float> row(3000, -kInfinity);
  EXPECT_EQ(0, RowArgmax(row.data(), 3000));
  row[2999] = -1e38f;
  EXPECT_EQ(2999, RowArgmax(row.data(), 3000));
}

INSTANTIATE_TEST_SUITE_P(Targets, RowArgmaxTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tarn::testing
