// Torch's pool as an executor: every task once, workers apart, exceptions.
#include "pytorch/ops_executor.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace tarn::ops {
namespace {

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
  std::atomic<int> wide{0}, count{0};
  at::parallel_for(0, 4, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      TorchExecutor executor;
      // With one thread torch opens no region.
      if (GetParam() > 1 && executor.width() != 1) ++wide;
      executor.ParallelFor(10, [&](int64_t, int) { ++count; });
    }
  });
  EXPECT_EQ(wide, 0);
  EXPECT_EQ(count, 40);
}

INSTANTIATE_TEST_SUITE_P(Threads, TorchExecutorTest,
                         ::testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace tarn::ops
