#include "core/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/rng.h"
#include "core/test_util.h"

namespace tarn {
namespace {

// Counts this thread's allocations, to check that a region makes none.
thread_local int64_t allocations = 0;

}  // namespace
}  // namespace tarn

// Not inlined: the compiler would see malloc paired with delete, and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++tarn::allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace tarn {
namespace {

using std::chrono::milliseconds;

class Pools : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Widths, Pools, ::testing::Values(1, 2, 3, 8));

TEST_P(Pools, EveryTaskRunsOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.width(), GetParam());
  for (int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int>> runs(tasks);
    pool.ParallelFor(tasks, [&](int64_t task, int worker) {
      ASSERT_GE(worker, 0);
      ASSERT_LT(worker, pool.width());
      ++runs[task];
    });
    for (auto& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST_P(Pools, ConcurrentTasksHaveDifferentWorkers) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> inside(pool.width());
  std::atomic<int> clashes{0};
  for (int region = 0; region < 200; ++region) {
    pool.ParallelFor(16, [&](int64_t, int worker) {
      if (inside[worker].fetch_add(1) != 0) ++clashes;
      std::this_thread::yield();
      inside[worker].fetch_sub(1);
    });
  }
  EXPECT_EQ(clashes, 0);
}

// What was written before a region is seen inside it, and the other way round,
// without atomics: the thread sanitizer watches this one.
TEST_P(Pools, RegionsOrderMemory) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(33, 0);
  for (int region = 0; region < 2000; ++region) {
    pool.ParallelFor(33, [&](int64_t task, int) { values[task] += task; });
    values[region % 33] += 1;
  }
  const int64_t sum = std::accumulate(values.begin(), values.end(), int64_t{0});
  EXPECT_EQ(sum, 2000 * (32 * 33 / 2) + 2000);
}

TEST_P(Pools, ExceptionIsRethrownAfterTheRunningTasksEnded) {
  ThreadPool pool(GetParam());
  int least_started = 1000;
  for (int region = 0; region < 100; ++region) {
    std::atomic<int> running{0}, started{0};
    try {
      pool.ParallelFor(1000, [&](int64_t task, int) {
        ++running;
        ++started;
        const auto leave = [&] { --running; };
        if (task == 5) {
          leave();
          throw std::out_of_range("task 5");
        }
        std::this_thread::yield();
        leave();
      });
      FAIL() << "nothing thrown";
    } catch (const std::out_of_range& e) {
      EXPECT_STREQ(e.what(), "task 5");
    }
    EXPECT_EQ(running, 0);
    least_started = std::min(least_started, started.load());
  }
  // In one round at least the failing thread was not held up for the whole
  // region.
  EXPECT_LT(least_started, 1000) << "later tasks are withdrawn";
  int64_t done = 0;
  pool.ParallelFor(1, [&](int64_t, int) { ++done; });
  EXPECT_EQ(done, 1) << "the pool works on after an exception";
}

TEST_P(Pools, EveryTaskMayThrow) {
  ThreadPool pool(GetParam());
  for (int region = 0; region < 200; ++region) {
    EXPECT_THROW(pool.ParallelFor(
                     50, [](int64_t, int) { throw std::runtime_error("no"); }),
                 std::runtime_error);
  }
}

TEST_P(Pools, NestedCallsRunInlineWithTheSameWorker) {
  ThreadPool pool(GetParam());
  std::atomic<int> inner_runs{0}, strangers{0};
  pool.ParallelFor(20, [&](int64_t, int worker) {
    const auto thread = std::this_thread::get_id();
    pool.ParallelFor(5, [&](int64_t, int inner) {
      ++inner_runs;
      if (inner != worker || std::this_thread::get_id() != thread) ++strangers;
    });
  });
  EXPECT_EQ(inner_runs, 100);
  EXPECT_EQ(strangers, 0);
}

// A task of one pool calls another pool, whose tasks call the first again: on
// whichever thread they run, that must not wait for the turn they are part of.
TEST_P(Pools, NestingThroughAnotherPoolDoesNotLock) {
  ThreadPool outer(GetParam()), inner(2);
  std::atomic<int> runs{0};
  outer.ParallelFor(4, [&](int64_t, int) {
    inner.ParallelFor(4, [&](int64_t, int) {
      outer.ParallelFor(3, [&](int64_t, int worker) {
        EXPECT_LT(worker, outer.width());
        ++runs;
      });
    });
  });
  EXPECT_EQ(runs, 48);
}

TEST_P(Pools, CallersFromSeveralThreadsTakeTurns) {
  ThreadPool pool(GetParam());
  std::atomic<int> regions_open{0}, overlaps{0};
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      std::vector<std::atomic<int>> inside(pool.width());
      for (int region = 0; region < 300; ++region) {
        // One task and many: the short cut for one takes its turn as well.
        const int64_t tasks = region % 2 == 0 ? 1 : 5;
        std::atomic<int64_t> done{0};
        pool.ParallelFor(tasks, [&](int64_t task, int) {
          if (task == 0 && regions_open.fetch_add(1) != 0) ++overlaps;
          total += caller + 1;
          if (task == 0) regions_open.fetch_sub(1);
          ++done;
        });
        EXPECT_EQ(done, tasks);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, (1 + 2 + 3 + 4) * (150 * 1 + 150 * 5));
  EXPECT_EQ(overlaps, 0);
}

TEST_P(Pools, WakesFromSleepEveryTime) {
  ThreadPool pool(GetParam());
  for (int region = 0; region < 100; ++region) {
    // Around the 50 us after which workers go to sleep: the risky moment.
    std::this_thread::sleep_for(std::chrono::microseconds(region % 10 * 15));
    std::atomic<int> done{0};
    pool.ParallelFor(8, [&](int64_t, int) { ++done; });
    EXPECT_EQ(done, 8);
  }
}

TEST_P(Pools, RegionsDoNotAllocate) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> sum{0}, worker_allocations{0};
  const auto region = [&] {
    pool.ParallelFor(50, [&](int64_t task, int) {
      const int64_t before = allocations;
      sum += task;
      worker_allocations += allocations - before;
    });
  };
  region();
  const int64_t before = allocations;
  for (int i = 0; i < 100; ++i) region();
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(worker_allocations, 0);
}

// Everything at once: callers on three threads, regions of all sizes, nested
// calls, exceptions, pauses that let workers fall asleep, pools of all widths.
TEST_P(Pools, Stress) {
  ThreadPool pool(GetParam());
  std::vector<std::thread> callers;
  std::atomic<int64_t> wrong{0};
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      Rng rng(17, static_cast<uint64_t>(caller));
      for (int region = 0; region < 400; ++region) {
        const auto tasks = static_cast<int64_t>(rng.Below(40));
        const auto bad_task = static_cast<int64_t>(rng.Below(200));
        std::vector<int> runs(40, 0);  // one writer each, no atomics
        bool thrown = false;
        try {
          pool.ParallelFor(tasks, [&](int64_t task, int) {
            if (task == bad_task) throw std::runtime_error("bad task");
            pool.ParallelFor(2, [&](int64_t, int) { ++runs[task]; });
          });
        } catch (const std::runtime_error&) {
          thrown = true;
        }
        wrong += thrown != (bad_task < tasks);
        for (int64_t task = 0; task < 40; ++task) {
          const bool all = runs[task] == 2;
          wrong += !(all || (runs[task] == 0 && (thrown || task >= tasks)));
        }
        if (rng.Below(20) == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(60));
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

// Tasks are not assigned in advance: while one is slow, the rest go to the
// worker that is free.
TEST(ThreadPoolTest, ASlowTaskDelaysNoOther) {
  ThreadPool pool(2);
  std::atomic<bool> slow_started{false};
  std::atomic<int> done{0};
  pool.ParallelFor(100, [&](int64_t, int worker) {
    // A claim takes at most a third of what is left. The worker's first task
    // lasts until the caller has done all that the worker has not claimed;
    // with half of the tasks assigned to each this would never end.
    if (worker == 1 && !slow_started.exchange(true)) {
      while (done < 100 - 100 / 3) std::this_thread::yield();
    }
    ++done;
  });
  EXPECT_EQ(done, 100);
}

TEST(ThreadPoolTest, WorkIsShared) {
  ThreadPool pool(2);
  std::atomic<int> by_worker[2] = {};
  // Repeated until both worked: a busy machine may keep the worker waiting.
  while (by_worker[0] == 0 || by_worker[1] == 0) {
    pool.ParallelFor(20, [&](int64_t, int worker) {
      ++by_worker[worker];
      std::this_thread::sleep_for(milliseconds(2));
    });
  }
}

// A worker that holds a task without running has lost its core: sleep stands in
// for the scheduler.
TEST(ThreadPoolTest, AWorkerThatComesLateIsLeftOutForAWhile) {
  ThreadPool pool(2);
  const auto workers_seen = [&pool] {
    std::atomic<int> seen{0};
    pool.ParallelFor(64, [&](int64_t, int worker) {
      seen |= 1 << worker;
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::microseconds(10);
      while (std::chrono::steady_clock::now() < end) {
      }
    });
    return seen.load();
  };
  // A loaded machine may keep the worker from taking the task at all: each of
  // the two states is waited for, and only ctest's guard ends the wait.
  do {
    pool.ParallelFor(2, [](int64_t, int worker) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(worker == 1 ? 5 : 1));
    });
  } while (workers_seen() != 1);
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (workers_seen() != 3);
}

TEST(ThreadPoolTest, MoreTasksThanTheClaimWordCounts) {
  ThreadPool pool(2);
  const int64_t tasks = (int64_t{1} << 25) + 3;
  // Each worker has its own part, so that the sum costs no shared cache line.
  struct alignas(64) Part {
    int64_t count = 0, sum = 0;
  } part[2];
  pool.ParallelFor(tasks, [&](int64_t task, int worker) {
    ++part[worker].count;
    part[worker].sum += task;
  });
  EXPECT_EQ(part[0].count + part[1].count, tasks);
  EXPECT_EQ(part[0].sum + part[1].sum, tasks * (tasks - 1) / 2);
}

TEST(ThreadPoolTest, RefusesImpossibleWidths) {
  for (int threads : {0, -1, 1025, 1 << 30}) {
    const Error error = ErrorOf([&] { ThreadPool pool(threads); });
    EXPECT_EQ(error.code(), ErrorCode::kArgument);
    EXPECT_EQ(error.where(), "ThreadPool: threads");
    EXPECT_EQ(error.given(), std::to_string(threads));
  }
}

TEST(ThreadPoolTest, PoolsComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(1 + i % 4);
    std::atomic<int> done{0};
    if (i % 2 == 0) pool.ParallelFor(3, [&](int64_t, int) { ++done; });
    EXPECT_EQ(done, i % 2 == 0 ? 3 : 0);
  }
}

TEST(SerialExecutorTest, RunsInOrderAsWorkerZero) {
  SerialExecutor executor;
  std::vector<int64_t> order;
  executor.ParallelFor(4, [&](int64_t task, int worker) {
    EXPECT_EQ(worker, 0);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace tarn
