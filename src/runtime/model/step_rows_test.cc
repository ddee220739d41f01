// A few rows in one region of the workers have the bits of the pass layer by
// layer: every mixer, and stacks with what needs care, for any number of rows
// of one sequence or of several.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>
#include <vector>

#include "config/mixer_spec.h"
#include "reference/test_model.h"
#include "runtime/mixer/mixer.h"
#include "runtime/mixer/step.h"
#include "runtime/model/model.h"

namespace tarn {
namespace {

using testing::RandomTensors;
using testing::RandomTokens;

// More tokens than a step has rows, so that a call with all of them goes layer
// by layer.
constexpr int64_t kTokens = 3 * kStepRows;

// Wide enough for a region: below some bytes a layer the model takes none.
ModelConfig ConfigOf(const std::string& layers) {
  ModelConfig config = testing::WideConfig();
  config.d_model = 128;
  config.d_ff = 200;
  config.vocab_size = 75;
  config.positions =
      layers.starts_with("linear") ? Positions::kRotary : Positions::kNone;
  testing::SetRmsSwiglu(config);
  SetKey(config, "local_context", int64_t{9});
  testing::SetLayers(config, layers);
  config.n_layers =
      std::max<int64_t>(2, static_cast<int64_t>(config.layers.size()));
  FinishConfig(config);
  return config;
}

std::vector<std::string> Stacks() {
  std::vector<std::string> all = {
      "linear:feed_forward=moe,full:head_norm=full,local:head_norm=head",
      "rwkv7:value_residual=true,full,rwkv7:value_residual=true",
      "hgrn2:learned_bounds=true,full,hgrn2:learned_bounds=true",
      "mamba2+full,gdn:branch_factor=0.5+local",
      "full:latent_width=24:qkv_bias=false",
      "rwkv6:feed_forward=gated-channel-mix,kda:feed_forward=relu2"};
  for (const char* name : RuntimeMixerNames()) {
    if (Spec(MixerKind(name)).can.recurrent) all.emplace_back(name);
  }
  return all;
}

class StepRowsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const ModelConfig config = ConfigOf(GetParam());
    testing::WriteModel(folder_.path(), config, RandomTensors(config, 1));
    for (uint64_t i = 0; i < 3; ++i) {
      tokens_.push_back(RandomTokens(config, kTokens, 2 + i));
    }
    const Model model = Open(1);
    for (const std::vector<int32_t>& tokens : tokens_) {
      State state(model);
      whole_.emplace_back(tokens.size() * Vocabulary(model));
      model.Score(state, tokens, whole_.back().data());
    }
  }
  Model Open(int threads) {
    return Model::Open(folder_.path(), {.threads = threads}).Take();
  }
  static size_t Vocabulary(const Model& model) {
    return static_cast<size_t>(model.vocab_size());
  }

  // Sequences go on by counts[i] tokens a call, together.
  void ExpectBits(const Model& model, const std::vector<int64_t>& counts) {
    const size_t width = Vocabulary(model);
    std::vector<State> states;
    std::vector<std::vector<float>> got;
    for (size_t i = 0; i < counts.size(); ++i) {
      states.emplace_back(model);
      got.emplace_back(whole_[i].size(), -7.0f);
    }
    for (int64_t call = 0;; ++call) {
      std::vector<Job> jobs;
      for (size_t i = 0; i < counts.size(); ++i) {
        const int64_t at = std::min(call * counts[i], kTokens);
        const int64_t count = std::min(counts[i], kTokens - at);
        if (count == 0) continue;
        jobs.push_back(
            {&states[i],
             std::span<const int32_t>(tokens_[i])
                 .subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
             got[i].data() + static_cast<size_t>(at) * width, true});
      }
      if (jobs.empty()) break;
      model.StepBatch(jobs);
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_EQ(0, std::memcmp(whole_[i].data(), got[i].data(),
                               got[i].size() * sizeof(float)))
          << "sequence " << i << " of " << counts.size() << " by " << counts[i];
    }
  }

  TemporaryFolder folder_;
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<std::vector<float>> whole_;  // logits of the pass layer by layer
};

TEST_P(StepRowsTest, HaveTheBitsOfThePass) {
  for (const int threads : {1, 2, 3}) {
    const Model model = Open(threads);
    for (int64_t rows = 1; rows <= kStepRows; ++rows) {
      ExpectBits(model, {rows});
    }
    for (const std::vector<int64_t>& counts :
         {std::vector<int64_t>{1, 1, 1}, {2, 1, 5}, {4, 4, 4}, {1, 7, 9}}) {
      ExpectBits(model, counts);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stacks, StepRowsTest, ::testing::ValuesIn(Stacks()),
                         [](const auto& test) {
                           std::string name;
                           for (const char c : test.param) {
                             if (std::isalnum(c)) name += c;
                           }
                           return name;
                         });

}  // namespace
}  // namespace tarn
