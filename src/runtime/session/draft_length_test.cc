// Lengths of guesses from counts and times that the tests make up.
#include "runtime/session/draft_length.h"

#include <gtest/gtest.h>

#include "core/rng.h"

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
  for (int i = 0; i < 960; ++i) trials += length.Choose(0, 1) > 0;
  EXPECT_EQ(4, trials);  // after 64, 128, 256 and 512 answers
}

// A text whose reads of n tokens take a + b n, and whose guessed tokens are
// right with some chance and take `guess` each.
struct Text {
  double a, b, guess, chance;
  double first;  // what the first read takes instead

  // Tokens per time, over that of a text without guesses.
  double Gain() const {
    DraftLength length(12);
    Rng rng(5);
    double time = 0, tokens = 0;
    for (int64_t pending = 1; tokens < 2000;) {
      const int64_t longest = length.Longest(pending);
      int64_t drafted = longest > 0 ? length.Choose(0, pending) : 0;
      if (drafted > 0) {
        length.Guessed(drafted, guess * static_cast<double>(drafted));
        time += guess * static_cast<double>(drafted);
      }
      const int64_t read = pending + drafted;
      const double ms = tokens == 0 ? first : a + b * static_cast<double>(read);
      length.Read(read, ms);
      time += ms;
      int64_t right = 0;
      while (right < drafted && rng.Uniform() < chance) ++right;
      if (drafted > 0) length.Confirmed(0, drafted, right);
      tokens += static_cast<double>(right + 1);
      // What a wrong guess had right is read again.
      pending = right < drafted ? right + 1 : 1;
    }
    return tokens * (a + b) / time;
  }
};

TEST(DraftLengthTest, AFirstReadThatIsLongMisleadsItBriefly) {
  // Guesses do not pay, whatever the first read says.
  EXPECT_GT((Text{.a = 0.1, .b = 0.9, .guess = 0.3, .chance = 0.5, .first = 9}
                 .Gain()),
            0.95);
  // And they do.
  EXPECT_GT((Text{.a = 0.9, .b = 0.05, .guess = 0.01, .chance = 0.9, .first = 9}
                 .Gain()),
            3.0);
}

}  // namespace
}  // namespace tarn
