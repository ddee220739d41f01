// Positions past a table of learned ones: every call refuses them before any
// work, with the state as it was.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "reference/test_model.h"
#include "runtime/generate/beam.h"
#include "runtime/generate/generate.h"
#include "runtime/generate/pixels.h"

namespace tarn::testing {
namespace {

constexpr int64_t kRows = 9;

ModelConfig Config(Arch arch) {
  ModelConfig config = SmallConfigOf(arch);
  config.max_positions = kRows;
  FinishConfig(config);
  return config;
}

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

class LearnedPositions : public ::testing::Test {
 protected:
  Model Open(const ModelConfig& config) {
    WriteModel(folder_.path(), config, RandomTensors(config, 3));
    return Model::Open(folder_.path(), {.threads = 1}).Take();
  }
  TemporaryFolder folder_;
};

TEST_F(LearnedPositions, TokensOfALanguageModel) {
  const ModelConfig config = Config(Arch::kDecoder);
  const Model model = Open(config);
  EXPECT_EQ(model.max_tokens(), kRows);
  const std::vector<int32_t> tokens = RandomTokens(config, kRows + 1, 1);
  const std::span<const int32_t> all(tokens);
  std::vector<float> logits(static_cast<size_t>((kRows + 1) * 29));
  State state(model), fresh(model);
  const std::string none =
      "Model: tokens: want at most 9: the model has 9 learned positions "
      "(max_positions), got 10";
  EXPECT_EQ(Refusal([&] { model.Prefill(state, all); }), none);
  EXPECT_EQ(Refusal([&] { model.Score(state, all, logits.data()); }), none);
  EXPECT_TRUE(state == fresh);
  model.Prefill(state, all.first(4), logits.data());
  const State four = state.Clone();
  EXPECT_EQ(Refusal([&] { model.Prefill(state, all.first(6)); }),
            "Model: tokens: want at most 5 more: the model has 9 learned "
            "positions (max_positions), got 6");
  EXPECT_TRUE(state == four);
  model.Prefill(state, all.subspan(4, 5), logits.data());  // the last row
  const State full = state.Clone();
  EXPECT_NE(Refusal([&] { model.Step(state, 1); }), "");
  model.Prefill(state, {}, logits.data());  // no token needs no row
  EXPECT_TRUE(state == full);
}

TEST_F(LearnedPositions, OneOfABatchStopsAll) {
  const ModelConfig config = Config(Arch::kDecoder);
  const Model model = Open(config);
  const std::vector<int32_t> tokens = RandomTokens(config, kRows, 1);
  State full(model), fresh(model);
  model.Prefill(full, tokens);
  const State before = full.Clone(), empty = fresh.Clone();
  const int32_t one = 1;
  std::vector<Job> jobs = {{&fresh, {&one, 1}, nullptr, false},
                           {&full, {&one, 1}, nullptr, false}};
  EXPECT_NE(Refusal([&] { model.StepBatch(jobs); }), "");
  EXPECT_TRUE(full == before);
  EXPECT_TRUE(fresh == empty);
}

TEST_F(LearnedPositions, BothSidesOfPairs) {
  const ModelConfig config = Config(Arch::kSeq2seq);
  const Model model = Open(config);
  EXPECT_NE(Refusal([&] { model.Encode(RandomTokens(config, kRows + 1, 1)); }),
            "");
  State state = model.Encode(RandomTokens(config, kRows, 1));
  const State before = state.Clone();
  EXPECT_NE(Refusal([&] { model.Prefill(state, RandomTokens(config, 10, 2)); }),
            "");
  EXPECT_TRUE(state == before);
  // A search ends where the positions do, with what it has.
  BeamOptions options;
  options.beam = 2;
  options.candidates = 2;
  options.start = options.end = 1;
  for (const int64_t consumed : {int64_t{0}, int64_t{4}, kRows}) {
    std::vector<State> starts;
    starts.push_back(state.Clone());
    const std::vector<int32_t> beginning = RandomTokens(config, kRows, 5);
    model.Prefill(starts[0],
                  std::span(beginning).first(static_cast<size_t>(consumed)));
    options.max_tokens = kRows - consumed;
    const auto want = BeamSearch(model, starts, options);
    options.max_tokens = std::numeric_limits<int64_t>::max();
    const auto got = BeamSearch(model, starts, options);
    ASSERT_EQ(got[0].size(), want[0].size());
    for (size_t i = 0; i < got[0].size(); ++i) {
      EXPECT_EQ(got[0][i].tokens, want[0][i].tokens);
      EXPECT_EQ(got[0][i].finished, want[0][i].finished);
      EXPECT_LE(std::ssize(got[0][i].tokens), kRows - consumed);
    }
  }
}

TEST_F(LearnedPositions, TextsOfAClassifier) {
  const ModelConfig config = Config(Arch::kEncoder);
  const Model model = Open(config);
  std::vector<float> logits(10);
  model.Classify(RandomTokens(config, kRows, 1), logits.data());
  const std::vector<int32_t> good = RandomTokens(config, 2, 1),
                             bad = RandomTokens(config, kRows + 1, 1);
  const std::vector<std::span<const int32_t>> both = {good, bad};
  EXPECT_NE(Refusal([&] { model.ClassifyBatch(both, logits.data()); }), "");
}

TEST_F(LearnedPositions, GenerationIsRefusedAtItsStart) {
  ModelConfig config = Config(Arch::kDecoder);
  config.vocab_size = 256;
  FinishConfig(config);
  const Model model = Open(config);
  const Tokenizer bytes = Tokenizer::Byte();
  const std::vector<int32_t> prompt{104, 105, 106};
  State state(model), fresh(model);
  GenerateOptions options;
  const auto run = [&](std::span<const int32_t> tokens) {
    return Refusal([&] { Generate(model, bytes, state, tokens, options, {}); });
  };
  options.max_tokens = 7;
  EXPECT_EQ(run(prompt),
            "generate: max_tokens: want at most 6: the model has 9 learned "
            "positions (max_positions), got 7");
  options.max_tokens = 0;
  EXPECT_EQ(run(std::vector<int32_t>(12, 'x')),
            "generate: prompt: want at most 9: the model has 9 learned "
            "positions (max_positions), got 12");
  EXPECT_TRUE(state == fresh);
  options.max_tokens = 6;
  EXPECT_EQ(Generate(model, bytes, state, prompt, options, {}).tokens, 6);
  EXPECT_EQ(state.position(), kRows);
  options.max_tokens = 1;
  EXPECT_NE(run({}), "");
  // Without a number it writes as many as there are positions for.
  state.Reset();
  EXPECT_EQ(Generate(model, bytes, state, prompt, {}, {}).tokens, 6);
  EXPECT_EQ(Generate(model, bytes, state, {}, {}, {}).tokens, 0);
}

TEST_F(LearnedPositions, OtherPositionsHaveNoEnd) {
  ModelConfig config = Config(Arch::kDecoder);
  config.positions = Positions::kSinusoidal;
  config.vocab_size = 256;
  FinishConfig(config);
  const Model model = Open(config);
  EXPECT_EQ(model.max_tokens(), std::numeric_limits<int64_t>::max());
  State state(model);
  EXPECT_EQ(Generate(model, Tokenizer::Byte(), state, {}, {}, {}).tokens,
            kDefaultTokens);
}

TEST_F(LearnedPositions, ImagesNeedARowForEachByteBeforeTheLast) {
  ModelConfig config = Config(Arch::kDecoder);
  config.vocab_size = 256;
  config.task = Task::kImage;
  config.image_height = 2;
  config.image_width = 5;
  config.image_channels = 1;
  FinishConfig(config);
  const std::vector<uint8_t> given{7};
  std::vector<uint8_t> image(10);
  std::vector<double> nats(1);
  {
    const Model model = Open(config);  // 9 rows for 10 bytes
    EXPECT_EQ(DrawImages(model, given, 1, {}, image.data()), 1);
    EXPECT_EQ(ScoreImages(model, image, 1, nats.data()), 1);
  }
  config.max_positions = kRows - 1;
  FinishConfig(config);
  const Model model = Open(config);
  const auto draw = [&] { DrawImages(model, given, 1, {}, image.data()); };
  EXPECT_EQ(Refusal(draw),
            "model: want max_positions of at least 9, the bytes of an image "
            "before its last, got 8");
  EXPECT_NE(Refusal([&] { ScoreImages(model, image, 1, nats.data()); }), "");
}

}  // namespace
}  // namespace tarn::testing
