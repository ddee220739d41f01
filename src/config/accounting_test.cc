#include "config/accounting.h"
#include "core/feature_map.h"
#include "mixers/linear/form_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace tarn {
namespace {

ModelConfig RandomConfig(Arch arch, std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random()) % (high - low + 1);
  };
  ModelConfig config;
  config.arch = arch;
  config.vocab_size = pick(2, 300);
  config.n_heads = pick(1, 4);
  config.d_model = 2 * config.n_heads * pick(1, 9);
  config.n_layers = pick(1, 5);
  if (pick(0, 1) == 1) config.d_key = 2 * pick(1, 9);
  if (pick(0, 1) == 1) config.d_value = pick(1, 9);
  config.d_ff = pick(1, 90);
  config.max_positions = pick(1, 50);
  config.positions = static_cast<Positions>(pick(0, 2));
  config.final_norm = pick(0, 1) == 1;
  config.tied_head = pick(0, 1) == 1 && arch != Arch::kEncoder;
  config.kernel_size = pick(1, 6);
  if (pick(0, 2) == 0) config.attention = MixerKind("full");
  if (pick(0, 3) == 0) {
    config.attention = MixerKind("aft-full");
    config.d_key = config.d_value = 0;  // this kind needs them equal
  }
  if (pick(0, 2) == 0) SetKey(config, "feature_map", FeatureMap::kFavor);
  // The last kind is for decoders alone.
  config.feed_forward = static_cast<FeedForwardKind>(
      pick(0, arch == Arch::kDecoder ? 2 : 1));
  if (arch == Arch::kSeq2seq) config.n_decoder_layers = pick(1, 4);
  const bool classify =
      arch == Arch::kEncoder || (arch >= Arch::kRnn && pick(0, 1) == 1);
  if (classify) {
    config.task = Task::kClassify;
    config.n_classes = pick(2, 9);
    config.tied_head = false;
    config.bidirectional = arch == Arch::kLstm && pick(0, 1) == 1;
  }
  if (classify && arch <= Arch::kLstm && arch != Arch::kRnn &&
      pick(0, 1) == 1) {
    config.task = Task::kCtc;
    config.input_dim = pick(1, 50);
  }
  if (arch == Arch::kDecoder && pick(0, 1) == 1) {
    config.task = Task::kImage;
    config.n_mixtures = pick(1, 12);
    config.image_height = config.image_width = 5;
    config.image_channels = 3;
    config.vocab_size = 256;
    config.tied_head = false;
  }
  return config;
}

// Counts the parts by the names of the weights.
ParameterParts PartsByName(const ModelConfig& config) {
  ParameterParts parts;
  for (const auto& [name, shape] : WeightShapes(config)) {
    if (IsBuffer(name)) continue;
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    const auto has = [&name = name](const char* part) {
      return name.find(part) != std::string::npos;
    };
    (has("pos_embedding")               ? parts.positions
     : has("embedding")                 ? parts.embedding
     : has("input_projection")          ? parts.embedding
     : has("attention.")                ? parts.attention
     : has("linear1") || has("linear2") ? parts.feed_forward
     : has("linear3")                   ? parts.feed_forward
     : has("token_shift")               ? parts.feed_forward
     : has("norm")                      ? parts.norms
     : has("predictor")                 ? parts.head
                                        : parts.recurrent) += elements;
  }
  return parts;
}

class AccountingArch : public testing::TestWithParam<Arch> {};

TEST_P(AccountingArch, CountsEqualTheTensorsOfThirtyConfigurations) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()) + 1);
  for (int trial = 0; trial < 30; ++trial) {
    const ModelConfig config = RandomConfig(GetParam(), random);
    const ParameterParts got = CountParameterParts(config);
    const ParameterParts want = PartsByName(config);
    EXPECT_EQ(got.embedding, want.embedding);
    EXPECT_EQ(got.positions, want.positions);
    EXPECT_EQ(got.attention, want.attention);
    EXPECT_EQ(got.feed_forward, want.feed_forward);
    EXPECT_EQ(got.norms, want.norms);
    EXPECT_EQ(got.recurrent, want.recurrent);
    EXPECT_EQ(got.head, want.head);
    EXPECT_EQ(got.Total(), ParameterCount(config));
  }
}

INSTANTIATE_TEST_SUITE_P(All, AccountingArch,
                         testing::Values(Arch::kDecoder, Arch::kEncoder,
                                         Arch::kSeq2seq, Arch::kRnn,
                                         Arch::kLstm, Arch::kCnn),
                         [](const auto& info) { return Name(info.param); });

TEST(Accounting, FiguresOfTheLiterature) {
  // D = 256: 789,760 a layer, 3,159,552 / 6,318,592 / 12,636,672 for 4, 8, 16
  // layers with the final norm.
  for (const auto& [layers, want] : std::vector<std::pair<int64_t, int64_t>>{
           {4, 3'159'552}, {8, 6'318'592}, {16, 12'636'672}}) {
    ModelConfig config;
    config.d_model = 256;
    config.n_layers = layers;
    const ParameterParts parts = CountParameterParts(config);
    EXPECT_EQ(parts.attention + parts.feed_forward + parts.norms, want);
    // 12 D^2 a block; biases and norms, 13 D, are the rest.
    EXPECT_EQ(want - 2 * 256, layers * (TextbookParameters(256, 0) + 13 * 256));
  }
  EXPECT_EQ(TextbookParameters(256, 100), 12 * 256 * 256 + 100 * 256);
  const HeadWidths elu{32, 32, 32};
  EXPECT_EQ(CrossoverTokens(elu, false), 32);
  EXPECT_EQ(CrossoverTokens(elu, true), 64);
  ModelConfig poly;
  SetKey(poly, "feature_map", FeatureMap::kPoly2);
  poly.d_model = 128;
  EXPECT_EQ(HeadWidthsOf(poly).d_feature, 561);
  EXPECT_EQ(CrossoverTokens(HeadWidthsOf(poly), false), 561);
}

// Arithmetic that counts itself.
struct Counter {
  int64_t flop = 0;
  // sum += a * b
  void MultiplyAdd(double& sum, double a, double b) {
    sum += a * b;
    flop += 2;
  }
  void Add(double& sum, double a) {
    sum += a;
    flop += 1;
  }
};

using Matrix = std::vector<std::vector<double>>;  // [rows][columns]

Matrix Ones(int64_t rows, int64_t columns) {
  return Matrix(static_cast<size_t>(rows),
                std::vector<double>(static_cast<size_t>(columns), 1.0));
}

// Scalar softmax attention of one head by definition, with equal scores, so
// that the weights are 1 / (keys seen).
Matrix Softmax(const HeadWidths& head, int64_t n, bool causal, Counter& count) {
  const Matrix q = Ones(n, head.d_key), k = q, v = Ones(n, head.d_value);
  Matrix out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].assign(v[0].size(), 0.0);
    const size_t seen = causal ? i + 1 : out.size();
    for (size_t j = 0; j < seen; ++j) {
      double score = 0;
      for (size_t e = 0; e < q[i].size(); ++e) {
        count.MultiplyAdd(score, q[i][e], k[j][e]);
      }
      const double weight = score / static_cast<double>(head.d_key * seen);
      for (size_t m = 0; m < v[j].size(); ++m) {
        count.MultiplyAdd(out[i][m], weight, v[j][m]);
      }
    }
  }
  return out;
}

// Scalar linear attention of one head as a scan, on given features.
Matrix Linear(const HeadWidths& head, int64_t n, Counter& count) {
  const Matrix q = Ones(n, head.d_feature), k = q, v = Ones(n, head.d_value);
  Matrix state = Ones(head.d_feature, head.d_value);
  for (auto& row : state) std::fill(row.begin(), row.end(), 0.0);
  std::vector<double> z(static_cast<size_t>(head.d_feature), 0.0);
  Matrix out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) {
    double sum = 0;
    out[i].assign(v[0].size(), 0.0);
    for (size_t c = 0; c < z.size(); ++c) {
      count.Add(z[c], k[i][c]);
      for (size_t m = 0; m < v[i].size(); ++m) {
        count.MultiplyAdd(state[c][m], k[i][c], v[i][m]);
        count.MultiplyAdd(out[i][m], q[i][c], state[c][m]);
      }
      count.MultiplyAdd(sum, q[i][c], z[c]);
    }
    for (double& value : out[i]) value /= sum;
  }
  return out;
}

TEST(Accounting, FlopEqualACountedRun) {
  std::mt19937 random(9);
  for (int trial = 0; trial < 40; ++trial) {
    const auto pick = [&](int64_t most) {
      return 1 + static_cast<int64_t>(random()) % most;
    };
    const HeadWidths head{pick(9), pick(9), pick(20)};
    const int64_t n = pick(30);
    for (const bool causal : {false, true}) {
      Counter count;
      const Matrix out = Softmax(head, n, causal, count);
      EXPECT_NEAR(out.back()[0], 1.0, 1e-12);  // an average of ones
      EXPECT_EQ(count.flop, SoftmaxFlop(head, n, causal));
    }
    Counter count;
    EXPECT_NEAR(Linear(head, n, count).back()[0], 1.0, 1e-12);
    EXPECT_EQ(count.flop, LinearFlop(head, n));
    // A causal sequence costs the sum of its steps.
    int64_t steps = 0;
    for (int64_t past = 0; past < n; ++past) {
      steps += SoftmaxStepFlop(head, past);
    }
    EXPECT_EQ(steps, SoftmaxFlop(head, n, true));
    EXPECT_EQ(n * LinearStepFlop(head), LinearFlop(head, n));
  }
}

TEST(Accounting, TheFormsCrossWhereTheFormulasSay) {
  const HeadWidths head{24, 40, 100};
  // Leading terms only: z adds 3C per token.
  const auto n = static_cast<int64_t>(CrossoverTokens(head, false));
  EXPECT_LT(SoftmaxFlop(head, n / 2, false), LinearFlop(head, n / 2));
  EXPECT_GT(SoftmaxFlop(head, 2 * n, false), LinearFlop(head, 2 * n));
  const auto step = static_cast<int64_t>(StepCrossoverTokens(head));
  EXPECT_LE(SoftmaxStepFlop(head, step), LinearStepFlop(head));
  EXPECT_GT(SoftmaxStepFlop(head, step + 1), LinearStepFlop(head));
  const auto memory = static_cast<int64_t>(MemoryCrossoverTokens(head));
  EXPECT_LE(SoftmaxCacheBytes(head, memory), LinearStateBytes(head));
  EXPECT_GT(SoftmaxCacheBytes(head, memory + 1), LinearStateBytes(head));
}

TEST(Accounting, ScalingOfAModel) {
  ModelConfig config;
  const TokenScaling at100 = ScalingAt(config, 100);
  const TokenScaling at200 = ScalingAt(config, 200);
  EXPECT_EQ(at100.linear_step_flop, at200.linear_step_flop);
  EXPECT_EQ(at100.linear_step_bytes, at200.linear_step_bytes);
  // 4 layers x 4 heads x 2 (32 + 32) per further token; caches of 4 bytes.
  EXPECT_EQ(at200.softmax_step_flop - at100.softmax_step_flop,
            100 * 16 * 2 * 64);
  EXPECT_EQ(at200.softmax_step_bytes, 200 * 16 * 4 * 64);
  EXPECT_EQ(at200.softmax_parallel_flop - at100.softmax_parallel_flop,
            100 * 16 * 64);
  EXPECT_EQ(at100.linear_parallel_flop,
            static_cast<double>(at100.linear_step_flop));
  EXPECT_THROW(ScalingAt(config, 0), ArgumentError);
  config.arch = Arch::kLstm;
  EXPECT_THROW(ScalingAt(config, 10), ArgumentError);

  // Frames are multiplied by their projection, where tokens are looked up:
  // 2 input_dim d_model a frame, and the bias.
  ModelConfig tokens;
  tokens.arch = Arch::kEncoder;
  tokens.n_classes = 11;
  ModelConfig frames = tokens;
  frames.task = Task::kCtc;
  frames.input_dim = 40;
  EXPECT_EQ(ScalingAt(frames, 9).linear_step_flop -
                ScalingAt(tokens, 9).linear_step_flop,
            2 * 41 * 128);
}

}  // namespace
}  // namespace tarn
