// A model held in a format that product code does not know: prompts, steps and
// batches have the bits of the float32 model of the same weights.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "int8_groups.h"
#include "kernels/matmul/weight_matrix.h"
#include "reference/test_model.h"
#include "runtime/model/model.h"
#include "weights/quantised/group_encodings.h"

namespace tarn::testing {
namespace {

// The format of a matrix: embeddings and heads keep 8 bits, and groups are
// those that take the fewest bytes.
const WeightFormat& Holding(const std::string& name,
                            const std::vector<int64_t>& shape,
                            const WeightFormat& format) {
  if (format.scheme == nullptr) return format;
  const bool tokens =
      name == "value_embedding.weight" || name == "predictor.weight";
  const auto scheme =
      FittingScheme(tokens ? *kInt8Weights.scheme : *format.scheme, shape);
  return *FormatOf(*scheme);
}

// The tensors that a model packs as matrices, as the format holds them.
Tensors Rounded(const ModelConfig& config, Tensors tensors,
                const WeightFormat& format) {
  for (const auto& [name, shape] : WeightShapes(config)) {
    if (shape.size() != 2 || name == "pos_embedding.weight") continue;
    std::vector<float>& values = tensors[name];
    WeightMatrix held(shape[0], shape[1], Holding(name, shape, format));
    held.SetRows(0, shape[0], values.data(), nullptr);
    for (int64_t row = 0; row < shape[0]; ++row) {
      held.ReadRow(row, values.data() + row * shape[1]);
    }
  }
  return tensors;
}

// Scores, single steps and steps of two sequences give the logits `want`.
void ExpectLogits(const Model& held, const std::vector<int32_t>& tokens,
                  const std::vector<float>& want) {
  const size_t vocab = static_cast<size_t>(held.vocab_size());
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
      Job jobs[] = {{&steps, {&tokens[i], 1}, logits.data(), false},
                    {&other, {&tokens[i], 1}, logits.data() + vocab, false}};
      held.StepBatch(jobs);
    }
    EXPECT_EQ(row, std::vector<float>(logits.begin(), logits.begin() + vocab));
    EXPECT_EQ(row, std::vector<float>(logits.begin() + vocab, logits.end()));
  }
}

// Formats whose products are float32 ones have the bits of the float32 model of
// the weights that they hold; the others have their own, which do not depend on
// how the tokens come or on threads.
TEST(FormatModelTest, RunsPromptsStepsAndBatches) {
  const std::vector<const WeightFormat*> formats = {
      &kInt8Groups,
      &ExactFormat(kInt8Weights),
      &ExactFormat(kInt4Weights),
      &ExactFormat(kInt4MinimumWeights128),
      &kInt8Weights,
      &kInt4Weights,
      &kInt4MinimumWeights};
  for (const char* attention : {"linear", "full"}) {
    ModelConfig config = WideConfig();
    config.attention = MixerKind(attention);
    config.positions = Positions::kRotary;
    FinishConfig(config);
    const Tensors tensors = RandomTensors(config, 1);
    const TemporaryFolder given;
    WriteModel(given.path(), config, tensors);
    const auto tokens = RandomTokens(config, 60, 2);
    for (const WeightFormat* format : formats) {
      const bool exact = &ExactFormat(*format) == format;
      const TemporaryFolder rounded;
      WriteModel(rounded.path(), config, Rounded(config, tensors, *format));
      const Model plain = Model::Open(rounded.path(), {.threads = 1}).Take();
      std::vector<float> want(tokens.size() *
                              static_cast<size_t>(config.vocab_size));
      State first(plain);
      plain.Score(first, tokens, want.data());
      for (const int threads : {1, 3}) {
        const Model held =
            Model::Open(given.path(), {.weights = *format, .threads = threads})
                .Take();
        EXPECT_STREQ(format->name, Name(held.options().weights));
        EXPECT_LT(held.weight_bytes(), plain.weight_bytes() / 2);
        EXPECT_EQ(held.parameters(), plain.parameters());
        if (!exact && threads == 1) {
          const std::vector<float> near = want;
          State state(held);
          held.Score(state, tokens, want.data());
          EXPECT_NE(near, want);
          double error = 0, size = 0;
          for (size_t i = 0; i < want.size(); ++i) {
            error += (double{want[i]} - near[i]) * (double{want[i]} - near[i]);
            size += double{near[i]} * near[i];
          }
          // Inputs rounded to 8 bits: one percent of each product.
          EXPECT_LT(error, 0.05 * 0.05 * size) << format->name;
        }
        ExpectLogits(held, tokens, want);
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
