// Recurrent form: step and prefill against the double reference and against the
// chunked form; bits independent of how a prompt is split.
#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"
#include "core/rng.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/test_problem.h"

namespace tarn::testing {
namespace {

struct Stream {
  std::vector<double> out;
  std::vector<float> S, z;
};

// Feeds the problem's tokens as runs of the given lengths; a run of one token
// goes through Step, others through Prefill.
Stream Feed(const Problem& p, const std::vector<int64_t>& runs, DType dtype,
            bool spread, Executor& executor) {
  GuardedTensor q(1, p.seq_len_q, p.heads, p.d_key, dtype, spread);
  GuardedTensor k(1, p.seq_len_q, p.heads, p.d_key, dtype, spread);
  GuardedTensor v(1, p.seq_len_q, p.value_heads, p.d_value, dtype, spread);
  GuardedTensor out(1, p.seq_len_q, p.value_heads, p.d_value, dtype, spread);
  q.Fill(0, 0, p.queries);
  k.Fill(0, 0, p.keys);
  v.Fill(0, 0, p.values);
  Stream s;
  s.S.assign(p.S.begin(), p.S.end());
  s.z.assign(p.z.begin(), p.z.end());
  s.S.resize(p.value_heads * p.d_key * p.d_value, 0.0f);
  s.z.resize(p.value_heads * p.d_key, 0.0f);
  int64_t t = 0;
  for (int64_t run : runs) {
    const auto part = [&](const GuardedTensor& x) {
      TensorView view = x.view();
      view.data = view.Row(0, t, 0);
      view.size[1] = run;
      return view;
    };
    if (run == 1 && t % 2 == 1) {  // from one state into another
      std::vector<float> S(s.S.size(), NAN), z(s.z.size(), NAN);
      const Stream before = s;
      LinearAttentionStepInto(p.options, part(q), part(k), part(v),
                              {s.S.data(), s.z.data(), S.data(), z.data()},
                              part(out), executor);
      EXPECT_EQ(before.S, s.S);
      EXPECT_EQ(before.z, s.z);
      s.S.swap(S);
      s.z.swap(z);
      t += run;
      continue;
    }
    const auto call = run == 1 ? LinearAttentionStep : LinearAttentionPrefill;
    call(p.options, part(q), part(k), part(v), s.S.data(), s.z.data(),
         part(out), executor);
    t += run;
  }
  EXPECT_TRUE(out.GuardsIntact());
  s.out = out.Read(0, 0, p.seq_len_q);
  return s;
}

class LinearAttentionStepTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(LinearAttentionStepTest, MatchesReference) {
  SerialExecutor serial;
  int seed = 0;
  for (auto [K, V] : {std::pair<int64_t, int64_t>{1, 1},
                      {3, 16},
                      {25, 64},
                      {64, 33},
                      {33, 100},
                      {300, 130}}) {
    for (Denominator denominator :
         {Denominator::kExact, Denominator::kCompat, Denominator::kNone}) {
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        LinearAttentionOptions o;
        o.denominator = denominator;
        o.eps = 0.5f;
        o.scale = denominator == Denominator::kExact ? 1.0f : 0.25f;
        o.feature_map = kElementwiseMaps[seed % 4];
        ++seed;
        const Problem p =
            MakeProblem({40, -1, 2, 4, K, V}, o, seed, dtype, seed % 2);
        const reference::Result ref = reference::Forward(p);
        const Stream s =
            Feed(p, std::vector<int64_t>(40, 1), dtype, seed % 2 == 0, serial);
        const Tolerance t = OutputTolerance(dtype);
        const std::string what = "case " + std::to_string(seed);
        // A row of one number may cancel to nearly nothing.
        const double floor = V == 1 ? 0.05 : 0;
        ExpectClose(s.out, ref.out, V, t.r, t.m, what, floor);
        ExpectClose({s.S.begin(), s.S.end()}, ref.S, V, 2e-6, 5e-5, what + " S",
                    floor);
        ExpectClose({s.z.begin(), s.z.end()}, ref.z, K, 2e-6, 5e-5,
                    what + " z");
      }
    }
  }
}

TEST_P(LinearAttentionStepTest, AnySplitAndThreadCountGiveTheSameBits) {
  const Problem p = MakeProblem({64, -1, 4, 4, 64, 128}, {}, 3);
  SerialExecutor serial;
  const Stream whole = Feed(p, {64}, DType::kF32, false, serial);
  ThreadPool two(2), three(3);
  std::mt19937_64 rng(4);
  for (int round = 0; round < 12; ++round) {
    std::vector<int64_t> runs;
    int64_t left = 64;
    while (left > 0) {
      runs.push_back(std::min<int64_t>(left, 1 + rng() % (round + 1)));
      left -= runs.back();
    }
    Executor& executor = round % 3 == 0   ? static_cast<Executor&>(serial)
                         : round % 3 == 1 ? static_cast<Executor&>(two)
                                          : three;
    const Stream s = Feed(p, runs, DType::kF32, round % 2, executor);
    EXPECT_EQ(whole.out, s.out);
    EXPECT_EQ(whole.S, s.S);
    EXPECT_EQ(whole.z, s.z);
  }
}

TEST_P(LinearAttentionStepTest, VerySmallFeaturesStillAverage) {
  // phi(q) near 2^-126 in every entry: the ratio must not underflow.
  Problem p = MakeProblem({20, -1, 1, 1, 8, 4}, {}, 5, DType::kF32, false);
  for (double& x : p.queries) x = -86;
  for (double& x : p.keys) x = -20;
  for (double& x : p.values) x = 3;
  SerialExecutor serial;
  const Stream s =
      Feed(p, std::vector<int64_t>(20, 1), DType::kF32, false, serial);
  for (double x : s.out) EXPECT_NEAR(3, x, 3e-6);
}

// ---- Reads of a state that does not change.

std::vector<double> Read(const Problem& p, const std::vector<int64_t>& runs,
                         DType dtype, bool spread, Executor& executor) {
  GuardedTensor q(1, p.seq_len_q, p.heads, p.d_key, dtype, spread);
  GuardedTensor out(1, p.seq_len_q, p.value_heads, p.d_value, dtype, spread);
  q.Fill(0, 0, p.queries);
  const std::vector<float> S(p.S.begin(), p.S.end()), z(p.z.begin(), p.z.end());
  int64_t t = 0;
  for (int64_t run : runs) {
    TensorView queries = q.view(), to = out.view();
    queries.data = queries.Row(0, t, 0);
    to.data = to.Row(0, t, 0);
    queries.size[1] = to.size[1] = run;
    LinearAttentionRead(p.options, queries, S.data(), z.data(), to, executor);
    t += run;
  }
  EXPECT_TRUE(out.GuardsIntact());
  return out.Read(0, 0, p.seq_len_q);
}

TEST_P(LinearAttentionStepTest, ReadMatchesReference) {
  SerialExecutor serial;
  ThreadPool three(3);
  int seed = 100;
  for (auto [K, V] : {std::pair<int64_t, int64_t>{1, 1},
                      {3, 16},
                      {25, 64},
                      {64, 33},
                      {300, 130}}) {
    for (Denominator denominator :
         {Denominator::kExact, Denominator::kCompat, Denominator::kNone}) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        LinearAttentionOptions o;
        o.causal = false;
        o.denominator = denominator;
        o.eps = 0.5f;
        o.scale = denominator == Denominator::kExact ? 1.0f : 0.25f;
        const Problem p = MakeProblem({9, 0, 2, 4, K, V}, o, ++seed, dtype);
        const std::vector<double> out = Read(p, {9}, dtype, seed % 2, serial);
        const Tolerance t = OutputTolerance(dtype);
        ExpectClose(out, reference::Forward(p).out, V, t.r, t.m,
                    "case " + std::to_string(seed), V == 1 ? 0.05 : 0);
        // Alone or among others, on one thread or three.
        EXPECT_EQ(out, Read(p, {1, 3, 1, 4}, dtype, !(seed % 2), three));
      }
    }
  }
}

TEST_P(LinearAttentionStepTest, ReadOfAnEmptyStateIsZero) {
  Problem p = MakeProblem({2, 0, 1, 1, 5, 7}, {}, 7);
  p.S.assign(p.S.size(), 0.0);
  p.z.assign(p.z.size(), 0.0);
  SerialExecutor serial;
  for (double x : Read(p, {2}, DType::kF32, false, serial)) EXPECT_EQ(0.0, x);
}

// The error of float32 sums over a million tokens: z ends near 1.16e6, where
// one addition rounds to 1 part in 2^24; the errors of both signs add up like a
// random walk, to about 1e-5 of the whole.
TEST_P(LinearAttentionStepTest, AMillionTokensAgainstFloat64) {
  constexpr int64_t kWidth = 4, kBlock = 1000, kBlocks = 1000;
  Rng rng(11);
  SerialExecutor serial;
  std::vector<float> q(kBlock * kWidth), k(q), v(q), out(q);
  std::vector<float> S(kWidth * kWidth, 0.0f), z(kWidth, 0.0f);
  std::vector<double> exact_S(S.size()), exact_z(z.size());
  const auto view = [](std::vector<float>& x) {
    return TensorView::Dense(x.data(), 1, kBlock, 1, kWidth);
  };
  for (int64_t block = 0; block < kBlocks; ++block) {
    for (auto* x : {&q, &k, &v}) {
      for (float& entry : *x) entry = static_cast<float>(rng.Normal());
    }
    LinearAttentionPrefill({}, view(q), view(k), view(v), S.data(), z.data(),
                           view(out), serial);
    for (int64_t t = 0; t < kBlock; ++t) {
      for (int64_t c = 0; c < kWidth; ++c) {
        const double x = k[t * kWidth + c];
        const double phi = x > 0 ? x + 1 : std::exp(x);
        exact_z[c] += phi;
        for (int64_t m = 0; m < kWidth; ++m) {
          exact_S[c * kWidth + m] += phi * v[t * kWidth + m];
        }
      }
    }
  }
  const auto error = [](const std::vector<float>& got,
                        const std::vector<double>& want) {
    double difference = 0, largest = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      difference = std::max(difference, std::abs(got[i] - want[i]));
      largest = std::max(largest, std::abs(want[i]));
    }
    return difference / largest;
  };
  EXPECT_LT(error(z, exact_z), 1e-4);
  EXPECT_LT(error(S, exact_S), 1e-4);
  RecordProperty("z_error", std::to_string(error(z, exact_z)));
  RecordProperty("S_error", std::to_string(error(S, exact_S)));
}

INSTANTIATE_TEST_SUITE_P(Targets, LinearAttentionStepTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(LinearAttentionStep, ChecksItsArguments) {
  float data[64] = {0};
  const TensorView two = TensorView::Dense(data, 1, 2, 1, 4);
  const TensorView one = TensorView::Dense(data, 1, 1, 1, 4);
  SerialExecutor serial;
  EXPECT_THROW(LinearAttentionStep({}, two, two, two, data, data, two, serial),
               ShapeError);
  EXPECT_THROW(
      LinearAttentionStep({}, one, one, one, nullptr, data, one, serial),
      ArgumentError);
  EXPECT_THROW(LinearAttentionStep({}, one, two, two, data, data, one, serial),
               ShapeError);
  EXPECT_THROW(LinearAttentionRead({}, one, nullptr, data, one, serial),
               ArgumentError);
  EXPECT_THROW(LinearAttentionRead({}, two, data, data, one, serial),
               ShapeError);
  EXPECT_NO_THROW(LinearAttentionPrefill(
      {}, TensorView::Dense(data, 1, 0, 1, 4),
      TensorView::Dense(data, 1, 0, 1, 4), TensorView::Dense(data, 1, 0, 1, 4),
      data, data, TensorView::Dense(data, 1, 0, 1, 4), serial));
}

}  // namespace
}  // namespace tarn::testing
