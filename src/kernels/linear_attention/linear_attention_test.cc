// The forward pass against the double reference, on every SIMD target.
#include "kernels/linear_attention/linear_attention.h"

#include "core/error.h"
#include "kernels/linear_attention/test_problem.h"

namespace tarn::testing {
namespace {

struct Outcome {
  std::vector<double> out;
  std::vector<float> S, z, denominators;
};

// Runs the kernel on problems of one shape as batch rows, or packed. states:
// whether the final states are wanted.
std::vector<Outcome> RunForward(const std::vector<Problem>& problems,
                                DType dtype, bool spread, bool packed,
                                Executor& executor, bool states = true) {
  const Problem& p0 = problems[0];
  const Call call(problems, dtype, spread, packed);
  const LinearAttentionInputs& in = call.in;
  const int64_t count = call.count, B = call.batch, T = call.seq_len_q;
  GuardedTensor out(B, T, p0.value_heads, p0.d_value, dtype, spread);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> S1(count * p0.value_heads * p0.d_key * p0.d_value, nan);
  std::vector<float> z1(count * p0.value_heads * p0.d_key, nan);
  std::vector<float> den(B * T * p0.value_heads, nan);
  LinearAttentionOutputs outputs{out.view(), S1.data(), z1.data(), den.data()};
  if (!states) outputs.final_S = outputs.final_z = nullptr;
  const Workspace workspace = MakeWorkspace(
      LinearAttentionWorkspaceBytes(p0.options, in, executor.width()));
  LinearAttentionForward(p0.options, in, outputs, executor, workspace.get());
  EXPECT_TRUE(out.GuardsIntact());
  std::vector<Outcome> runs(count);
  for (int64_t n = 0; n < count; ++n) {
    const int64_t b = call.Row(n), t0 = call.Start(n);
    const int64_t s = p0.value_heads * p0.d_key * p0.d_value;
    const int64_t zs = p0.value_heads * p0.d_key;
    runs[n].out = out.Read(b, t0, problems[n].seq_len_q);
    runs[n].S.assign(S1.begin() + n * s, S1.begin() + (n + 1) * s);
    runs[n].z.assign(z1.begin() + n * zs, z1.begin() + (n + 1) * zs);
    const int64_t d0 = (b * T + t0) * p0.value_heads;
    runs[n].denominators.assign(
        den.begin() + d0,
        den.begin() + d0 + problems[n].seq_len_q * p0.value_heads);
  }
  return runs;
}

Outcome RunOne(const Problem& p, DType dtype = DType::kF32,
               bool spread = false) {
  SerialExecutor serial;
  return RunForward({p}, dtype, spread, false, serial)[0];
}

bool SameBits(const Outcome& a, const Outcome& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.size() == y.size() &&
           (x.empty() ||
            std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
  };
  return same(a.out, b.out) && same(a.S, b.S) && same(a.z, b.z);
}

std::vector<double> Wide(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

void CheckAgainstReference(const Problem& p, DType dtype, bool spread,
                           const std::string& what) {
  const reference::Result ref = reference::Forward(p);
  const Outcome run = RunOne(p, dtype, spread);
  const Tolerance t = OutputTolerance(dtype);
  const Tolerance state = OutputTolerance(DType::kF32);
  ExpectClose(run.out, ref.out, p.d_value, t.r, t.m, what + " out");
  ExpectClose(Wide(run.S), ref.S, p.d_value, state.r, state.m, what + " S");
  ExpectClose(Wide(run.z), ref.z, p.d_key, state.r, state.m, what + " z");
  // The same without states before and after, which are then left out.
  Problem bare = p;
  bare.S.clear();
  bare.z.clear();
  SerialExecutor serial;
  const Outcome alone =
      RunForward({bare}, dtype, spread, false, serial, /*states=*/false)[0];
  ExpectClose(alone.out, reference::Forward(bare).out, p.d_value, t.r, t.m,
              what + " out without states");
}

class LinearAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

std::string Label(const Shape& s) {
  return "T" + std::to_string(s.T) + " S" + std::to_string(s.S) + " H" +
         std::to_string(s.heads) + "/" + std::to_string(s.value_heads) + " K" +
         std::to_string(s.d_key) + " V" + std::to_string(s.d_value);
}

TEST_P(LinearAttentionTest, LengthsMatchReference) {
  for (int64_t T :
       {0, 1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 100, 255, 257, 500}) {
    // The wide ones are one chunk up to 64 tokens if no state is carried.
    for (const auto& [d_key, d_value] : {std::pair{20, 33}, {64, 70}}) {
      const Shape shape{T, -1, 1, 1, d_key, d_value};
      CheckAgainstReference(MakeProblem(shape, {}, 7 + T), DType::kF32, T % 2,
                            Label(shape));
    }
  }
}

TEST_P(LinearAttentionTest, WidthsMatchReference) {
  const int64_t widths[] = {1, 3, 16, 20, 32, 33, 60, 64, 100, 128, 192, 256};
  for (int i = 0; i < 12; ++i) {
    for (int64_t d_value : {widths[(i * 5 + 3) % 12], widths[i]}) {
      const Shape shape{70, -1, 1, 1, widths[i], d_value};
      CheckAgainstReference(MakeProblem(shape, {}, 11 + i), DType::kF32,
                            i % 2 == 0, Label(shape));
    }
  }
}

TEST_P(LinearAttentionTest, OptionsMatchReference) {
  int seed = 0;
  for (int64_t chunk : {16, 32, 64}) {
    for (Denominator denominator :
         {Denominator::kExact, Denominator::kCompat, Denominator::kNone}) {
      for (FeatureMap map : kElementwiseMaps) {
        for (int64_t group : {1, 2, 4}) {
          LinearAttentionOptions o;
          o.chunk_size = chunk;
          o.denominator = denominator;
          o.feature_map = map;
          o.eps = 0.5f;
          o.scale = denominator == Denominator::kExact ? 1.0f : 0.3f;
          o.causal = seed % 3 != 0;
          const Shape shape{83, -1, 2, 2 * group, 20, 24};
          ++seed;
          CheckAgainstReference(MakeProblem(shape, o, seed), DType::kF32,
                                seed % 2, "options " + std::to_string(seed));
        }
      }
    }
  }
}

TEST_P(LinearAttentionTest, OffsetsAndUnequalLengthsMatchReference) {
  int seed = 100;
  for (int64_t offset : {-200, -37, -1, 0, 1, 15, 40, 1000000000}) {
    for (auto [T, S] : {std::pair<int64_t, int64_t>{1, 70},
                        {70, 1},
                        {50, 80},
                        {80, 50},
                        {33, 0},
                        {0, 33}}) {
      LinearAttentionOptions o;
      o.causal_offset = offset;
      const Shape shape{T, S, 1, 2, 16, 20};
      CheckAgainstReference(MakeProblem(shape, o, ++seed), DType::kF32, true,
                            Label(shape) + " offset " + std::to_string(offset));
    }
  }
}

TEST_P(LinearAttentionTest, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t T : {1, 17, 100}) {
      const Shape shape{T, -1, 2, 2, 33, 20};
      CheckAgainstReference(MakeProblem(shape, {}, 40 + T, dtype), dtype, true,
                            std::string(DTypeName(dtype)) + Label(shape));
    }
  }
}

TEST_P(LinearAttentionTest, MaskedKeysAreSkippedEvenWhenNaN) {
  for (bool causal : {true, false}) {
    LinearAttentionOptions o;
    o.causal = causal;
    Problem p = MakeProblem({90, -1, 1, 1, 20, 20}, o, 5, DType::kF32, false);
    std::mt19937_64 rng(3);
    for (int64_t j = 0; j < 90; ++j) p.kept[j] = rng() % 3 != 0;
    p.kept[0] = p.kept[1] = false;  // causal: the first rows are empty
    const reference::Result ref = reference::Forward(p);
    Problem poisoned = p;
    const double nan = std::nan("");
    for (int64_t j = 0; j < 90; ++j) {
      for (int64_t i = 0; i < 20 && !p.kept[j]; ++i) {
        poisoned.keys[j * 20 + i] = nan;
        poisoned.values[j * 20 + i] = i % 2 ? nan : INFINITY;
      }
    }
    const Outcome run = RunOne(poisoned);
    ExpectClose(run.out, ref.out, 20, 2e-6, 5e-5, "masked");
    ExpectClose(Wide(run.S), ref.S, 20, 2e-6, 5e-5, "masked S");
    for (int64_t i = 0; i < 20 && causal; ++i) EXPECT_EQ(0.0, run.out[i]);
  }
}

TEST_P(LinearAttentionTest, RowsWithoutReluFeaturesAreZeroAndNaNStays) {
  for (FeatureMap map : {FeatureMap::kRelu, FeatureMap::kRelu2}) {
    LinearAttentionOptions o;
    o.feature_map = map;
    Problem p = MakeProblem({50, -1, 1, 1, 20, 20}, o, 9, DType::kF32, false);
    for (int64_t i = 0; i < 20; ++i) {
      p.keys[i] = -1;             // token 0 reads itself only: empty
      p.queries[3 * 20 + i] = 0;  // no features
    }
    const reference::Result ref = reference::Forward(p);
    Outcome run = RunOne(p);
    ExpectClose(run.out, ref.out, 20, 2e-6, 5e-5, Name(map));
    for (int64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(0.0, run.out[i]);
      EXPECT_EQ(0.0, run.out[3 * 20 + i]);
    }
    p.queries[5 * 20 + 2] = std::nan("");
    run = RunOne(p);
    for (int64_t i = 0; i < 50 * 20; ++i) {
      EXPECT_EQ(i / 20 == 5, std::isnan(run.out[i])) << i;
    }
  }
}

TEST_P(LinearAttentionTest, LaterTokensChangeNoEarlierBit) {
  const Problem p = MakeProblem({100, -1, 1, 1, 20, 20}, {}, 6);
  const Outcome before = RunOne(p);
  for (double poison : {1e3, static_cast<double>(INFINITY), std::nan("")}) {
    for (int64_t from : {1, 20, 47, 99}) {
      Problem changed = p;
      for (int64_t n = from * 20; n < 2000; ++n) {
        changed.keys[n] = changed.values[n] = changed.queries[n] = poison;
      }
      const Outcome after = RunOne(changed);
      EXPECT_EQ(0, std::memcmp(before.out.data(), after.out.data(),
                               from * 20 * sizeof(double)))
          << poison << " from " << from;
    }
  }
}

TEST_P(LinearAttentionTest, ConstantValueComesBackConstant) {
  for (double size : {1.0, 30.0, 80.0}) {
    Problem p = MakeProblem({200, -1, 1, 1, 16, 4}, {}, 8, DType::kF32, false);
    for (double& x : p.queries) x = -std::abs(x) * size;
    for (double& x : p.keys) x = -std::abs(x) * std::min(size, 20.0);
    for (double& x : p.values) x = 0.75;
    const Outcome run = RunOne(p);
    for (double x : run.out) EXPECT_NEAR(0.75, x, 0.75 * 1e-6) << size;
  }
}

TEST_P(LinearAttentionTest, PackedEqualsSeparateEqualsBatchBitwise) {
  std::vector<Problem> problems, same;
  for (int64_t T : {15, 85, 0, 200, 1, 1, 33}) {
    problems.push_back(MakeProblem({T, -1, 2, 4, 20, 33}, {}, 60 + T));
  }
  SerialExecutor serial;
  const std::vector<Outcome> packed =
      RunForward(problems, DType::kF32, true, true, serial);
  for (size_t n = 0; n < problems.size(); ++n) {
    EXPECT_TRUE(SameBits(packed[n], RunOne(problems[n]))) << n;
  }
  for (int seed = 0; seed < 3; ++seed) {
    same.push_back(MakeProblem({77, -1, 2, 4, 20, 33}, {}, 90 + seed));
  }
  const std::vector<Outcome> batch =
      RunForward(same, DType::kF32, false, false, serial);
  for (size_t n = 0; n < same.size(); ++n) {
    EXPECT_TRUE(SameBits(batch[n], RunOne(same[n], DType::kF32, true))) << n;
  }
}

TEST_P(LinearAttentionTest, ThreadsAndOrderChangeNoBit) {
  for (int64_t d_value : {33, 200}) {
    const Problem p = MakeProblem({150, -1, 1, 1, 33, d_value}, {}, 70);
    const Outcome one = RunOne(p);
    for (int threads : {2, 3, 8}) {
      ThreadPool pool(threads);
      EXPECT_TRUE(
          SameBits(one, RunForward({p}, DType::kF32, false, false, pool)[0]))
          << threads;
    }
    ReversedExecutor reversed;
    EXPECT_TRUE(
        SameBits(one, RunForward({p}, DType::kF32, false, false, reversed)[0]));
  }
}

TEST_P(LinearAttentionTest, SplitAtChunksAndCarriedStateIsBitwise) {
  const Problem p = MakeProblem({96, -1, 1, 2, 20, 20}, {}, 71);
  const Outcome whole = RunOne(p);
  for (int64_t cut : {32, 64}) {
    Problem a = p, b = p;
    a.seq_len_q = a.seq_len_k = cut;
    a.queries.resize(cut * 20);
    a.keys.resize(cut * 20);
    a.values.resize(cut * 40);
    a.kept.resize(cut);
    b.seq_len_q = b.seq_len_k = 96 - cut;
    b.queries.erase(b.queries.begin(), b.queries.begin() + cut * 20);
    b.keys.erase(b.keys.begin(), b.keys.begin() + cut * 20);
    b.values.erase(b.values.begin(), b.values.begin() + cut * 40);
    b.kept.resize(96 - cut);
    const Outcome first = RunOne(a);
    b.S = Wide(first.S);
    b.z = Wide(first.z);
    const Outcome second = RunOne(b);
    std::vector<double> joined = first.out;
    joined.insert(joined.end(), second.out.begin(), second.out.end());
    EXPECT_EQ(joined, whole.out);
    EXPECT_EQ(second.S, whole.S);
  }
}

TEST_P(LinearAttentionTest, OneBadHeadStaysAlone) {
  Problem p = MakeProblem({40, -1, 2, 2, 16, 16}, {}, 72);
  const Outcome clean = RunOne(p);
  for (int64_t t = 0; t < 40; ++t) p.values[(t * 2 + 1) * 16] = std::nan("");
  const Outcome run = RunOne(p);
  for (int64_t t = 0; t < 40; ++t) {
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(clean.out[t * 32 + i], run.out[t * 32 + i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LinearAttentionTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(LinearAttentionLong, ManyTokensStayAccurate) {
  // 65,536 tokens against double; the reference is carried as a state here,
  // since the defining sums are quadratic.
  const int64_t T = 65536, K = 8, V = 8;
  Problem p = MakeProblem({T, -1, 1, 1, K, V}, {}, 80, DType::kF32, false);
  const Outcome run = RunOne(p);
  std::vector<double> S(K * V, 0), z(K, 0);
  double worst = 0;
  const auto phi = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
  for (int64_t t = 0; t < T; ++t) {
    double d = 0, n[8] = {0};
    for (int64_t k = 0; k < K; ++k) {
      const double b = phi(p.keys[t * K + k]), a = phi(p.queries[t * K + k]);
      z[k] += b;
      d += a * z[k];
      for (int64_t v = 0; v < V; ++v) {
        S[k * V + v] += b * p.values[t * V + v];
        n[v] += a * S[k * V + v];
      }
    }
    for (int64_t v = 0; v < V; ++v) {
      worst = std::max(worst, std::abs(n[v] / d - run.out[t * V + v]));
    }
  }
  EXPECT_LE(worst, 1e-6);
}

TEST(LinearAttentionErrors, NameArgumentWantedAndGiven) {
  float data[64] = {0};
  LinearAttentionInputs in;
  in.queries = TensorView::Dense(data, 1, 2, 2, 4);
  in.keys = TensorView::Dense(data, 1, 2, 2, 4);
  in.values = TensorView::Dense(data, 1, 2, 2, 4);
  const LinearAttentionOutputs out{TensorView::Dense(data, 1, 2, 2, 4)};
  EXPECT_NO_THROW(CheckLinearAttention({}, in, out));
  const auto message = [&](LinearAttentionOptions o, LinearAttentionInputs i,
                           LinearAttentionOutputs u) -> std::string {
    try {
      CheckLinearAttention(o, i, u);
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  };
  LinearAttentionInputs bad = in;
  bad.keys.size[1] = 3;
  bad.keys.size[2] = 1;
  EXPECT_EQ("linear_attention: keys: want [1, 3, 2, 4], got [1, 3, 1, 4]",
            message({}, bad, out));
  bad = in;
  bad.values.size[2] = 3;
  EXPECT_NE(std::string::npos, message({}, bad, out).find("values"));
  bad = in;
  bad.values.dtype = DType::kF16;
  EXPECT_EQ("linear_attention: values: want F32 as queries, got F16",
            message({}, bad, out));
  EXPECT_EQ("linear_attention: chunk_size: want 0 (best), 16, 32 or 64, got 17",
            message({.chunk_size = 17}, in, out));
  for (FeatureMap map :
       {FeatureMap::kPoly2, FeatureMap::kFavor, FeatureMap::kFavorPositive,
        FeatureMap::kRff, FeatureMap::kSmoothedRff, FeatureMap::kGrf}) {
    EXPECT_EQ(
        "linear_attention: feature_map: want elu1, identity, relu or relu2 "
        "(features of other maps are computed before the call, which then "
        "takes identity), got " +
            std::string(Name(map)),
        message({.feature_map = map}, in, out));
  }
  EXPECT_EQ(
      "linear_attention: denominator: want exact, compat or none (signed "
      "divides outside of it), got signed",
      message({.denominator = Denominator::kSigned}, in, out));
  EXPECT_NE(std::string::npos,
            message({.denominator = Denominator::kCompat, .eps = 0}, in, out)
                .find("eps: want a positive number, got 0"));
  const int64_t lengths[] = {5};
  bad = in;
  bad.key_lengths = lengths;
  EXPECT_EQ("linear_attention: key_lengths[0]: want 0 to 2, got 5",
            message({}, bad, out));
  const int64_t cu[] = {0, 2, 1, 2};
  bad = in;
  bad.cu_seqlens = cu;
  bad.sequences = 3;
  EXPECT_EQ("linear_attention: cu_seqlens[2]: want at least 2, got 1",
            message({}, bad, out));
}

}  // namespace
}  // namespace tarn::testing
