// A model held in a format that product code does not know: prompts, steps and
// batches have the bits of the float32 model of the same weights.
#include <gtest/gtest.h>

#include <vector>

#include "int8_groups.h"
#include "reference/test_model.h"
#include "runtime/model/model.h"

namespace tarn::testing {
namespace {

// The tensors that a model packs as matrices, rounded as the format does.
Tensors Rounded(const ModelConfig& config, Tensors tensors) {
  for (const auto& [name, shape] : WeightShapes(config)) {
    if (shape.size() != 2 || name == "pos_embedding.weight") continue;
    tensors[name] = RoundedToInt8Groups(tensors[name], shape[0], shape[1]);
  }
  return tensors;
}

TEST(FormatModelTest, RunsPromptsStepsAndBatches) {
  for (const char* attention : {"linear", "full"}) {
    ModelConfig config = WideConfig();
    config.attention = MixerKind(attention);
    config.positions = Positions::kRotary;
    FinishConfig(config);
    const Tensors tensors = RandomTensors(config, 1);
    const TemporaryFolder given, rounded;
    WriteModel(given.path(), config, tensors);
    WriteModel(rounded.path(), config, Rounded(config, tensors));
    const Model plain = Model::Open(rounded.path(), {.threads = 1}).Take();
    const auto tokens = RandomTokens(config, 60, 2);
    const size_t vocab = static_cast<size_t>(config.vocab_size);
    std::vector<float> want(tokens.size() * vocab);
    State first(plain);
    plain.Score(first, tokens, want.data());
    for (const int threads : {1, 3}) {
      const Model held = Model::Open(given.path(), {.weights = kInt8Groups,
                                                    .threads = threads})
                             .Take();
      EXPECT_STREQ("int8-groups", Name(held.options().weights));
      EXPECT_LT(held.weight_bytes(), plain.weight_bytes() / 2);
      EXPECT_EQ(held.parameters(), plain.parameters());
      std::vector<float> got(want.size());
      State state(held);
      held.Score(state, tokens, got.data());
      EXPECT_EQ(want, got);
      State steps(held), other(held);
      std::vector<float> logits(2 * vocab);
      for (size_t i = 0; i < tokens.size(); ++i) {
        const std::vector<float> row(want.begin() + i * vocab,
                                     want.begin() + (i + 1) * vocab);
        if (i % 2 == 0) {
          held.Step(steps, tokens[i], logits.data());
          held.Step(other, tokens[i], logits.data() + vocab);
        } else {
          Job jobs[] = {
              {&steps, {&tokens[i], 1}, logits.data(), false},
              {&other, {&tokens[i], 1}, logits.data() + vocab, false}};
          held.StepBatch(jobs);
        }
        EXPECT_EQ(row,
                  std::vector<float>(logits.begin(), logits.begin() + vocab));
        EXPECT_EQ(row,
                  std::vector<float>(logits.begin() + vocab, logits.end()));
      }
    }
  }
}

// It has no word: programs offer the formats of the list.
TEST(FormatModelTest, ProgramsDoNotKnowIt) {
  EXPECT_THROW(ParseWeightType("--weights", kInt8Groups.name), ArgumentError);
  EXPECT_EQ((std::vector<std::string>{"auto", "f32", "bf16", "int8", "int4"}),
            WeightTypeWords());
  EXPECT_EQ(WeightType::kBF16, ParseWeightType("--weights", "bf16"));
}

}  // namespace
}  // namespace tarn::testing
