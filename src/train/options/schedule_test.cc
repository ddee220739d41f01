#include "train/options/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tarn::train {
namespace {

TEST(LearningRateTest, RisesLinearlyAndReachesTheTopAtTheEndOfWarmUp) {
  for (Schedule schedule :
       {Schedule::kConstant, Schedule::kCosine, Schedule::kStep}) {
    ScheduleOptions options;
    options.schedule = schedule;
    options.lr = 0.5;
    options.warmup = 10;
    options.steps = 100;
    EXPECT_DOUBLE_EQ(LearningRate(options, 1), 0.05);
    EXPECT_DOUBLE_EQ(LearningRate(options, 7), 0.35);
    EXPECT_DOUBLE_EQ(LearningRate(options, 10), 0.5);
  }
}

TEST(LearningRateTest, NoWarmUpStartsAtTheTop) {
  ScheduleOptions options;
  options.schedule = Schedule::kConstant;
  options.lr = 0.25;
  options.warmup = 0;
  EXPECT_DOUBLE_EQ(LearningRate(options, 1), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(options, 1000000), 0.25);
}

TEST(LearningRateTest, CosineFallsByHalfInTheMiddleAndEndsAtItsMinimum) {
  ScheduleOptions options;
  options.schedule = Schedule::kCosine;
  options.lr = 1.0;
  options.lr_min = 0.2;
  options.warmup = 20;
  options.steps = 120;
  EXPECT_NEAR(LearningRate(options, 70), 0.6, 1e-15);
  // A quarter of the way: 0.2 + 0.8 (1 + sqrt(1/2)) / 2.
  EXPECT_NEAR(LearningRate(options, 45), 0.2 + 0.4 * (1 + std::sqrt(0.5)),
              1e-15);
  EXPECT_NEAR(LearningRate(options, 120), 0.2, 1e-15);
  for (int64_t step = 21; step <= 120; ++step) {
    EXPECT_LT(LearningRate(options, step), LearningRate(options, step - 1));
  }
}

TEST(LearningRateTest, WarmUpAsLongAsTheRunStaysFinite) {
  ScheduleOptions options;
  options.warmup = options.steps = 10;
  EXPECT_DOUBLE_EQ(LearningRate(options, 10), options.lr);
}

// The paper's copy task: 1e-3, and 1e-4 after 3000 updates.
TEST(LearningRateTest, StepsDownAfterTheNamedUpdates) {
  ScheduleOptions options;
  options.schedule = Schedule::kStep;
  options.lr = 1e-3;
  options.warmup = 0;
  options.decay_at = {3000, 5000};
  EXPECT_DOUBLE_EQ(LearningRate(options, 3000), 1e-3);
  EXPECT_DOUBLE_EQ(LearningRate(options, 3001), 1e-4);
  EXPECT_DOUBLE_EQ(LearningRate(options, 5000), 1e-4);
  EXPECT_DOUBLE_EQ(LearningRate(options, 5001), 1e-5);
}

TEST(PlateauTest, FallsAfterSoManyEvaluationsInARowWithoutABetterOne) {
  ScheduleOptions options;
  options.schedule = Schedule::kPlateau;
  options.lr = 1.0;
  options.lr_min = 0.2;
  options.warmup = 4;
  options.decay_factor = 0.5;
  options.decay_patience = 3;
  Plateau plateau;
  // Three evaluations in a row that are not better: down; a better one resets.
  const bool better[] = {true,  false, false, false, false, false,
                         true,  false, false, false, false, false,
                         false, false, false, false};
  const double rates[] = {1,   1,    1,    0.5,  0.5, 0.5, 0.5, 0.5,
                          0.5, 0.25, 0.25, 0.25, 0.2, 0.2, 0.2, 0.2};
  for (int i = 0; i < 16; ++i) {
    CountEvaluation(plateau, better[i], options.decay_patience);
    EXPECT_DOUBLE_EQ(LearningRate(options, 50, plateau.drops), rates[i]) << i;
  }
  EXPECT_EQ(plateau.drops, 4);
  // Warm-up is unchanged.
  EXPECT_DOUBLE_EQ(LearningRate(options, 2, 1), 0.5);
}

TEST(PlateauTest, PatienceOfOneFallsAtOnce) {
  Plateau plateau;
  for (int i = 0; i < 3; ++i) CountEvaluation(plateau, false, 1);
  EXPECT_EQ(plateau.drops, 3);
  EXPECT_EQ(plateau.evaluations, 0);
}

TEST(PlateauTest, PatienceCountsFromTheBestWhateverTheRateDoes) {
  const bool better[] = {true, false, true, false, false, false};
  const int64_t since[] = {0, 1, 0, 1, 2, 3};
  for (const int64_t decay_patience : {1, 2, 10}) {
    Plateau plateau;
    EXPECT_FALSE(IsOutOfPatience(plateau, 1));
    for (int i = 0; i < 6; ++i) {
      CountEvaluation(plateau, better[i], decay_patience);
      EXPECT_EQ(plateau.since_best, since[i]) << i;
      EXPECT_FALSE(IsOutOfPatience(plateau, 0));
      EXPECT_EQ(IsOutOfPatience(plateau, 1), since[i] >= 1);
      EXPECT_EQ(IsOutOfPatience(plateau, 3), i == 5);
    }
  }
}

}  // namespace
}  // namespace tarn::train
