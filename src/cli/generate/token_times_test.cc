#include "cli/generate/token_times.h"

#include <gtest/gtest.h>

namespace tarn::cli {
namespace {

TEST(TokenTimes, MediansOfBothEnds) {
  TokenTimes times;
  EXPECT_EQ(times.MedianFirst(), 0);
  times.Add(7);
  EXPECT_EQ(times.MedianLast(), 0);  // one token has no two halves
  for (double t : {9.0, 1.0, 3.0, 2.0}) times.Add(t);
  EXPECT_EQ(times.MedianFirst(), 8);   // of 7, 9
  EXPECT_EQ(times.MedianLast(), 2.5);  // of 3, 2
}

TEST(TokenTimes, KeepsTheWindowsOfALongRun) {
  TokenTimes times;
  for (int i = 0; i < 45'000; ++i) times.Add(i);
  EXPECT_EQ(times.count(), 45'000);
  EXPECT_EQ(times.MedianFirst(), 4'999.5);
  EXPECT_EQ(times.MedianLast(), 39'999.5);
}

}  // namespace
}  // namespace tarn::cli
