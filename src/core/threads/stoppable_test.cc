#include "core/threads/stoppable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "core/error.h"

namespace tarn {
namespace {

constexpr std::chrono::nanoseconds kAlways{0};

class Stoppable : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Widths, Stoppable, ::testing::Values(1, 2, 3, 8));

int64_t Runs(Executor& executor, int64_t tasks) {
  std::atomic<int64_t> runs{0};
  executor.ParallelFor(tasks, [&](int64_t, int) { ++runs; });
  return runs;
}

TEST_P(Stoppable, RunsEverythingWithoutACheckOrUntilOneSaysStop) {
  ThreadPool pool(GetParam());
  StoppableExecutor executor(pool, kAlways);
  EXPECT_EQ(executor.width(), GetParam());
  EXPECT_EQ(Runs(executor, 100), 100);
  {
    const StopCheck none;
    const StopScope scope(executor, none);
    EXPECT_EQ(Runs(executor, 100), 100);
  }
  int asked = 0;
  const StopCheck never = [&] { return ++asked < 0; };
  const StopScope scope(executor, never);
  EXPECT_EQ(Runs(executor, 100), 100);
  EXPECT_GE(asked, 1);
  EXPECT_EQ(Runs(executor, 0), 0);
}

TEST_P(Stoppable, LeavesOutWhatHasNotBegun) {
  ThreadPool pool(GetParam());
  StoppableExecutor executor(pool, kAlways);
  for (const int at : {1, 2, 5}) {
    int asked = 0;
    const StopCheck check = [&] { return ++asked >= at; };
    std::atomic<int64_t> runs{0};
    {
      const StopScope scope(executor, check);
      const auto work = [&](int64_t, int) { ++runs; };
      // Regions go on until the caller was asked often enough.
      try {
        for (int region = 0; region < 1000; ++region) {
          executor.ParallelFor(10, work);
        }
        FAIL() << "not stopped";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
      }
      EXPECT_EQ(asked, at);
      const int64_t before = runs;
      EXPECT_THROW(executor.ParallelFor(10, work), Error);
      EXPECT_EQ(runs, before);
      EXPECT_EQ(asked, at);  // once stopped, nothing asks again
    }
    if (at == 1) EXPECT_EQ(runs, 0);
    EXPECT_EQ(Runs(executor, 10), 10);  // the scope is over
  }
}

TEST_P(Stoppable, AsksOnTheCallersThreadAlone) {
  ThreadPool pool(GetParam());
  StoppableExecutor executor(pool, kAlways);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> elsewhere{0};
  const StopCheck check = [&] {
    if (std::this_thread::get_id() != caller) ++elsewhere;
    return false;
  };
  const StopScope scope(executor, check);
  EXPECT_EQ(Runs(executor, 1000), 1000);
  EXPECT_EQ(elsewhere, 0);
}

TEST_P(Stoppable, AsksAtMostOncePerInterval) {
  ThreadPool pool(GetParam());
  StoppableExecutor executor(pool, std::chrono::hours(1));
  int asked = 0;
  const StopCheck check = [&] { return ++asked > 1; };
  const StopScope scope(executor, check);
  EXPECT_EQ(Runs(executor, 1000), 1000);
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace tarn
