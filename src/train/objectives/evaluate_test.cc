#include "train/objectives/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/test_util.h"
#include "torch_nn/models/language_model.h"

namespace tarn::train {
namespace evaluate_test {

struct Fixture {
  static std::string Text() {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      text += "caf\xC3\xA9 " + std::to_string(i * 37) + "\n%\n";
    }
    return text;
  }
  static nn::LanguageModel Model(int64_t vocab_size) {
    ModelConfig config;
    config.vocab_size = vocab_size;
    config.d_model = 16;
    config.n_layers = 1;
    config.n_heads = 2;
    config.max_positions = 12;
    config.dropout = 0.5;  // must not act outside training
    FinishConfig(config);
    torch::manual_seed(3);
    return nn::LanguageModel(config);
  }
  explicit Fixture(TokenizerKind kind)
      : files({dir.Write("text", Text())}, dir.path()),
        split(SplitRecords(files, RecordMode::kAuto)),
        corpus(files, split, BuildTokenizer(files, kind), 12, 1 << 20),
        model(Model(corpus.tokenizer().vocab_size())) {}

  TemporaryFolder dir;
  TextFiles files;
  RecordSplit split;
  Corpus corpus;
  nn::LanguageModel model;
};

// One window at a time, log-softmax in double: the oracle of the sums.
HeldOutLoss Reference(nn::LanguageModel& model, const Corpus& corpus) {
  torch::NoGradGuard no_grad;
  model->eval();
  HeldOutLoss loss;
  for (int64_t i = 0; i < corpus.held_out_windows(); ++i) {
    const Window window = corpus.HeldOutWindow(i);
    std::vector<int64_t> tokens(window.tokens.begin(), window.tokens.end());
    const auto length = static_cast<int64_t>(tokens.size()) - 1;
    const torch::Tensor logits =
        model->forward(torch::tensor(tokens).slice(0, 0, length).unsqueeze(0))
            .to(torch::kFloat64)[0];
    for (int64_t t = 0; t < length; ++t) {
      double sum = 0;
      for (int64_t v = 0; v < logits.size(1); ++v) {
        sum += std::exp(logits[t][v].item<double>());
      }
      loss.nats += std::log(sum) - logits[t][tokens[t + 1]].item<double>();
    }
    loss.tokens += length;
    loss.bytes += window.target_bytes;
  }
  return loss;
}

class EvaluateTest : public testing::TestWithParam<TokenizerKind> {};

TEST_P(EvaluateTest, SumsEveryHeldOutTokenOnce) {
  Fixture f(GetParam());
  const HeldOutLoss want = Reference(f.model, f.corpus);
  f.model->train();
  const HeldOutLoss got = Evaluate(*f.model, f.corpus, 12);
  // float32 sums of rows of 16 windows.
  EXPECT_NEAR(got.nats / want.nats, 1, 1e-5);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.bytes, want.bytes);
  EXPECT_EQ(got.bytes, static_cast<int64_t>(f.corpus.held_out_bytes()) - 1);
  EXPECT_EQ(got.tokens < got.bytes, GetParam() == TokenizerKind::kChar);
  EXPECT_DOUBLE_EQ(got.bits_per_byte(),
                   got.nats / (static_cast<double>(got.bytes) * std::log(2)));
  EXPECT_TRUE(f.model->is_training());
}

TEST_P(EvaluateTest, SamplesAreRepeatableAndLeaveTrainingAlone) {
  Fixture f(GetParam());
  torch::manual_seed(9);
  const torch::Tensor want = torch::rand({4});
  torch::manual_seed(9);
  const std::string text = SampleText(*f.model, f.corpus, 12, 30, 1);
  EXPECT_TRUE(torch::equal(torch::rand({4}), want));
  EXPECT_EQ(SampleText(*f.model, f.corpus, 12, 30, 1), text);
  EXPECT_NE(SampleText(*f.model, f.corpus, 12, 30, 2), text);
  EXPECT_TRUE(f.model->is_training());
}

INSTANTIATE_TEST_SUITE_P(Kinds, EvaluateTest,
                         testing::Values(TokenizerKind::kByte,
                                         TokenizerKind::kChar));

TEST(MakeRowsTest, ShortWindowsAreFilledWithIgnoredTargets) {
  const Rows rows = MakeRows({{{1, 2, 3, 4}, 3}, {{5, 6}, 1}}, 3);
  EXPECT_TRUE(torch::equal(rows.inputs, torch::tensor({{1, 2, 3}, {5, 0, 0}})));
  EXPECT_TRUE(torch::equal(rows.targets,
                           torch::tensor({{2, 3, 4},
                                          {6, static_cast<int>(kIgnored),
                                           static_cast<int>(kIgnored)}})));
  EXPECT_EQ(rows.target_bytes, 4);
}

}  // namespace evaluate_test
}  // namespace tarn::train
