// Windows too large for a ring: their rows grow with the text, and tokens that
// have left the window are not read.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/mixer_spec.h"
#include "core/error.h"
#include "reference/test_model.h"
#include "runtime/model/model.h"

namespace tarn::testing {
namespace {

constexpr int64_t kWindow = kLargestRing + 1, kBefore = 40;

class WindowTest : public ::testing::Test {
 protected:
  // One layer without positions: what a token reads depends on those in its
  // window alone, so that a fresh state reads the same.
  WindowTest() {
    SetLayers(config_,
              StrCat("full:key_heads=1:head_norm=full:window=", kWindow));
    config_.n_layers = 1;
    config_.n_heads = 1;
    config_.positions = Positions::kNone;
    FinishConfig(config_);
    WriteModel(folder_.path(), config_, RandomTensors(config_, 1));
    tokens_ = RandomTokens(config_, kWindow + kBefore, 2);
  }
  Model Open(CacheType cache) const {
    return Model::Open(folder_.path(), {.threads = 2, .cache = cache}).Take();
  }
  std::vector<float> Last(const Model& model, int64_t begin,
                          int64_t stepped) const {
    std::vector<float> logits(static_cast<size_t>(config_.vocab_size));
    State state(model);
    const auto first = tokens_.begin() + begin, last = tokens_.end() - stepped;
    model.Prefill(state, {first, last}, nullptr);
    for (auto at = last; at != tokens_.end(); ++at) {
      model.Step(state, *at, logits.data());
    }
    return logits;
  }

  TemporaryFolder folder_;
  ModelConfig config_ = SmallConfig();
  std::vector<int32_t> tokens_;
};

TEST_F(WindowTest, MemoryGrowsWithTheText) {
  const Model model = Open(CacheType::kF32);
  EXPECT_EQ(0, model.state_bytes());
  EXPECT_GT(model.state_bytes_per_token(), 0);
}

TEST_F(WindowTest, OnlyTheWindowIsRead) {
  for (const CacheType cache : {CacheType::kF32, CacheType::kInt8}) {
    const Model model = Open(cache);
    const std::vector<float> whole = Last(model, 0, 1);
    EXPECT_EQ(whole, Last(model, kBefore, 1));
    EXPECT_EQ(whole, Last(model, 0, 3));
    EXPECT_NE(whole, Last(model, kBefore + 1, 1));
  }
}

}  // namespace
}  // namespace tarn::testing
