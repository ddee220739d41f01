#include "mixers/linear/form_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/error.h"
#include "core/feature_map.h"

namespace tarn {
namespace {

TEST(Costs, FiguresOfTheLiterature) {
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

TEST(Costs, FlopEqualACountedRun) {
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

TEST(Costs, TheFormsCrossWhereTheFormulasSay) {
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

TEST(Costs, ScalingOfAModel) {
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
  // Each layer counts the heads that it has, and those of parallel mixers.
  ModelConfig mixed;
  mixed.n_layers = 2;
  mixed.layers =
      LayersFromText("linear:n_heads=8:d_key=16,linear+full:d_value=8");
  EXPECT_EQ(ScalingAt(mixed, 200).softmax_step_bytes,
            200 * 4 * (8 * (16 + 32) + 4 * (32 + 32) + 4 * (32 + 8)));
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
