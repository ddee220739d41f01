// Lengths of guesses from counts and times that the tests make up.
#include "runtime/session/draft_length.h"

#include <gtest/gtest.h>

namespace tarn {
namespace {

// Reads whose time is a + b n, seen for these numbers of tokens.
DraftLength Seen(double a, double b, std::initializer_list<int64_t> tokens) {
  DraftLength length(12);
  for (const int64_t n : tokens) {
    length.Read(n, a + b * static_cast<double>(n));
  }
  return length;
}

TEST(DraftLengthTest, NothingIsGuessedBeforeATimeIsKnown) {
  DraftLength length(12);
  EXPECT_EQ(0, length.Choose(0, 1));
  length.Read(1, 10);
  EXPECT_GT(length.Choose(0, 1), 0);
}

TEST(DraftLengthTest, RightGuessesGrowAndWrongOnesShrink) {
  DraftLength length = Seen(10, 0.5, {1, 13});
  for (int i = 0; i < 30; ++i) length.Confirmed(0, 12, 12);
  EXPECT_EQ(12, length.Choose(0, 1));
  for (int i = 0; i < 10; ++i) length.Confirmed(0, 12, 0);
  const int64_t fewer = length.Choose(0, 1);
  EXPECT_LT(fewer, 12);
  EXPECT_GT(fewer, 0);
  for (int i = 0; i < 40; ++i) length.Confirmed(0, 4, 0);
  EXPECT_EQ(0, length.Choose(0, 1));
  EXPECT_GT(length.Choose(1, 1), 0);  // another kind has a chance of its own
}

TEST(DraftLengthTest, ReadsThatGrowWithTheirTokensArePaidForNothing) {
  // Each token costs as much as a step: even right guesses save nothing.
  DraftLength length = Seen(0, 1, {1, 4, 13});
  for (int i = 0; i < 50; ++i) length.Confirmed(0, 12, 12);
  EXPECT_EQ(0, length.Choose(0, 1));
  EXPECT_EQ(0, length.Longest(1));
}

TEST(DraftLengthTest, GuessesThatTakeLongerThanTheyGainAreLeftOut) {
  DraftLength length = Seen(10, 0.1, {1, 13});
  EXPECT_GT(length.Choose(0, 1), 0);
  length.Guessed(4, 40);  // as long as a step each
  EXPECT_EQ(0, length.Choose(0, 1));
}

TEST(DraftLengthTest, ItTriesAgainNowAndThen) {
  DraftLength length = Seen(0, 1, {1, 4, 13});
  int trials = 0;
  for (int i = 0; i < 640; ++i) trials += length.Choose(0, 1) > 0;
  EXPECT_EQ(10, trials);
}

}  // namespace
}  // namespace tarn
