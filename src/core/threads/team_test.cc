#include "core/threads/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tarn {
namespace {

class Teams : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Widths, Teams, ::testing::Values(1, 2, 3, 8));

// Every share runs once, and all of a phase before any of the next: each share
// writes one number that the next phase's shares all read, without atomics.
TEST_P(Teams, PhasesFollowEachOther) {
  constexpr int64_t kPhases = 40;
  ThreadPool pool(GetParam());
  Team team(pool);
  const int width = team.width();
  ASSERT_EQ(width, GetParam());
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> values(static_cast<size_t>(kPhases * width), 0);
    std::vector<std::atomic<int>> runs(values.size());
    std::atomic<int> wrong{0}, idle{0};
    team.Run(
        kPhases,
        [&](int64_t phase, int share, int worker) {
          if (worker < 0 || worker >= width) ++wrong;
          int64_t sum = 1;
          for (int s = 0; phase > 0 && s < width; ++s) {
            sum += values[static_cast<size_t>((phase - 1) * width + s)];
          }
          const size_t at = static_cast<size_t>(phase * width + share);
          values[at] = sum % 1000003;
          ++runs[at];
        },
        [&](int64_t, int) { ++idle; });
    int64_t want = 1;
    for (int64_t phase = 0; phase < kPhases; ++phase) {
      for (int s = 0; s < width; ++s) {
        const size_t at = static_cast<size_t>(phase * width + s);
        ASSERT_EQ(values[at], want) << phase;
        ASSERT_EQ(runs[at], 1);
      }
      want = (1 + want * width) % 1000003;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_LE(idle, kPhases * width);
  }
}

// An executor that runs its tasks one after the other on one worker: the first
// has to do the work of all.
class OneByOne final : public Executor {
 public:
  int width() const override { return 4; }
  void ParallelFor(int64_t tasks, TaskRef f) override {
    for (int64_t task = 0; task < tasks; ++task) f(task, 2);
  }
};

TEST(Team, OneWorkerDoesTheSharesOfThoseWhoDoNotCome) {
  OneByOne executor;
  Team team(executor);
  std::vector<int> runs(4 * 5, 0);
  int64_t last = 0;
  team.Run(
      5,
      [&](int64_t phase, int share, int worker) {
        EXPECT_EQ(worker, 2);
        EXPECT_GE(phase, last);
        last = phase;
        ++runs[static_cast<size_t>(phase * 4 + share)];
      },
      [](int64_t, int) {});
  EXPECT_EQ(runs, std::vector<int>(20, 1));
}

// A share that takes long is waited for; a worker that sleeps through phases
// rejoins.
TEST(Team, SlowSharesAndLateWorkers) {
  ThreadPool pool(3);
  Team team(pool);
  std::vector<int64_t> done(6, 0);
  team.Run(
      2,
      [&](int64_t phase, int share, int) {
        if (share == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        if (phase == 1) {
          for (int s = 0; s < 3; ++s)
            EXPECT_EQ(done[static_cast<size_t>(s)], 1);
        }
        done[static_cast<size_t>(phase * 3 + share)] = 1;
      },
      [](int64_t, int) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      });
  EXPECT_EQ(done, std::vector<int64_t>(6, 1));
}

TEST_P(Teams, AnExceptionEndsTheRunAndTheTeamStaysUsable) {
  ThreadPool pool(GetParam());
  Team team(pool);
  std::atomic<int> after{0};
  const auto nothing = [](int64_t, int) {};
  EXPECT_THROW(team.Run(
                   10,
                   [&](int64_t phase, int share, int) {
                     if (phase > 3) ++after;
                     if (phase == 3 && share == 0) {
                       throw std::runtime_error("no");
                     }
                   },
                   nothing),
               std::runtime_error);
  EXPECT_EQ(after, 0);
  std::atomic<int> runs{0};
  team.Run(
      7, [&](int64_t, int, int) { ++runs; }, nothing);
  EXPECT_EQ(runs, 7 * GetParam());
}

TEST(Team, NoPhases) {
  ThreadPool pool(2);
  Team team(pool);
  team.Run(
      0, [](int64_t, int, int) { FAIL(); }, [](int64_t, int) { FAIL(); });
}

}  // namespace
}  // namespace tarn
