// Gradient: the reference against finite differences, the kernel against the
// reference, on every SIMD target.
#include "core/error.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/test_problem.h"

namespace tarn::testing {
namespace {

// Loss (out . grad_out) + (S_T . grad_S) + (z_T . grad_z), random weights.
struct Loss {
  std::vector<double> out, S, z;
};

Loss MakeLoss(const Problem& p, uint64_t seed, DType dtype = DType::kF32) {
  std::mt19937_64 rng(seed * 31 + 1);
  Loss loss{Random(p.seq_len_q * p.value_heads * p.d_value, rng),
            Random(p.value_heads * p.d_key * p.d_value, rng),
            Random(p.value_heads * p.d_key, rng)};
  for (double& x : loss.out) x = Round(x, dtype);
  for (double& x : loss.S) x = static_cast<float>(x);
  for (double& x : loss.z) x = static_cast<float>(x);
  return loss;
}

double Value(const Problem& p, const Loss& loss) {
  const reference::Result r = reference::Forward(p);
  double sum = 0;
  for (size_t i = 0; i < r.out.size(); ++i) sum += r.out[i] * loss.out[i];
  for (size_t i = 0; i < r.S.size(); ++i) sum += r.S[i] * loss.S[i];
  for (size_t i = 0; i < r.z.size(); ++i) sum += r.z[i] * loss.z[i];
  return sum;
}

// Kernel gradients of batch rows, each with its own problem. states: whether
// the gradients of states are given and wanted.
std::vector<reference::Gradients> RunBackward(
    const std::vector<Problem>& problems, const std::vector<Loss>& losses,
    DType dtype, bool spread, bool packed, Executor& executor,
    bool states = true) {
  const Problem& p0 = problems[0];
  const Call call(problems, dtype, spread, packed);
  const LinearAttentionInputs& in = call.in;
  const int64_t count = call.count, B = call.batch;
  const int64_t T = call.seq_len_q, S = call.seq_len_k;
  GuardedTensor out(B, T, p0.value_heads, p0.d_value, dtype, spread);
  GuardedTensor dq(B, T, p0.heads, p0.d_key, dtype, !spread);
  GuardedTensor dk(B, S, p0.heads, p0.d_key, dtype, !spread);
  GuardedTensor dv(B, S, p0.value_heads, p0.d_value, dtype, !spread);
  GuardedTensor go(B, T, p0.value_heads, p0.d_value, dtype, !spread);
  std::vector<float> gS, gz;
  for (int64_t n = 0; n < count; ++n) {
    go.Fill(call.Row(n), call.Start(n), losses[n].out);
    gS.insert(gS.end(), losses[n].S.begin(), losses[n].S.end());
    gz.insert(gz.end(), losses[n].z.begin(), losses[n].z.end());
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> den(B * T * p0.value_heads, nan);
  std::vector<float> dS(gS.size(), nan), dz(gz.size(), nan);
  Workspace workspace = MakeWorkspace(
      LinearAttentionWorkspaceBytes(p0.options, in, executor.width()));
  LinearAttentionForward(p0.options, in,
                         {out.view(), nullptr, nullptr, den.data()}, executor,
                         workspace.get());
  workspace = MakeWorkspace(
      LinearAttentionBackwardWorkspaceBytes(p0.options, in, executor.width()));
  LinearAttentionGradients grad;
  grad.out = out.view();
  grad.denominators = den.data();
  grad.grad_out = go.view();
  grad.grad_final_S = gS.data();
  grad.grad_final_z = gz.data();
  grad.grad_queries = dq.view();
  grad.grad_keys = dk.view();
  grad.grad_values = dv.view();
  grad.grad_initial_S = dS.data();
  grad.grad_initial_z = dz.data();
  if (!states) {
    grad.grad_final_S = grad.grad_final_z = nullptr;
    grad.grad_initial_S = grad.grad_initial_z = nullptr;
  }
  LinearAttentionBackward(p0.options, in, grad, executor, workspace.get());
  EXPECT_TRUE(dq.GuardsIntact() && dk.GuardsIntact() && dv.GuardsIntact());
  std::vector<reference::Gradients> all(count);
  const int64_t s = p0.value_heads * p0.d_key * p0.d_value;
  const int64_t zs = p0.value_heads * p0.d_key;
  for (int64_t n = 0; n < count; ++n) {
    const int64_t b = call.Row(n), t0 = call.Start(n);
    all[n].queries = dq.Read(b, t0, problems[n].seq_len_q);
    all[n].keys = dk.Read(b, t0, problems[n].seq_len_k);
    all[n].values = dv.Read(b, t0, problems[n].seq_len_k);
    all[n].S.assign(dS.begin() + n * s, dS.begin() + (n + 1) * s);
    all[n].z.assign(dz.begin() + n * zs, dz.begin() + (n + 1) * zs);
  }
  return all;
}

void CheckGradient(const Problem& p, uint64_t seed, DType dtype, bool spread,
                   const std::string& what) {
  const Loss loss = MakeLoss(p, seed, dtype);
  SerialExecutor serial;
  const reference::Gradients got =
      RunBackward({p}, {loss}, dtype, spread, false, serial)[0];
  const reference::Gradients ref =
      reference::Backward(p, loss.out, loss.S, loss.z);
  Tolerance t = GradientTolerance(dtype);
  // The gradient reads the rounded output in e = -(g . o) / d, which for a
  // 16-bit type adds to the rounding of the result itself.
  if (dtype != DType::kF32) t = {2 * t.r, 2 * t.m};
  // With one feature the output ignores the query, and dq is a sum that
  // cancels. The same holds where relu leaves a query one feature.
  const bool sparse = p.options.feature_map == FeatureMap::kRelu ||
                      p.options.feature_map == FeatureMap::kRelu2;
  const double near = p.d_key == 1 ? 0.1 : sparse ? 0.01 : 0;
  ExpectClose(got.queries, ref.queries, p.d_key, t.r, t.m, what + " dq", near);
  ExpectClose(got.keys, ref.keys, p.d_key, t.r, t.m, what + " dk");
  ExpectClose(got.values, ref.values, p.d_value, t.r, t.m, what + " dv");
  const Tolerance s = dtype == DType::kF32 ? Tolerance{2e-6, 5e-5} : t;
  ExpectClose(got.S, ref.S, p.d_value, s.r, s.m, what + " dS");
  ExpectClose(got.z, ref.z, p.d_key, s.r, s.m, what + " dz");
  // The same without states before and after, which are then left out.
  Problem bare = p;
  bare.S.clear();
  bare.z.clear();
  const reference::Gradients alone =
      RunBackward({bare}, {loss}, dtype, spread, false, serial,
                  /*states=*/false)[0];
  const reference::Gradients want =
      reference::Backward(bare, loss.out, std::vector<double>(loss.S.size()),
                          std::vector<double>(loss.z.size()));
  const std::string of = what + " without states";
  // A query that reads one key has an output that ignores both: sums cancel,
  // and those of many queries do if there is no other key.
  const double least = std::max(near, p.seq_len_k == 1       ? 1.0
                                      : dtype == DType::kF32 ? 0.1
                                                             : 0.5);
  ExpectClose(alone.queries, want.queries, p.d_key, t.r, t.m, of + " dq",
              least);
  ExpectClose(alone.keys, want.keys, p.d_key, t.r, t.m, of + " dk", least);
  ExpectClose(alone.values, want.values, p.d_value, t.r, t.m, of + " dv");
}

TEST(LinearAttentionReference, AgreesWithFiniteDifferences) {
  for (Denominator denominator :
       {Denominator::kExact, Denominator::kCompat, Denominator::kNone}) {
    for (FeatureMap map : kElementwiseMaps) {
      LinearAttentionOptions o;
      o.denominator = denominator;
      o.feature_map = map;
      o.causal = map != FeatureMap::kIdentity;
      o.causal_offset = 1;
      o.eps = 0.25f;
      o.scale = denominator == Denominator::kExact ? 1.0f : 0.5f;
      Problem p = MakeProblem({7, 9, 1, 2, 4, 3}, o, 3);
      p.kept[2] = false;
      const Loss loss = MakeLoss(p, 4);
      const reference::Gradients g =
          reference::Backward(p, loss.out, loss.S, loss.z);
      const auto check = [&](std::vector<double>& x,
                             const std::vector<double>& dx) {
        for (size_t i = 0; i < x.size(); ++i) {
          const double saved = x[i], h = 1e-6;
          x[i] = saved + h;
          const double up = Value(p, loss);
          x[i] = saved - h;
          const double down = Value(p, loss);
          x[i] = saved;
          EXPECT_NEAR((up - down) / (2 * h), dx[i],
                      1e-7 * std::max(1.0, std::abs(dx[i])));
        }
      };
      check(p.queries, g.queries);
      check(p.keys, g.keys);
      check(p.values, g.values);
      check(p.S, g.S);
      check(p.z, g.z);
    }
  }
}

class LinearAttentionGradTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(LinearAttentionGradTest, LengthsMatchReference) {
  for (int64_t T :
       {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 100, 255, 257}) {
    // The wide ones are one chunk up to 64 tokens if no state is carried.
    for (const auto& [d_key, d_value] : {std::pair{20, 33}, {64, 70}}) {
      const Shape shape{T, -1, 1, 1, d_key, d_value};
      CheckGradient(MakeProblem(shape, {}, 17 + T), 5, DType::kF32, T % 2,
                    "T" + std::to_string(T));
    }
  }
}

TEST_P(LinearAttentionGradTest, WidthsMatchReference) {
  const int64_t widths[] = {1, 3, 16, 20, 32, 33, 60, 64, 100, 128, 192, 256};
  for (int i = 0; i < 12; ++i) {
    const Shape shape{50, -1, 1, 1, widths[i], widths[(i * 5 + 3) % 12]};
    CheckGradient(MakeProblem(shape, {}, 21 + i), 6, DType::kF32, i % 2 == 0,
                  "K" + std::to_string(shape.d_key) + " V" +
                      std::to_string(shape.d_value));
  }
}

TEST_P(LinearAttentionGradTest, OptionsMatchReference) {
  int seed = 0;
  for (int64_t chunk : {16, 32, 64}) {
    for (Denominator denominator :
         {Denominator::kExact, Denominator::kCompat, Denominator::kNone}) {
      for (FeatureMap map : kElementwiseMaps) {
        for (int64_t group : {1, 2, 4}) {
          ++seed;
          LinearAttentionOptions o;
          o.chunk_size = chunk;
          o.denominator = denominator;
          o.feature_map = map;
          o.eps = 0.5f;
          o.scale = denominator == Denominator::kExact ? 1.0f : 0.3f;
          o.causal = seed % 3 != 0;
          Problem p = MakeProblem({83, -1, 2, 2 * group, 20, 24}, o, seed);
          for (int64_t j = 0; j < 83; ++j) p.kept[j] = (j * 7 + seed) % 5 != 0;
          CheckGradient(p, seed, DType::kF32, seed % 2,
                        "options " + std::to_string(seed));
        }
      }
    }
  }
}

TEST_P(LinearAttentionGradTest, OffsetsMatchReference) {
  int seed = 100;
  for (int64_t offset : {-200, -37, -1, 1, 15, 40, 1000000000}) {
    for (auto [T, S] : {std::pair<int64_t, int64_t>{1, 70},
                        {70, 1},
                        {50, 80},
                        {80, 50},
                        {33, 0},
                        {0, 33}}) {
      ++seed;
      LinearAttentionOptions o;
      o.causal_offset = offset;
      CheckGradient(MakeProblem({T, S, 1, 2, 16, 20}, o, seed), seed,
                    DType::kF32, true,
                    "T" + std::to_string(T) + " S" + std::to_string(S) +
                        " offset " + std::to_string(offset));
    }
  }
}

TEST_P(LinearAttentionGradTest, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Problem p = MakeProblem({65, -1, 2, 2, 33, 20}, {}, 45, dtype);
    CheckGradient(p, 7, dtype, true, DTypeName(dtype));
  }
}

TEST_P(LinearAttentionGradTest, OutputIgnoresTheScaleOfQueriesAndKeys) {
  // a_i . da_i = 0, and sum_j b_j . db_j = 0 from a zero state: with the
  // identity map a = q and b = k.
  LinearAttentionOptions o;
  o.feature_map = FeatureMap::kIdentity;
  const Problem p =
      MakeProblem({60, -1, 1, 1, 16, 16}, o, 9, DType::kF32, false);
  Loss loss = MakeLoss(p, 8);
  for (double& x : loss.S) x = 0;
  for (double& x : loss.z) x = 0;
  SerialExecutor serial;
  const reference::Gradients g =
      RunBackward({p}, {loss}, DType::kF32, false, false, serial)[0];
  double keys = 0, magnitude = 0;
  for (int64_t i = 0; i < 60; ++i) {
    double row = 0, size = 0;
    for (int64_t k = 0; k < 16; ++k) {
      const int64_t n = i * 16 + k;
      row += p.queries[n] * g.queries[n];
      size += std::abs(p.queries[n] * g.queries[n]);
      keys += p.keys[n] * g.keys[n];
      magnitude += std::abs(p.keys[n] * g.keys[n]);
    }
    EXPECT_NEAR(0, row, 1e-5 * (size + 1)) << i;
  }
  EXPECT_NEAR(0, keys, 1e-5 * (magnitude + 1));
}

TEST_P(LinearAttentionGradTest, ReluHasNoSlopeAtAndBelowZero) {
  for (FeatureMap map : {FeatureMap::kRelu, FeatureMap::kRelu2}) {
    LinearAttentionOptions o;
    o.feature_map = map;
    Problem p = MakeProblem({40, -1, 1, 1, 20, 16}, o, 12);
    for (size_t n = 0; n < p.queries.size(); n += 3) p.queries[n] = 0;
    for (size_t n = 0; n < p.keys.size(); n += 3) p.keys[n] = -0.0;
    // A whole row below zero has no features: its output is empty.
    for (int64_t n = 7 * 20; n < 8 * 20; ++n) p.queries[n] = -1 - n;
    CheckGradient(p, 13, DType::kF32, true, Name(map));
    const Loss loss = MakeLoss(p, 13);
    SerialExecutor serial;
    const reference::Gradients g =
        RunBackward({p}, {loss}, DType::kF32, false, false, serial)[0];
    for (size_t n = 0; n < p.queries.size(); ++n) {
      EXPECT_TRUE(p.queries[n] > 0 || g.queries[n] == 0) << n;
      EXPECT_TRUE(p.keys[n] > 0 || g.keys[n] == 0) << n;
    }
  }
}

TEST_P(LinearAttentionGradTest, EmptyRowsSendNoGradientEvenFromNaN) {
  Problem p = MakeProblem({40, -1, 1, 1, 16, 16}, {}, 10, DType::kF32, false);
  for (int64_t j = 0; j < 5; ++j) p.kept[j] = false;
  Loss loss = MakeLoss(p, 9);
  const reference::Gradients ref =
      reference::Backward(p, loss.out, loss.S, loss.z);
  for (int64_t n = 0; n < 5 * 16; ++n) {
    loss.out[n] = p.keys[n] = p.values[n] = std::nan("");
  }
  SerialExecutor serial;
  const reference::Gradients g =
      RunBackward({p}, {loss}, DType::kF32, false, false, serial)[0];
  // Row 5 sees one key, so that its dq cancels to zero.
  ExpectClose(g.queries, ref.queries, 16, 3e-6, 1e-4, "dq", 0.01);
  ExpectClose(g.keys, ref.keys, 16, 3e-6, 1e-4, "dk");
  ExpectClose(g.values, ref.values, 16, 3e-6, 1e-4, "dv");
  for (int64_t n = 0; n < 5 * 16; ++n) EXPECT_EQ(0.0, g.queries[n]);
}

TEST_P(LinearAttentionGradTest, TinyFeaturesGiveFiniteGradients) {
  // Features of the first keys and of every other query near or below the least
  // normal number, other keys large: no reciprocal, factor or product
  // overflows.
  for (double level : {-60.0, -86.0, -87.4, -90.0, -103.0, -200.0}) {
    Problem p = MakeProblem({40, -1, 1, 1, 16, 16}, {}, 11, DType::kF32, false);
    for (int64_t n = 0; n < 5 * 16; ++n) p.keys[n] += level;
    for (int64_t n = 5 * 16; n < 40 * 16; ++n) p.keys[n] *= 40;
    for (int64_t i = 0; i < 40; i += 2) {
      for (int64_t k = 0; k < 16; ++k)
        p.queries[i * 16 + k] += k % 3 ? -200 : level;
    }
    const Loss loss = MakeLoss(p, 14);
    SerialExecutor serial;
    const reference::Gradients g =
        RunBackward({p}, {loss}, DType::kF32, false, false, serial)[0];
    for (const auto* gradient : {&g.queries, &g.keys, &g.values}) {
      for (size_t n = 0; n < gradient->size(); ++n) {
        EXPECT_TRUE(std::isfinite((*gradient)[n])) << level << ", " << n;
      }
    }
  }
}

TEST_P(LinearAttentionGradTest, LaterNaNReachesNoLaterKeyOfOthers) {
  // A NaN in grad_out at row i may reach keys j <= i only.
  const Problem p = MakeProblem({60, -1, 1, 1, 16, 16}, {}, 11);
  Loss loss = MakeLoss(p, 10);
  SerialExecutor serial;
  loss.out[20 * 16] = std::nan("");
  const reference::Gradients g =
      RunBackward({p}, {loss}, DType::kF32, false, false, serial)[0];
  for (int64_t n = 21 * 16; n < 60 * 16; ++n) {
    EXPECT_FALSE(std::isnan(g.keys[n])) << n;
    EXPECT_FALSE(std::isnan(g.values[n])) << n;
  }
  for (int64_t n = 0; n < 60 * 16; ++n) {
    EXPECT_EQ(n / 16 == 20, std::isnan(g.queries[n])) << n;
  }
}

TEST_P(LinearAttentionGradTest, PackingAndThreadsChangeNoBit) {
  std::vector<Problem> problems;
  std::vector<Loss> losses;
  for (int64_t T : {15, 85, 0, 100, 1, 1, 33}) {
    problems.push_back(MakeProblem({T, -1, 2, 4, 20, 33}, {}, 60 + T));
    losses.push_back(MakeLoss(problems.back(), 60 + T));
  }
  SerialExecutor serial;
  const auto packed =
      RunBackward(problems, losses, DType::kF32, true, true, serial);
  const auto same = [](const reference::Gradients& a,
                       const reference::Gradients& b) {
    return a.queries == b.queries && a.keys == b.keys && a.values == b.values &&
           a.S == b.S && a.z == b.z;
  };
  for (size_t n = 0; n < problems.size(); ++n) {
    EXPECT_TRUE(
        same(packed[n], RunBackward({problems[n]}, {losses[n]}, DType::kF32,
                                    false, false, serial)[0]))
        << n;
  }
  for (int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    const auto again =
        RunBackward(problems, losses, DType::kF32, true, true, pool);
    for (size_t n = 0; n < problems.size(); ++n) {
      EXPECT_TRUE(same(packed[n], again[n])) << threads;
    }
  }
  ReversedExecutor reversed;
  const auto again =
      RunBackward(problems, losses, DType::kF32, true, true, reversed);
  for (size_t n = 0; n < problems.size(); ++n) {
    EXPECT_TRUE(same(packed[n], again[n]));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LinearAttentionGradTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tarn::testing
