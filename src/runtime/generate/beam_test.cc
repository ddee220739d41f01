// Beam search: greedy with one beam, exhaustive with enough, the same in any
// batch, and deterministic among equals.
#include "runtime/generate/beam.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/test_model.h"
#include "runtime/sampling/sampler.h"

namespace tarn::testing {
namespace {

constexpr int32_t kEnd = 3;

class BeamTest : public ::testing::TestWithParam<AttentionKind> {
 protected:
  BeamTest() : config_(SmallConfigOf(Arch::kSeq2seq)) {
    config_.attention = GetParam();
    config_.cross_attention = kDerivedMixer;
    // Few tokens, so that sequences end and all of them can be listed.
    config_.vocab_size = 5;
    FinishConfig(config_);
    WriteModel(folder_.path(), config_, RandomTensors(config_, 11));
    options_.start = options_.end = kEnd;
    options_.max_tokens = 6;
  }
  Model Open(int threads = 1) {
    return Model::Open(folder_.path(), {.threads = threads}).Take();
  }
  std::vector<Hypothesis> Search(const Model& model, uint64_t source) {
    std::vector<State> starts;
    starts.push_back(Encode(model, source));
    return BeamSearch(model, starts, options_)[0];
  }
  State Encode(const Model& model, uint64_t source) const {
    return model.Encode(
        RandomTokens(config_, 4 + static_cast<int64_t>(source % 9), source));
  }
  // log p of tokens (and the end, if finished) by steps from the start.
  double LogProbability(const Model& model, uint64_t source,
                        std::vector<int32_t> tokens, bool finished) {
    if (finished) tokens.push_back(kEnd);
    State state = Encode(model, source);
    std::vector<float> logits(static_cast<size_t>(config_.vocab_size));
    int32_t token = kEnd;
    double total = 0;
    for (const int32_t next : tokens) {
      model.Step(state, token, logits.data());
      double sum = 0;
      for (float x : logits) sum += std::exp(double{x});
      total += logits[static_cast<size_t>(next)] - std::log(sum);
      token = next;
    }
    return total;
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  BeamOptions options_;
};

TEST_P(BeamTest, OneBeamIsGreedy) {
  const Model model = Open();
  options_.max_tokens = 30;
  for (uint64_t source = 0; source < 12; ++source) {
    State state = Encode(model, source);
    std::vector<float> logits(static_cast<size_t>(config_.vocab_size));
    std::vector<int32_t> want;
    int32_t token = kEnd;
    for (int i = 0; i < 30; ++i) {
      model.Step(state, token, logits.data());
      token = Sample(logits, {.temperature = 0}, 0);
      if (token == kEnd) break;
      want.push_back(token);
    }
    const auto found = Search(model, source);
    ASSERT_EQ(1u, found.size());
    EXPECT_EQ(want, found[0].tokens) << source;
    EXPECT_EQ(token == kEnd, found[0].finished);
    EXPECT_NEAR(LogProbability(model, source, want, token == kEnd),
                found[0].log_probability, 1e-9);
  }
}

// A beam as wide as there are prefixes finds the best of all sequences.
TEST_P(BeamTest, AWideBeamIsExhaustive) {
  const Model model = Open();
  options_.max_tokens = 4;
  options_.beam = 1024;
  for (const double penalty : {0.0, 1.0}) {
    options_.length_penalty = penalty;
    const auto found = Search(model, 5);
    double best = -INFINITY;
    std::vector<int32_t> winner;
    // Every sequence of up to three tokens that ends.
    std::function<void(std::vector<int32_t>)> visit =
        [&](std::vector<int32_t> tokens) {
          const double length = static_cast<double>(tokens.size() + 1);
          const double score = LogProbability(model, 5, tokens, true) /
                               std::pow(length, penalty);
          if (score > best) {
            best = score;
            winner = tokens;
          }
          if (tokens.size() == 3) return;
          for (int32_t t = 0; t < 5; ++t) {
            if (t == kEnd) continue;
            tokens.push_back(t);
            visit(tokens);
            tokens.pop_back();
          }
        };
    visit({});
    EXPECT_EQ(winner, found[0].tokens) << penalty;
    EXPECT_NEAR(best, found[0].score, 1e-9);
    // 1 + 4 + 16 + 64 sequences end, 256 do not.
    EXPECT_EQ(85 + 256u, found.size());
    EXPECT_TRUE(std::is_sorted(found.begin(), found.end(),
                               [](const Hypothesis& a, const Hypothesis& b) {
                                 if (a.finished != b.finished) {
                                   return a.finished;
                                 }
                                 return a.score > b.score;
                               }));
  }
}

TEST_P(BeamTest, CompanyAndThreadsChangeNothing) {
  options_.beam = 3;
  options_.max_tokens = 12;
  std::vector<std::vector<Hypothesis>> alone;
  const Model one = Open();
  for (uint64_t source = 0; source < 6; ++source) {
    alone.push_back(Search(one, source));
  }
  for (const int threads : {1, 3}) {
    const Model model = Open(threads);
    std::vector<State> starts;
    for (uint64_t source = 0; source < 6; ++source) {
      starts.push_back(Encode(model, source));
    }
    const uint64_t hash = starts[2].Hash();
    const auto together = BeamSearch(model, starts, options_);
    EXPECT_EQ(hash, starts[2].Hash());  // start states stay as they are
    for (size_t i = 0; i < alone.size(); ++i) {
      ASSERT_EQ(alone[i].size(), together[i].size());
      for (size_t k = 0; k < alone[i].size(); ++k) {
        EXPECT_EQ(alone[i][k].tokens, together[i][k].tokens);
        EXPECT_EQ(alone[i][k].score, together[i][k].score);
        // Each hypothesis follows its own state: clones are independent.
        EXPECT_NEAR(
            LogProbability(one, i, alone[i][k].tokens, alone[i][k].finished),
            alone[i][k].log_probability, 1e-9);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, BeamTest,
                         ::testing::Values(MixerKind("linear"),
                                           MixerKind("full")),
                         [](const auto& info) { return Name(info.param); });

// With all logits equal, the order is that of the ids.
TEST(Beam, EqualsComeInTheOrderOfTheirIds) {
  const TemporaryFolder folder;
  ModelConfig config = SmallConfig();
  config.vocab_size = 4;
  Tensors tensors = RandomTensors(config, 1);
  for (const char* name : {"predictor.weight", "predictor.bias"}) {
    std::fill(tensors[name].begin(), tensors[name].end(), 0.0f);
  }
  WriteModel(folder.path(), config, tensors);
  const Model model = Model::Open(folder.path()).Take();
  std::vector<State> starts;
  starts.emplace_back(model);
  const auto found = BeamSearch(
      model, starts,
      {.beam = 3, .max_tokens = 2, .start = 0, .end = 3, .candidates = 4})[0];
  ASSERT_EQ(3u, found.size());
  EXPECT_EQ((std::vector<int32_t>{0, 0}), found[0].tokens);
  EXPECT_EQ((std::vector<int32_t>{0, 1}), found[1].tokens);
  EXPECT_EQ((std::vector<int32_t>{0, 2}), found[2].tokens);
}

TEST(Beam, OptionsAreChecked) {
  const TemporaryFolder folder;
  WriteModel(folder.path(), SmallConfig(), RandomTensors(SmallConfig(), 1));
  const Model model = Model::Open(folder.path()).Take();
  std::vector<State> starts;
  starts.emplace_back(model);
  const auto refused = [&](const BeamOptions& options, const char* name) {
    const Error error = ErrorOf([&] { BeamSearch(model, starts, options); });
    EXPECT_EQ(ErrorCode::kArgument, error.code());
    EXPECT_TRUE(Contains(error.where(), name)) << error.what();
  };
  refused({.beam = 0}, "beam");
  refused({.beam = 1025}, "beam");
  refused({.max_tokens = -1}, "max_tokens");
  refused({.length_penalty = -0.5}, "length_penalty");
  refused({.length_penalty = NAN}, "length_penalty");
  refused({.start = -1}, "start");
  refused({.end = 29}, "end");
  refused({.end = 7, .candidates = 7}, "end");
  refused({.candidates = 30}, "candidates");
  EXPECT_EQ(0u, BeamSearch(model, {}, {}).size());
  EXPECT_EQ(0u, BeamSearch(model, starts, {.max_tokens = 0})[0].size());
}

}  // namespace
}  // namespace tarn::testing
