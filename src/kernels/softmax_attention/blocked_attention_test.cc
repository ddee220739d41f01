#include "kernels/softmax_attention/blocked_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/error.h"
#include "kernels/softmax_attention/test_problem.h"

namespace tarn::testing {
namespace {

TEST(BlockedAttentionReference, GradientMatchesFiniteDifferences) {
  Kind kind;
  kind.batch = 1, kind.seq_len = 4, kind.key_len = 5, kind.d_key = 2;
  kind.d_value = 3;
  kind.options.scale = 0.7f;
  kind.options.local_context = 5;
  kind.options.dropout = {0.4, 3};
  kind.bias = kind.key_mask = kind.sinks = true;
  kind.options.softcap = 0.8f;
  AttentionProblem p = MakeAttention(kind, 9);
  std::mt19937_64 rng(1);
  const std::vector<double> grad = Random(4 * 2 * 3, rng);
  const auto loss = [&] {
    const std::vector<double> out = reference::SoftmaxAttention(p).out;
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * grad[i];
    return sum;
  };
  const auto g = reference::SoftmaxAttentionBackward(p, grad);
  const auto check = [&](std::vector<double>& x, const std::vector<double>& dx,
                         const char* name) {
    for (size_t i = 0; i < x.size(); ++i) {
      const double kept = x[i], step = 1e-5;
      x[i] = kept + step;
      const double above = loss();
      x[i] = kept - step;
      const double below = loss();
      x[i] = kept;
      EXPECT_NEAR((above - below) / (2 * step), dx[i], 1e-8) << name << i;
    }
  };
  check(p.queries, g.queries, "queries");
  check(p.keys, g.keys, "keys");
  check(p.values, g.values, "values");
  check(p.bias, g.bias, "bias");
  check(p.sinks, g.sinks, "sinks");
}

TEST_P(BlockedAttentionTest, MatchesTheDoubleReference) {
  double worst = 0, worst_gradient = 0;
  uint64_t seed = 1;
  for (const Kind& kind : Kinds()) {
    const AttentionProblem p = MakeAttention(kind, ++seed);
    SCOPED_TRACE(::testing::Message()
                 << "T " << p.seq_len << " S " << p.key_len << " causal "
                 << p.options.causal << " context " << p.options.local_context
                 << " window " << p.options.window << " cap "
                 << p.options.softcap << " sinks " << !p.sinks.empty()
                 << " case " << seed);
    KernelCall run(p);
    const double forward =
        Difference(reference::SoftmaxAttention(p).out, run.Forward(serial_));
    EXPECT_LT(forward, 2e-6);
    worst = std::max(worst, forward);
    std::mt19937_64 rng(seed);
    const std::vector<double> grad =
        Floats(p.batch * p.seq_len * p.heads * p.d_value, rng);
    const std::vector<int64_t> size = {p.batch, p.heads, p.seq_len, p.key_len};
    const auto want = reference::SoftmaxAttentionBackward(p, grad);
    const auto got = run.Backward(grad, serial_, size);
    for (const double difference :
         {Difference(want.queries, got.queries),
          Difference(want.keys, got.keys), Difference(want.values, got.values),
          Difference(want.bias, got.bias), Difference(want.sinks, got.sinks)}) {
      EXPECT_LT(difference, 4e-6);
      worst_gradient = std::max(worst_gradient, difference);
    }
  }
  RecordProperty("worst_forward", std::to_string(worst));
  RecordProperty("worst_gradient", std::to_string(worst_gradient));
}

TEST_P(BlockedAttentionTest, BiasGradientIsSummedToItsShape) {
  Kind kind;
  kind.seq_len = 70, kind.key_len = 75, kind.bias = true;
  kind.options.scale = 0.3f;
  kind.options.dropout = {0.2, 8};
  const AttentionProblem p = MakeAttention(kind, 4);
  KernelCall run(p);
  run.Forward(serial_);
  std::mt19937_64 rng(2);
  const std::vector<double> grad = Floats(2 * 70 * 2 * 7, rng);
  const auto want = reference::SoftmaxAttentionBackward(p, grad);
  const int64_t whole[] = {2, 2, 70, 75};
  for (int kept = 0; kept < 16; ++kept) {
    std::vector<int64_t> size(4);
    for (int a = 0; a < 4; ++a) size[a] = kept >> a & 1 ? whole[a] : 1;
    const auto got = run.Backward(grad, serial_, size);
    EXPECT_LT(Difference(SumTo(p, want.bias, size), got.bias), 1e-5)
        << "axes " << kept;
  }
}

// Scores of a thousand: the maximum is subtracted before exp, block by block.
TEST_P(BlockedAttentionTest, LargeScoresDoNotOverflow) {
  Kind kind;
  kind.seq_len = 150, kind.options.scale = 300.0f;
  const AttentionProblem p = MakeAttention(kind, 7);
  KernelCall run(p);
  // An fp32 score near 1000 is off by 1e-4, and weights follow.
  EXPECT_LT(
      Difference(reference::SoftmaxAttention(p).out, run.Forward(serial_)),
      2e-3);
}

// The oracle is a full sort of the reference's weights. Every third key is a
// copy of the one before it, so that ties are everywhere.
TEST_P(BlockedAttentionTest, TopkTakesTheHighestScoresAndTheFirstOfEqualOnes) {
  Kind kind;
  kind.seq_len = 100, kind.key_len = 150;
  kind.key_mask = kind.options.causal = true;
  kind.options.causal_offset = 20;
  for (const bool rich : {false, true}) {
    kind.mask = kind.bias = rich;
    AttentionProblem p = MakeAttention(kind, 5);
    const int64_t row = p.heads * p.d_key;
    for (int64_t j = 2; j < 150 && !rich; j += 3) {
      for (int64_t b = 0; b < 2; ++b) {
        const auto from = p.keys.begin() + (b * 150 + j - 1) * row;
        std::copy(from, from + row, from + row);
      }
    }
    const std::vector<double> weights = reference::SoftmaxAttention(p).weights;
    for (const int64_t width : {1, 7, 32, 150}) {
      KernelCall kernel(p);
      const std::vector<int64_t> got = kernel.Topk(width, serial_);
      ThreadPool pool(3);
      EXPECT_EQ(got, kernel.Topk(width, pool));
      for (int64_t r = 0; r < 2 * 2 * 100; ++r) {
        std::vector<int64_t> want;
        const double* of_row = weights.data() + r * 150;
        for (int64_t j = 0; j < 150; ++j) {
          if (of_row[j] > 0) want.push_back(j);
        }
        std::stable_sort(want.begin(), want.end(), [&](int64_t a, int64_t b) {
          return of_row[a] > of_row[b];
        });
        want.resize(std::min<size_t>(want.size(), width));
        std::sort(want.begin(), want.end());
        want.resize(width, -1);
        ASSERT_EQ(want, std::vector<int64_t>(got.begin() + r * width,
                                             got.begin() + (r + 1) * width))
            << "row " << r << " width " << width;
      }
    }
  }
}

TEST(BlockedAttentionErrors, NameTheArgument) {
  Kind kind;
  kind.seq_len = 6;
  SerialExecutor serial;
  AttentionProblem p = MakeAttention(kind, 1);
  p.key_lengths = {3, 7};
  try {
    KernelCall(p).Forward(serial);
    FAIL() << "a length beyond the keys was taken";
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("key_lengths[1]"),
              std::string::npos);
  }
  p.key_lengths.clear();
  p.options.local_context = -1;
  EXPECT_THROW(KernelCall(p).Forward(serial), ArgumentError);
  p.options.local_context = 0;
  p.options.window = 3;  // not causal
  EXPECT_THROW(KernelCall(p).Forward(serial), ArgumentError);
  p.options.window = 0;
  for (const float cap : {-1.0f, NAN, INFINITY}) {
    p.options.softcap = cap;
    EXPECT_THROW(KernelCall(p).Forward(serial), ArgumentError);
  }
  p.options.softcap = 0;
  p.options.dropout.probability = 1.0;
  EXPECT_THROW(KernelCall(p).Forward(serial), ArgumentError);
  float row[64] = {};
  BlockedAttentionInputs in;
  in.queries = in.keys = in.values = TensorView::Dense(row, 1, 2, 2, 4);
  BlockedAttentionOutputs out;
  out.out = in.queries;
  in.keys.size[3] = 3;
  EXPECT_THROW(CheckBlockedAttention({}, in, out), ShapeError);
  in.keys = in.queries;
  in.values.dtype = DType::kBF16;
  EXPECT_THROW(CheckBlockedAttention({}, in, out), DTypeError);
}

INSTANTIATE_TEST_SUITE_P(Targets, BlockedAttentionTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn::testing
