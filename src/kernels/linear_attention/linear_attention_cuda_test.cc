// The CUDA kernels, compiled as C++ against the emulated device, against the
// double reference.
#include "kernels/linear_attention/linear_attention_cuda.h"

#include "block.h"
#include "core/error.h"
#include "kernels/linear_attention/test_problem.h"

namespace tarn::testing {
namespace {

// Of the table in docs/kernels.md: operands of products are rounded.
Tolerance CudaOutput(DType dtype) {
  if (dtype == DType::kBF16) return {4e-3, 4e-2};
  if (dtype == DType::kF16) return {1e-3, 1e-2};
  return {2e-6, 5e-5};
}
Tolerance CudaGradient(DType dtype) {
  if (dtype == DType::kBF16) return {8e-3, 6e-2};
  if (dtype == DType::kF16) return {2e-3, 2e-2};
  return {3e-6, 1e-4};
}

struct Loss {
  std::vector<double> out, S, z;
};
Loss MakeLoss(const Problem& p, uint64_t seed, DType dtype) {
  std::mt19937_64 rng(seed + 500);
  Loss loss;
  loss.out = Random(p.seq_len_q * p.value_heads * p.d_value, rng);
  loss.S = Random(p.value_heads * p.d_key * p.d_value, rng);
  loss.z = Random(p.value_heads * p.d_key, rng);
  for (double& x : loss.out) x = Round(x, dtype);
  for (double& x : loss.S) x = static_cast<float>(x);
  for (double& x : loss.z) x = static_cast<float>(x);
  return loss;
}

struct Outcome {
  std::vector<double> out, dq, dk, dv;
  std::vector<float> S, z, dS, dz;
};

// Forward and gradient of problems of one shape as batch rows, or packed.
// states: whether those after, and their gradients, are wanted.
std::vector<Outcome> RunAll(const std::vector<Problem>& problems,
                            const std::vector<Loss>& losses, DType dtype,
                            bool spread, bool packed, bool states = true,
                            const int64_t* lengths = nullptr) {
  const Problem& p0 = problems[0];
  Call call(problems, dtype, spread, packed);
  LinearAttentionInputs& in = call.in;
  in.on_device = true;
  in.key_lengths = lengths;
  const int64_t count = call.count, B = call.batch;
  const int64_t T = call.seq_len_q, S = call.seq_len_k;
  const auto like = [&](int64_t tokens, int64_t heads, int64_t width) {
    return GuardedTensor(B, tokens, heads, width, dtype, spread);
  };
  GuardedTensor out = like(T, p0.value_heads, p0.d_value);
  GuardedTensor grad_out = like(T, p0.value_heads, p0.d_value);
  GuardedTensor dq = like(T, p0.heads, p0.d_key);
  GuardedTensor dk = like(S, p0.heads, p0.d_key);
  GuardedTensor dv = like(S, p0.value_heads, p0.d_value);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const int64_t s = p0.value_heads * p0.d_key * p0.d_value;
  const int64_t zs = p0.value_heads * p0.d_key;
  std::vector<float> S1(count * s, nan), z1(count * zs, nan), dS(S1), dz(z1);
  std::vector<float> den(B * T * p0.value_heads, nan), gS, gz;
  for (int64_t n = 0; n < count; ++n) {
    grad_out.Fill(call.Row(n), call.Start(n), losses[n].out);
    gS.insert(gS.end(), losses[n].S.begin(), losses[n].S.end());
    gz.insert(gz.end(), losses[n].z.begin(), losses[n].z.end());
  }
  LinearAttentionOutputs outputs{out.view(), S1.data(), z1.data(), den.data()};
  if (!states) outputs.final_S = outputs.final_z = nullptr;
  Workspace workspace =
      MakeWorkspace(LinearAttentionCudaWorkspaceBytes(p0.options, in));
  LinearAttentionCudaForward(p0.options, in, outputs, nullptr, workspace.get());
  LinearAttentionGradients grad;
  grad.out = out.view();
  grad.denominators = den.data();
  grad.grad_out = grad_out.view();
  grad.grad_queries = dq.view();
  grad.grad_keys = dk.view();
  grad.grad_values = dv.view();
  if (states) {
    grad.grad_final_S = gS.data();
    grad.grad_final_z = gz.data();
    grad.grad_initial_S = dS.data();
    grad.grad_initial_z = dz.data();
  }
  workspace = MakeWorkspace(LinearAttentionCudaGradientBytes(p0.options, in));
  LinearAttentionCudaBackward(p0.options, in, grad, nullptr, workspace.get());
  for (const GuardedTensor* x : {&out, &dq, &dk, &dv}) {
    EXPECT_TRUE(x->GuardsIntact());
  }
  std::vector<Outcome> runs(count);
  for (int64_t n = 0; n < count; ++n) {
    const int64_t b = call.Row(n), t0 = call.Start(n);
    const int64_t Tn = problems[n].seq_len_q, Sn = problems[n].seq_len_k;
    Outcome& run = runs[n];
    run.out = out.Read(b, t0, Tn);
    run.dq = dq.Read(b, t0, Tn);
    run.dk = dk.Read(b, t0, Sn);
    run.dv = dv.Read(b, t0, Sn);
    const auto part = [&](const std::vector<float>& x, int64_t size) {
      return std::vector<float>(x.begin() + n * size,
                                x.begin() + (n + 1) * size);
    };
    run.S = part(S1, s), run.z = part(z1, zs);
    run.dS = part(dS, s), run.dz = part(dz, zs);
  }
  return runs;
}

std::vector<double> Wide(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

// The largest gradients of keys are sums of terms of this size, which cancel.
void Compare(const Problem& p, const Loss& loss, const Outcome& run,
             DType dtype, bool states, const std::string& what) {
  const reference::Result ref = reference::Forward(p);
  const reference::Gradients grad =
      states ? reference::Backward(p, loss.out, loss.S, loss.z)
             : reference::Backward(p, loss.out, {}, {});
  const Tolerance t = CudaOutput(dtype), g = CudaGradient(dtype);
  // A row of one number is one sum.
  const double floor = p.d_key == 1 ? 0.5 : 0.05;
  ExpectClose(run.out, ref.out, p.d_value, t.r, t.m, what + " out", 0.1);
  ExpectClose(run.dq, grad.queries, p.d_key, g.r, g.m, what + " dq", floor);
  ExpectClose(run.dk, grad.keys, p.d_key, g.r, g.m, what + " dk", floor);
  ExpectClose(run.dv, grad.values, p.d_value, g.r, g.m, what + " dv", 0.05);
  if (!states) return;
  ExpectClose(Wide(run.S), ref.S, p.d_value, t.r, t.m, what + " S", 0.1);
  ExpectClose(Wide(run.z), ref.z, p.d_key, t.r, t.m, what + " z", 0.1);
  ExpectClose(Wide(run.dS), grad.S, p.d_value, g.r, g.m, what + " dS", 0.1);
  ExpectClose(Wide(run.dz), grad.z, p.d_key, g.r, g.m, what + " dz", 0.1);
}

void Check(const Problem& p, uint64_t seed, DType dtype, bool spread,
           const std::string& what) {
  const Loss loss = MakeLoss(p, seed, dtype);
  Compare(p, loss, RunAll({p}, {loss}, dtype, spread, false)[0], dtype, true,
          what);
}

std::string Label(const Shape& s, DType dtype) {
  return std::string(DTypeName(dtype)) + " T" + std::to_string(s.T) + " S" +
         std::to_string(s.S) + " H" + std::to_string(s.heads) + "/" +
         std::to_string(s.value_heads) + " K" + std::to_string(s.d_key) + " V" +
         std::to_string(s.d_value);
}

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// One multiprocessor: segments are as long as can be; many: 256 tokens.
class LinearAttentionCuda : public ::testing::Test {
 protected:
  void TearDown() override { cuda::emulation::SetMultiprocessors(132); }
};

TEST_F(LinearAttentionCuda, LengthsMatchReference) {
  for (DType dtype : kTypes) {
    for (int64_t T : {0, 1, 2, 15, 63, 64, 65, 130}) {
      const Shape shape{T, -1, 1, 1, 20, 33};
      Check(MakeProblem(shape, {}, 7 + T, dtype), T, dtype, T % 2,
            Label(shape, dtype));
    }
  }
}

TEST_F(LinearAttentionCuda, SegmentsMatchReference) {
  for (DType dtype : kTypes) {
    for (bool causal : {true, false}) {
      for (int64_t T : {256, 257, 600}) {
        LinearAttentionOptions o;
        o.causal = causal;
        const Shape shape{T, -1, 1, 2, 16, 24};
        Check(MakeProblem(shape, o, 7 + T, dtype), T, dtype, false,
              Label(shape, dtype));
      }
    }
  }
}

TEST_F(LinearAttentionCuda, WidthsMatchReference) {
  int seed = 0;
  for (auto [d_key, d_value] : {std::pair<int64_t, int64_t>{1, 1},
                                {3, 64},
                                {64, 3},
                                {32, 32},
                                {65, 40},
                                {100, 128},
                                {128, 128}}) {
    ++seed;
    const DType dtype = kTypes[(seed - 1) % 3];
    const Shape shape{70, -1, 1, 1, d_key, d_value};
    Check(MakeProblem(shape, {}, seed, dtype), seed, dtype, seed % 2,
          Label(shape, dtype));
  }
}

// Rows of queries and keys without weights of any kind, on states and sums.
TEST_F(LinearAttentionCuda, SumsWithoutDenominatorMatchReference) {
  for (int64_t d_key : {1, 20}) {
    LinearAttentionOptions o;
    o.denominator = Denominator::kNone;
    std::vector<Problem> problems;
    std::vector<Loss> losses;
    for (int seed = 0; seed < 2; ++seed) {
      problems.push_back(MakeProblem({100, -1, 2, 2, d_key, 3}, o, 30 + seed));
      losses.push_back(MakeLoss(problems.back(), seed, DType::kF32));
    }
    const std::vector<Outcome> runs =
        RunAll(problems, losses, DType::kF32, false, false);
    for (size_t n = 0; n < problems.size(); ++n) {
      Compare(problems[n], losses[n], runs[n], DType::kF32, true,
              "unweighted " + std::to_string(n));
    }
  }
}

TEST_F(LinearAttentionCuda, OptionsMatchReference) {
  int seed = 0;
  for (Denominator denominator :
       {Denominator::kExact, Denominator::kCompat, Denominator::kNone}) {
    for (FeatureMap map : kElementwiseMaps) {
      LinearAttentionOptions o;
      o.denominator = denominator;
      o.feature_map = map;
      o.eps = 0.5f;
      o.scale = denominator == Denominator::kExact ? 1.0f : 0.3f;
      ++seed;
      o.causal = seed % 3 != 0;
      const int64_t group = seed % 2 + 1;
      const Shape shape{83, o.causal ? -1 : 50, 2, 2 * group, 20, 24};
      Check(MakeProblem(shape, o, seed), seed, DType::kF32, seed % 2,
            "options " + std::to_string(seed));
    }
  }
}

TEST_F(LinearAttentionCuda, UnequalLengthsMatchReference) {
  int seed = 100;
  for (bool causal : {true, false}) {
    for (auto [T, S] : {std::pair<int64_t, int64_t>{1, 70},
                        {70, 1},
                        {300, 80},
                        {80, 300},
                        {33, 0},
                        {0, 33}}) {
      LinearAttentionOptions o;
      o.causal = causal;
      const Shape shape{T, S, 1, 2, 16, 20};
      ++seed;
      Check(MakeProblem(shape, o, seed), seed, DType::kF32, true,
            Label(shape, DType::kF32));
    }
  }
}

TEST_F(LinearAttentionCuda, MaskedKeysAreSkippedEvenWhenNaN) {
  for (bool causal : {true, false}) {
    LinearAttentionOptions o;
    o.causal = causal;
    Problem p = MakeProblem({90, -1, 1, 1, 20, 20}, o, 5, DType::kF32, false);
    std::mt19937_64 rng(3);
    for (int64_t j = 0; j < 90; ++j) p.kept[j] = rng() % 3 != 0 && j < 80;
    p.kept[0] = p.kept[1] = false;  // causal: the first rows are empty
    Problem poisoned = p;
    const double nan = std::nan("");
    for (int64_t j = 0; j < 90; ++j) {
      for (int64_t i = 0; i < 20 && !p.kept[j]; ++i) {
        poisoned.keys[j * 20 + i] = nan;
        poisoned.values[j * 20 + i] = i % 2 ? nan : INFINITY;
      }
    }
    for (int64_t j = 80; j < 90; ++j) poisoned.kept[j] = true;
    const int64_t length = 80;
    const Loss loss = MakeLoss(p, 4, DType::kF32);
    const Outcome run =
        RunAll({poisoned}, {loss}, DType::kF32, true, false, true, &length)[0];
    Compare(p, loss, run, DType::kF32, true, "masked");
    for (int64_t i = 0; i < 20 && causal; ++i) EXPECT_EQ(0.0, run.out[i]);
  }
}

TEST_F(LinearAttentionCuda, PackedMatchesReference) {
  for (DType dtype : kTypes) {
    std::vector<Problem> problems;
    std::vector<Loss> losses;
    for (int64_t T : {15, 85, 0, 300, 1, 1, 33}) {
      problems.push_back(MakeProblem({T, -1, 1, 2, 20, 33}, {}, 60 + T, dtype));
      losses.push_back(MakeLoss(problems.back(), T, dtype));
    }
    const std::vector<Outcome> runs =
        RunAll(problems, losses, dtype, true, true);
    for (size_t n = 0; n < problems.size(); ++n) {
      Compare(problems[n], losses[n], runs[n], dtype, true,
              "packed " + std::to_string(n));
    }
  }
}

TEST_F(LinearAttentionCuda, BatchWithoutStatesMatchesReference) {
  std::vector<Problem> problems;
  std::vector<Loss> losses;
  for (int seed = 0; seed < 3; ++seed) {
    problems.push_back(
        MakeProblem({77, -1, 2, 4, 20, 33}, {}, 90 + seed, DType::kF32, false));
    losses.push_back(MakeLoss(problems.back(), seed, DType::kF32));
  }
  const std::vector<Outcome> runs =
      RunAll(problems, losses, DType::kF32, false, false, /*states=*/false);
  for (size_t n = 0; n < problems.size(); ++n) {
    Compare(problems[n], losses[n], runs[n], DType::kF32, false,
            "row " + std::to_string(n));
  }
}

TEST_F(LinearAttentionCuda, StepsMatchReference) {
  for (DType dtype : kTypes) {
    for (Denominator denominator : {Denominator::kExact, Denominator::kNone}) {
      LinearAttentionOptions o;
      o.denominator = denominator;
      o.scale = denominator == Denominator::kNone ? 0.5f : 1.0f;
      for (const auto& [d_key, d_value] : {std::pair{20, 33}, {64, 128}}) {
        const Problem p =
            MakeProblem({5, -1, 1, 2, d_key, d_value}, o, 3, dtype);
        const reference::Result ref = reference::Forward(p);
        const Call call({p}, dtype, true, false);
        std::vector<float> S = call.S, z = call.z;
        std::vector<double> out;
        for (int64_t t = 0; t < 5; ++t) {
          const auto at = [&](TensorView view) {
            view.data = view.Row(0, t, 0);
            view.size[1] = 1;
            return view;
          };
          GuardedTensor row(1, 1, 2, d_value, dtype, true);
          LinearAttentionCudaStep(
              o, at(call.in.queries), at(call.in.keys), at(call.in.values),
              {S.data(), z.data(), S.data(), z.data()}, row.view(), nullptr);
          EXPECT_TRUE(row.GuardsIntact());
          for (double x : row.Read(0, 0, 1)) out.push_back(x);
        }
        const Tolerance t = OutputTolerance(dtype);
        const Tolerance state = OutputTolerance(DType::kF32);
        ExpectClose(out, ref.out, d_value, t.r, t.m, "step");
        // Features of 16-bit tensors come from a faster exponential.
        ExpectClose(Wide(S), ref.S, d_value, 4 * state.r, state.m, "step S");
        ExpectClose(Wide(z), ref.z, d_key, 4 * state.r, state.m, "step z");
      }
    }
  }
}

TEST_F(LinearAttentionCuda, EmptyBatchIsFine) {
  const LinearAttentionOptions o;
  LinearAttentionInputs in;
  in.on_device = true;
  in.queries = in.keys = in.values = TensorView::Dense(nullptr, 0, 5, 2, 4);
  EXPECT_EQ(0u, LinearAttentionCudaWorkspaceBytes(o, in));
  LinearAttentionCudaForward(o, in, {in.values}, nullptr, nullptr);
  LinearAttentionGradients grad;
  grad.out = grad.grad_out = grad.grad_values = in.values;
  grad.grad_queries = grad.grad_keys = in.queries;
  LinearAttentionCudaBackward(o, in, grad, nullptr, nullptr);
}

TEST_F(LinearAttentionCuda, RefusesWhatItDoesNotServe) {
  LinearAttentionOptions o;
  EXPECT_TRUE(LinearAttentionCudaServes(o, 128, 128));
  EXPECT_FALSE(LinearAttentionCudaServes(o, 129, 128));
  o.causal_offset = 1;
  EXPECT_FALSE(LinearAttentionCudaServes(o, 64, 64));
  float data[64] = {0};
  LinearAttentionInputs in;
  in.queries = in.keys = in.values = TensorView::Dense(data, 1, 2, 2, 4);
  EXPECT_THROW(LinearAttentionCudaForward(o, in, {in.values}, nullptr, nullptr),
               ArgumentError);
}

}  // namespace
}  // namespace tarn::testing
