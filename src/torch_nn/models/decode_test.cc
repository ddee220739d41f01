// Greedy and beam search against every sequence there is, on a model small
// enough to list them.
#include "torch_nn/models/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/test_util.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace decode_test {

constexpr int64_t kVocab = 4, kStart = 3, kEnd = 2;
constexpr int64_t kMaxLen = 4;

Seq2Seq TinyModel(AttentionKind kind, uint64_t seed) {
  ModelConfig config;
  config.arch = Arch::kSeq2seq;
  config.attention = kind;
  config.vocab_size = kVocab;
  config.d_model = 8;
  config.n_layers = 1;
  config.n_heads = 2;
  config.d_ff = 12;
  config.max_positions = 24;
  torch::manual_seed(seed);
  Seq2Seq model(config);
  model->eval();
  // Sharper than at initialisation: the beginnings of sequences differ.
  torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.mul_(2.0);
  return model;
}

torch::Tensor Sources() {
  return torch::tensor({{0, 1, 2, 1, 0}, {3, 3, 0, 0, 0}}, torch::kInt64);
}
torch::Tensor Lengths() { return torch::tensor({5, 2}, torch::kInt64); }

DecodeOptions Options(int64_t beam, double penalty = 1.0) {
  return {beam, kMaxLen, penalty, kStart, kEnd};
}

// log p of tokens (and the end, where finished) given source b, in one call.
double LogProbability(Seq2Seq& model, int64_t b, std::vector<int64_t> tokens,
                      bool finished) {
  if (finished) tokens.push_back(kEnd);
  std::vector<int64_t> read = {kStart};
  read.insert(read.end(), tokens.begin(), tokens.end() - 1);
  Batch batch;
  batch.tokens = Sources().narrow(0, b, 1);
  batch.lengths = Lengths().narrow(0, b, 1);
  batch.target_in = torch::tensor(read, torch::kInt64).unsqueeze(0);
  const torch::Tensor rows =
      torch::log_softmax(model->Logits(batch)[0].to(torch::kFloat64), -1);
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    sum += rows[static_cast<int64_t>(i)][tokens[i]].item<double>();
  }
  return sum;
}

// All sequences of up to kMaxLen tokens, the end included, best first.
std::vector<Hypothesis> Exhaustive(Seq2Seq& model, int64_t b, double penalty) {
  std::vector<Hypothesis> all;
  std::vector<std::vector<int64_t>> open = {{}};
  for (int64_t length = 1; length <= kMaxLen; ++length) {
    std::vector<std::vector<int64_t>> longer;
    const auto add = [&](const std::vector<int64_t>& tokens, bool finished) {
      const double p = LogProbability(model, b, tokens, finished);
      all.push_back({tokens, p,
                     p / std::pow(static_cast<double>(length), penalty),
                     finished});
    };
    for (const auto& tokens : open) {
      add(tokens, true);
      for (int64_t token = 0; token < kVocab; ++token) {
        if (token == kEnd) continue;
        longer.push_back(tokens);
        longer.back().push_back(token);
        if (length == kMaxLen) add(longer.back(), false);
      }
    }
    open = std::move(longer);
  }
  std::sort(all.begin(), all.end(), [](const auto& x, const auto& y) {
    if (x.finished != y.finished) return x.finished;
    return x.score > y.score;
  });
  return all;
}

class DecodeTest : public ::testing::TestWithParam<AttentionKind> {
 protected:
  torch::NoGradGuard no_grad_;
};

TEST_P(DecodeTest, WideBeamFindsEverySequence) {
  Seq2Seq model = TinyModel(GetParam(), 1);
  for (const double penalty : {0.0, 0.7, 1.0}) {
    const auto found =
        BeamSearch(*model, Sources(), Lengths(), Options(500, penalty));
    ASSERT_EQ(found.size(), 2u);
    for (int64_t b = 0; b < 2; ++b) {
      const auto want = Exhaustive(model, b, penalty);
      // 1 + 3 + 9 + 27 that end, 81 that do not.
      ASSERT_EQ(want.size(), 121u);
      const auto& have = found[static_cast<size_t>(b)];
      ASSERT_EQ(have.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(have[i].finished, want[i].finished);
        EXPECT_NEAR(have[i].score, want[i].score, 1e-5) << i;
        EXPECT_NEAR(have[i].log_probability,
                    LogProbability(model, b, have[i].tokens, have[i].finished),
                    1e-5);
      }
      EXPECT_EQ(have[0].tokens, want[0].tokens);
    }
  }
}

TEST_P(DecodeTest, BeamOfOneIsGreedy) {
  int ended = 0, cut = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Seq2Seq model = TinyModel(GetParam(), seed);
    const auto greedy = GreedyDecode(*model, Sources(), Lengths(), Options(1));
    const auto beams = BeamSearch(*model, Sources(), Lengths(), Options(1));
    ASSERT_EQ(greedy.size(), 2u);
    for (int64_t b = 0; b < 2; ++b) {
      const Hypothesis& one = greedy[static_cast<size_t>(b)];
      ASSERT_EQ(beams[static_cast<size_t>(b)].size(), 1u);
      EXPECT_EQ(beams[static_cast<size_t>(b)][0].tokens, one.tokens);
      EXPECT_EQ(beams[static_cast<size_t>(b)][0].finished, one.finished);
      EXPECT_NEAR(beams[static_cast<size_t>(b)][0].score, one.score, 1e-5);
      // The likeliest token after each beginning.
      std::vector<int64_t> tokens;
      for (int64_t i = 0; i < kMaxLen; ++i) {
        std::vector<double> p;
        for (int64_t token = 0; token < kVocab; ++token) {
          std::vector<int64_t> longer = tokens;
          longer.push_back(token);
          p.push_back(LogProbability(model, b, longer, false));
        }
        const int64_t best = std::max_element(p.begin(), p.end()) - p.begin();
        if (best == kEnd) break;
        tokens.push_back(best);
      }
      EXPECT_EQ(one.tokens, tokens) << seed;
      (one.finished ? ended : cut)++;
    }
  }
  EXPECT_GT(ended, 0);
  EXPECT_GT(cut, 0);
}

TEST_P(DecodeTest, WiderBeamsNeverScoreLessAndRowsAreAlone) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Seq2Seq model = TinyModel(GetParam(), seed);
    for (const int64_t beam : {2, 3}) {
      const auto found =
          BeamSearch(*model, Sources(), Lengths(), Options(beam, 0.0));
      for (int64_t b = 0; b < 2; ++b) {
        const auto& have = found[static_cast<size_t>(b)];
        EXPECT_LE(static_cast<int64_t>(have.size()), beam);
        const auto alone = BeamSearch(
            *model, Sources().narrow(0, b, 1).narrow(1, 0, b == 0 ? 5 : 2), {},
            Options(beam, 0.0))[0];
        ASSERT_EQ(alone.size(), have.size());
        for (size_t i = 0; i < have.size(); ++i) {
          EXPECT_EQ(alone[i].tokens, have[i].tokens);
          EXPECT_NEAR(
              have[i].log_probability,
              LogProbability(model, b, have[i].tokens, have[i].finished), 1e-5);
        }
      }
    }
  }
}

TEST_P(DecodeTest, EndsWithTheLearnedPositions) {
  // The table of another model, cut after the source's five rows.
  Seq2Seq whole = TinyModel(GetParam(), 1);
  ModelConfig config = whole->config();
  ASSERT_EQ(config.positions, Positions::kLearned);
  config.max_positions = 5;
  Seq2Seq cut(config);
  cut->eval();
  auto weights = whole->named_parameters();
  for (auto& item : cut->named_parameters()) {
    item.value().copy_(weights[item.key()].narrow(0, 0, item.value().size(0)));
  }
  DecodeOptions options = Options(3), five = options;
  options.max_len = 1000;
  five.max_len = 5;
  const auto got = BeamSearch(*cut, Sources(), Lengths(), options);
  const auto want = BeamSearch(*whole, Sources(), Lengths(), five);
  const auto greedy = GreedyDecode(*cut, Sources(), Lengths(), options);
  const auto greedy_want = GreedyDecode(*whole, Sources(), Lengths(), five);
  for (size_t b = 0; b < 2; ++b) {
    ASSERT_EQ(got[b].size(), want[b].size());
    for (size_t i = 0; i < got[b].size(); ++i) {
      EXPECT_EQ(got[b][i].tokens, want[b][i].tokens);
      EXPECT_EQ(got[b][i].finished, want[b][i].finished);
    }
    EXPECT_EQ(greedy[b].tokens, greedy_want[b].tokens);
    EXPECT_EQ(greedy[b].finished, greedy_want[b].finished);
  }
  EXPECT_THROW(cut->Encode(torch::zeros({1, 6}, torch::kInt64), {}),
               ArgumentError);
}

TEST_P(DecodeTest, EdgesAndErrors) {
  Seq2Seq model = TinyModel(GetParam(), 1);
  DecodeOptions none = Options(2);
  none.max_len = 0;
  const auto empty = BeamSearch(*model, Sources(), Lengths(), none);
  ASSERT_EQ(empty[0].size(), 1u);
  EXPECT_TRUE(empty[0][0].tokens.empty());
  EXPECT_FALSE(empty[0][0].finished);
  EXPECT_TRUE(
      BeamSearch(*model, Sources().slice(0, 0, 0), {}, Options(2)).empty());
  EXPECT_TRUE(GreedyDecode(*model, Sources().slice(0, 0, 0)).empty());
  const auto refused = [&](auto change, const std::string& where) {
    DecodeOptions options = Options(2);
    change(options);
    EXPECT_EQ(ErrorOf([&] {
                BeamSearch(*model, Sources(), Lengths(), options);
              }).where(),
              where);
  };
  refused([](DecodeOptions& o) { o.beam = 0; }, "decode: beam");
  refused([](DecodeOptions& o) { o.max_len = -1; }, "decode: max_len");
  refused([](DecodeOptions& o) { o.length_penalty = -1; },
          "decode: length_penalty");
  refused([](DecodeOptions& o) { o.start = kVocab; }, "decode: start");
  refused([](DecodeOptions& o) { o.end = -1; }, "decode: end");
  model->parameters().back().fill_(NAN);
  EXPECT_EQ(ErrorOf([&] { GreedyDecode(*model, Sources()); }).code(),
            ErrorCode::kNumeric);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DecodeTest,
                         ::testing::Values(MixerKind("linear"),
                                           MixerKind("full")));

}  // namespace decode_test
}  // namespace tarn::nn
