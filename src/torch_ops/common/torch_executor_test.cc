// Torch's pool as an executor: every task once, workers apart, exceptions.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "torch_ops/common/executor.h"

namespace tarn::ops {
namespace torch_executor_test {

class TorchExecutorTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { at::set_num_threads(GetParam()); }
};

TEST_P(TorchExecutorTest, RunsEveryTaskOnceWithWorkersApart) {
  for (int64_t tasks : {0, 1, 2, 3, 7, 500}) {
    TorchExecutor executor;
    ASSERT_EQ(executor.width(), GetParam());
    std::vector<std::atomic<int>> runs(tasks), busy(executor.width());
    std::atomic<int> shared{0};
    executor.ParallelFor(tasks, [&](int64_t task, int worker) {
      if (busy.at(worker).fetch_add(1) != 0) ++shared;
      ++runs[task];
      --busy[worker];
    });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
    EXPECT_EQ(shared, 0) << "two tasks at once with one worker";
  }
}

TEST_P(TorchExecutorTest, RethrowsAndStaysUsable) {
  TorchExecutor executor;
  const auto fail = [&] {
    executor.ParallelFor(100, [](int64_t task, int) {
      if (task == 5) throw std::runtime_error("task 5");
    });
  };
  EXPECT_THROW(fail(), std::runtime_error);
  std::atomic<int> count{0};
  executor.ParallelFor(100, [&](int64_t, int) { ++count; });
  EXPECT_EQ(count, 100);
}

TEST_P(TorchExecutorTest, RunsInlineInsideAParallelRegion) {
  TorchExecutor outer;
  std::atomic<int> wide{0}, count{0};
  outer.ParallelFor(4, [&](int64_t, int) {
    TorchExecutor inner;
    // With one thread torch opens no region.
    if (inner.width() != 1) ++wide;
    inner.ParallelFor(10, [&](int64_t, int worker) { count += 1 + worker; });
  });
  EXPECT_EQ(wide, 0);
  EXPECT_EQ(count, 40);
}

TEST(TorchExecutor, RunsTasksAtTheSameTime) {
  at::set_num_threads(2);
  std::atomic<int> arrived{0};
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::minutes(5);
  TorchExecutor().ParallelFor(2, [&](int64_t, int) {
    ++arrived;  // each waits for the other: one thread alone would time out
    while (arrived < 2 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_EQ(arrived, 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, TorchExecutorTest,
                         ::testing::Values(1, 2, 3, 8));

}  // namespace torch_executor_test
}  // namespace tarn::ops
