// Vectors of texts: the rows that the head reads, pooled, with the same bits
// however they are cut.
#include "runtime/generate/embed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "reference/test_model.h"

namespace tarn::testing {
namespace {

using Texts = std::vector<std::vector<int32_t>>;

struct OpenedModel {
  TemporaryFolder folder;
  ModelConfig config;
  Tensors tensors;
  std::vector<Model> models;  // of 1, 2 and 3 threads

  explicit OpenedModel(const char* layers, bool final_norm = true,
                       Positions positions = Positions::kNone) {
    config = WideConfig();
    config.positions = positions;
    config.final_norm = final_norm;
    SetLayers(config, layers);
    config.d_value = config.d_key;
    FinishConfig(config);
    tensors = RandomTensors(config, 1);
    WriteModel(folder.path(), config, tensors);
    for (const int threads : {1, 2, 3}) {
      models.push_back(Model::Open(folder.path(), {.threads = threads}).Take());
    }
  }
  // The head of a row, in double.
  std::vector<double> Head(std::span<const double> row) const {
    const std::vector<float>& weight = tensors.at("predictor.weight");
    const auto bias = tensors.find("predictor.bias");
    std::vector<double> logits;
    for (size_t i = 0; i < weight.size() / row.size(); ++i) {
      double sum = bias == tensors.end() ? 0 : bias->second[i];
      for (size_t k = 0; k < row.size(); ++k) {
        sum += row[k] * double{weight[i * row.size() + k]};
      }
      logits.push_back(sum);
    }
    return logits;
  }
  Texts RandomTexts(size_t count, int64_t longest, uint64_t seed) const {
    Rng rng(seed);
    Texts texts;
    for (size_t i = 0; i < count; ++i) {
      const auto size =
          1 + static_cast<int64_t>(rng.Below(static_cast<uint64_t>(longest)));
      texts.push_back(RandomTokens(config, size, rng.Next()));
    }
    return texts;
  }
};

double Length(std::span<const float> vector) {
  double squares = 0;
  for (const float x : vector) squares += double{x} * double{x};
  return std::sqrt(squares);
}

// The head of the last row gives the logits; the head of the mean gives their
// mean, since the head is linear.
TEST(Embed, TheRowsAreThoseOfTheLogits) {
  for (const bool final_norm : {true, false}) {
    const OpenedModel opened("gdn,full", final_norm);
    const Model& model = opened.models[1];
    const auto outputs = static_cast<size_t>(model.n_outputs());
    for (const int64_t count : {1, 7, 300}) {
      const auto tokens = RandomTokens(opened.config, count, 5);
      std::vector<float> logits(tokens.size() * outputs);
      State scored(model);
      model.Score(scored, tokens, logits.data());
      for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
        PooledRows rows(pooling, opened.config.d_model);
        State state(model);
        std::vector<Job> jobs{
            {.state = &state, .tokens = tokens, .pooled = &rows}};
        model.StepBatch(jobs);
        EXPECT_EQ(pooling == Pooling::kMean ? count : 1, rows.count());
        std::vector<double> mean(rows.sums().begin(), rows.sums().end());
        for (double& x : mean) x /= static_cast<double>(rows.count());
        const std::vector<double> head = opened.Head(mean);
        for (size_t i = 0; i < outputs; ++i) {
          double want = 0;
          const size_t first =
              pooling == Pooling::kMean ? 0 : tokens.size() - 1;
          for (size_t t = first; t < tokens.size(); ++t) {
            want += double{logits[t * outputs + i]};
          }
          want /= static_cast<double>(tokens.size() - first);
          // Products of 192 floats.
          EXPECT_NEAR(want, head[i], 1e-4) << count << " " << Name(pooling);
        }
      }
    }
  }
}

TEST(Embed, LogitsAndRowsMayBeAskedForAtOnce) {
  const OpenedModel opened("gdn,full");
  const Model& model = opened.models[1];
  const auto tokens = RandomTokens(opened.config, 9, 5);
  std::vector<float> want(static_cast<size_t>(model.n_outputs()));
  std::vector<float> got(want.size());
  State plain(model), state(model);
  model.Prefill(plain, tokens, want.data());
  PooledRows rows(Pooling::kMean, opened.config.d_model);
  std::vector<Job> jobs{{&state, tokens, got.data(), false, &rows}};
  model.StepBatch(jobs);
  EXPECT_EQ(want, got);
  EXPECT_TRUE(state == plain);
  EXPECT_EQ(9, rows.count());
}

// Single tokens run in the region of the team where logits are asked for.
TEST(Embed, AnySplitBatchAndThreadCountGiveTheSameBits) {
  for (const char* layers : {"gdn,full", "mamba2,rwkv7", "linear"}) {
    const OpenedModel opened(layers);
    const Texts texts = opened.RandomTexts(20, 90, 3);
    for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
      std::vector<float> want;
      for (const auto& text : texts) {
        const auto one = EmbedTexts(opened.models[0], {text}, pooling);
        EXPECT_NEAR(1.0, Length(one), 1e-6);
        want.insert(want.end(), one.begin(), one.end());
      }
      for (const Model& model : opened.models) {
        EXPECT_EQ(want, EmbedTexts(model, texts, pooling)) << layers;
        for (const int64_t most : {1, 3, 50, 1000}) {
          Embedder embedder(model, texts, pooling);
          std::vector<Job> jobs;
          while (!embedder.done()) {
            jobs.clear();
            const int64_t tokens = embedder.AddJobs(most, jobs);
            EXPECT_GE(tokens, 1);
            EXPECT_LE(tokens, most);
            model.StepBatch(jobs);
            embedder.JobsDone();
          }
          EXPECT_EQ(want, embedder.vectors()) << layers << " " << most;
        }
      }
    }
  }
}

TEST(Embed, RefusesWhatHasNoVector) {
  const OpenedModel opened("linear", true, Positions::kLearned);
  const Model& model = opened.models[0];
  EXPECT_TRUE(EmbedTexts(model, {}, Pooling::kMean).empty());
  EXPECT_THROW(EmbedTexts(model, {{1}, {}}, Pooling::kMean), ArgumentError);
  EXPECT_THROW(EmbedTexts(model, {{1}, {-1}}, Pooling::kMean), ArgumentError);
  const auto most = static_cast<size_t>(model.max_tokens());
  EXPECT_THROW(
      EmbedTexts(model, {std::vector<int32_t>(most + 1)}, Pooling::kMean),
      ArgumentError);
  EXPECT_THROW(ParsePooling("pooling", "max"), ArgumentError);
  EXPECT_EQ(Pooling::kLast, ParsePooling("pooling", "last"));
  const TemporaryFolder folder;
  const ModelConfig encoder = SmallConfigOf(Arch::kEncoder);
  WriteModel(folder.path(), encoder, RandomTensors(encoder, 1));
  const Model classifier = Model::Open(folder.path()).Take();
  EXPECT_THROW(EmbedTexts(classifier, {{1}}, Pooling::kMean), ArgumentError);
}

TEST(Embed, AStopEndsIt) {
  const OpenedModel opened("linear");
  const Texts texts = opened.RandomTexts(50, 90, 3);
  try {
    EmbedTexts(opened.models[0], texts, Pooling::kMean, [] { return true; });
    FAIL() << "it was not stopped";
  } catch (const Error& error) {
    EXPECT_EQ(ErrorCode::kInterrupted, error.code());
  }
}

TEST(Embed, NaNIsAnError) {
  PooledRows rows(Pooling::kMean, 2);
  std::vector<float> vector(2, 7.0f);
  rows.Write(vector.data());
  EXPECT_EQ(0.0f, vector[0]);
  const float bad[] = {1.0f, std::numeric_limits<float>::quiet_NaN()};
  rows.Add(bad);
  EXPECT_THROW(rows.Write(vector.data()), NumericError);
}

}  // namespace
}  // namespace tarn::testing
