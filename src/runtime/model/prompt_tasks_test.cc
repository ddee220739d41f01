// Nothing of a prompt that is worth the workers is left to one of them: a
// region of one task is long work that the others wait for. What is short runs
// without the executor (MixerBlock::ForTasks).
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "reference/test_model.h"
#include "runtime/model/files.h"
#include "runtime/stack/forward.h"
#include "runtime/weights/weights.h"

namespace tarn::testing {
namespace {

// Four workers, all of them this thread.
class CountingExecutor final : public Executor {
 public:
  int width() const override { return 4; }
  void ParallelFor(int64_t tasks, TaskRef f) override {
    counts.push_back(tasks);
    for (int64_t i = 0; i < tasks; ++i) f(i, 0);
  }
  std::vector<int64_t> counts;
};

class PromptTasksTest : public ::testing::TestWithParam<const char*> {};

TEST_P(PromptTasksTest, NoRegionHasOneTask) {
  ModelConfig config = WideConfig();
  config.n_heads = 7;
  SetLayers(config, GetParam());
  FinishConfig(config);
  TemporaryFolder folder;
  WriteModel(folder.path(), config, RandomTensors(config, 1));
  const Result<ModelFiles> files =
      OpenModelFiles(ModelPath(folder.path()), config, /*use_mmap=*/true);
  ASSERT_TRUE(files.ok()) << files.error().what();
  CountingExecutor executor;
  const Weights weights =
      PackWeights(*files.value().weights, config,
                  WeightPlan(config, nullptr, /*exact=*/false), executor);
  Forward forward(config, weights, /*cross=*/nullptr, executor);
  SequenceState state(std::make_shared<const StateLayout>(config));
  const std::vector<int32_t> tokens = RandomTokens(config, 200, 1);
  state.Reserve(200);
  forward.Clear();
  ASSERT_EQ(200, forward.Add(state, tokens));
  executor.counts.clear();
  forward.Run();
  ASSERT_FALSE(executor.counts.empty());
  for (const int64_t tasks : executor.counts) EXPECT_LT(1, tasks);
}

INSTANTIATE_TEST_SUITE_P(Mixers, PromptTasksTest,
                         ::testing::Values("linear", "full", "gdn",
                                           "gdn:key_heads=1", "mamba2",
                                           "mamba2:key_heads=1", "retnet",
                                           "gla", "hgrn2", "rwkv6", "rwkv7",
                                           "mamba1", "short-conv", "rg-lru",
                                           "mlstm", "aft-simple"));

}  // namespace
}  // namespace tarn::testing
