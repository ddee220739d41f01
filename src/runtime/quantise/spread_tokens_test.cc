#include "runtime/quantise/spread_tokens.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tarn::testing {
namespace {

// Tokens that are their positions.
std::vector<int32_t> Counting(int64_t count, int32_t first = 0) {
  std::vector<int32_t> text(static_cast<size_t>(count));
  std::iota(text.begin(), text.end(), first);
  return text;
}

TEST(SpreadTokensTest, ShortTextsAreReadWhole) {
  for (const int64_t length : {0, 1, 7, 40}) {
    EXPECT_EQ(SpreadTokens(Counting(length), 40, 8), Counting(length));
  }
}

TEST(SpreadTokensTest, RunsReachFromTheBeginningToTheEnd) {
  const std::vector<int32_t> found = SpreadTokens(Counting(100), 24, 8);
  std::vector<int32_t> want;
  for (const int32_t first : {0, 46, 92}) {
    const std::vector<int32_t> run = Counting(8, first);
    want.insert(want.end(), run.begin(), run.end());
  }
  EXPECT_EQ(found, want);
}

TEST(SpreadTokensTest, RunsDoNotOverlapAndAreWhole) {
  for (int64_t length = 41; length < 90; ++length) {
    for (const int64_t sequence : {1, 3, 8, 40}) {
      const std::vector<int32_t> found =
          SpreadTokens(Counting(length), 40, sequence);
      ASSERT_EQ(std::ssize(found), 40 / sequence * sequence);
      for (size_t i = 0; i < found.size(); ++i) {
        if (i % static_cast<size_t>(sequence) != 0) {
          EXPECT_EQ(found[i], found[i - 1] + 1);
        } else if (i > 0) {
          EXPECT_GT(found[i], found[i - 1]);
        }
        EXPECT_LT(found[i], length);
      }
    }
  }
}

TEST(SpreadTokensTest, LessThanARunIsTheBeginning) {
  EXPECT_EQ(SpreadTokens(Counting(100), 5, 8), Counting(5));
  EXPECT_EQ(SpreadTokens(Counting(100), 8, 8), Counting(8));
  EXPECT_TRUE(SpreadTokens(Counting(100), 0, 8).empty());
}

}  // namespace
}  // namespace tarn::testing
