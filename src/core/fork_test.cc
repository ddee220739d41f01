// Pools, teams and locks in the child of a fork, which has one thread only.
#include "core/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "core/executor.h"
#include "core/threads/team.h"

namespace tarn {
namespace {

#if defined(__SANITIZE_THREAD__)
#define TARN_SKIP_FORK() GTEST_SKIP() << "TSan ends children with threads"
#else
#define TARN_SKIP_FORK() (void)0
#endif

// Exit status of a child that runs `body`: 0 where it returned true. A child
// that hangs is ended by the alarm; no other verdict depends on it.
int StatusOfChild(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

// The sum 0 + ... + 99 over the pool's workers.
bool Sums(Executor& executor) {
  std::atomic<int64_t> sum{0};
  executor.ParallelFor(100, [&](int64_t task, int) { sum += task; });
  return sum == 4950;
}

bool RunsPhases(Team& team) {
  std::atomic<int> runs{0};
  team.Run(
      5, [&](int64_t, int, int) { ++runs; }, [](int64_t, int) {});
  return runs == 5 * team.width();
}

class Forks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Widths, Forks, ::testing::Values(1, 2, 3, 8));

TEST_P(Forks, ChildDropsAUsedPool) {
  TARN_SKIP_FORK();
  auto pool = std::make_unique<ThreadPool>(GetParam());
  ASSERT_TRUE(Sums(*pool));
  EXPECT_EQ(StatusOfChild([&] {
              pool.reset();
              return true;
            }),
            0);
  EXPECT_TRUE(Sums(*pool));
}

TEST_P(Forks, ChildUsesThePoolWithThreadsOfItsOwn) {
  TARN_SKIP_FORK();
  auto pool = std::make_unique<ThreadPool>(GetParam());
  Team team(*pool);
  ASSERT_TRUE(Sums(*pool));
  ASSERT_TRUE(RunsPhases(team));
  EXPECT_EQ(StatusOfChild([&] {
              bool right = pool->width() == GetParam();
              for (int round = 0; round < 50; ++round) {
                right = right && Sums(*pool) && RunsPhases(team);
              }
              // Width workers meet, so that all of them must exist.
              std::atomic<int> arrived{0};
              pool->ParallelFor(GetParam(), [&](int64_t, int) {
                ++arrived;
                while (arrived < GetParam()) std::this_thread::yield();
              });
              // A child of the child, and another pool.
              right = right && StatusOfChild([&] {
                                 const bool same = Sums(*pool);
                                 pool.reset();
                                 return same;
                               }) == 0;
              pool.reset();
              ThreadPool another(GetParam());
              return right && Sums(another);
            }),
            0);
  EXPECT_TRUE(RunsPhases(team));
}

TEST_P(Forks, SeveralThreadsOfTheChildMeetInThePool) {
  TARN_SKIP_FORK();
  ThreadPool pool(GetParam());
  ASSERT_TRUE(Sums(pool));
  EXPECT_EQ(StatusOfChild([&] {
              std::atomic<int> right{0};
              std::thread other([&] { right += Sums(pool); });
              right += Sums(pool);
              other.join();
              return right == 2;
            }),
            0);
}

// A region runs, and so its lock is taken, while another thread forks.
TEST_P(Forks, ForkWhileAnotherThreadUsesThePool) {
  TARN_SKIP_FORK();
  ThreadPool pool(GetParam());
  std::atomic<bool> inside{false}, forked{false};
  std::thread user([&] {
    pool.ParallelFor(1, [&](int64_t, int) {
      inside = true;
      while (!forked) std::this_thread::yield();
    });
  });
  while (!inside) std::this_thread::yield();
  EXPECT_EQ(StatusOfChild([&] { return Sums(pool) && Sums(pool); }), 0);
  forked = true;
  user.join();
  EXPECT_TRUE(Sums(pool));
}

TEST(ForkMutexes, AreFreeInTheChild) {
  TARN_SKIP_FORK();
  ForkFreedMutex freed;
  ForkHeldMutex held;
  std::atomic<bool> inside{false}, forked{false};
  std::thread user([&] {
    const std::lock_guard lock(freed);
    inside = true;
    while (!forked) std::this_thread::yield();
  });
  std::atomic<bool> ended{false};
  std::atomic<int> twice{0};  // even outside of the section
  std::thread shorter([&] {
    while (!ended) {
      const std::lock_guard lock(held);
      ++twice;
      ++twice;
    }
  });
  while (!inside) std::this_thread::yield();
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(StatusOfChild([&] {
                const std::lock_guard first(freed);
                const std::lock_guard second(held);
                return twice % 2 == 0;
              }),
              0);
  }
  forked = true;
  ended = true;
  user.join();
  shorter.join();
}

}  // namespace
}  // namespace tarn
