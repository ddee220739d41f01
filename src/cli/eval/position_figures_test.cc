#include "cli/eval/position_figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "core/error.h"

namespace tarn::cli {
namespace {

TEST(PositionBuckets, BordersAreOneTwoFiveOfEachPowerOfTen) {
  const std::vector<int64_t> want = {1,   2,   5,   10,   20,  50,
                                     100, 200, 500, 1000, 2000};
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(BucketBegin(static_cast<int64_t>(i)), want[i]);
  }
}

TEST(PositionBuckets, MeansAndErrorsByDefinition) {
  PositionBuckets buckets;
  std::vector<double> bits;  // of positions 1, 2, ...
  for (int64_t position = 1; position <= 60; ++position) {
    bits.push_back(std::sin(static_cast<double>(position)) + 3);
    buckets.Add(position, bits.back() * std::numbers::ln2);
  }
  const std::vector<PositionBucket> rows = buckets.Rows();
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows.back().begin, 50);
  EXPECT_EQ(rows.back().end, 61);  // after the last position added
  int64_t tokens = 0;
  for (const PositionBucket& row : rows) {
    double mean = 0, squares = 0;
    for (int64_t p = row.begin; p < row.end; ++p) {
      mean += bits[static_cast<size_t>(p - 1)];
    }
    const auto count = static_cast<double>(row.end - row.begin);
    mean /= count;
    for (int64_t p = row.begin; p < row.end; ++p) {
      squares += std::pow(bits[static_cast<size_t>(p - 1)] - mean, 2);
    }
    const double error =
        count > 1 ? std::sqrt(squares / (count - 1) / count) : 0;
    EXPECT_EQ(row.tokens, row.end - row.begin);
    EXPECT_NEAR(row.bits, mean, 1e-12);
    EXPECT_NEAR(row.standard_error, error, 1e-9);
    tokens += row.tokens;
  }
  EXPECT_EQ(tokens, 60);
}

TEST(PositionBuckets, EmptyOnesAreLeftOut) {
  PositionBuckets buckets;
  EXPECT_TRUE(buckets.Rows().empty());
  buckets.Add(1, 0.5);
  buckets.Add(1'000'000, 0.5);
  const auto rows = buckets.Rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].begin, 1'000'000);
  EXPECT_EQ(rows[1].end, 1'000'001);
  EXPECT_EQ(rows[1].standard_error, 0);
  EXPECT_THROW(buckets.Add(0, 1.0), ArgumentError);
}

TEST(ResidentBytes, GrowsWithMemoryThatIsTouched) {
  const int64_t before = ResidentBytes();
  EXPECT_GT(before, 0);
  std::vector<char> block(64 << 20, 1);
  EXPECT_GT(ResidentBytes(), before + (48 << 20));
  EXPECT_EQ(block.back(), 1);
}

}  // namespace
}  // namespace tarn::cli
