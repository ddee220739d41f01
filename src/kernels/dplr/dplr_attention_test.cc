// Forward pass, gradient and step against the double reference, on every SIMD
// target.
#include "kernels/dplr/dplr_attention.h"

#include "core/error.h"
#include "kernels/delta/delta_attention.h"
#include "kernels/dplr/test_problem.h"

namespace tarn::testing {
namespace {

RecurrentOutcome RunOne(const DplrProblem& p, DType dtype = DType::kF32,
                        bool spread = false) {
  SerialExecutor serial;
  return RunDplr({p}, dtype, spread, false, serial)[0];
}

void CheckForward(const DplrProblem& p, DType dtype, bool spread,
                  const std::string& what) {
  const reference::DecayResult ref = reference::DplrForward(p);
  const RecurrentOutcome run = RunOne(p, dtype, spread);
  const RowTolerance t =
      RowsOf(p.inputs, OutputTolerance(dtype), dtype, ref.out.size());
  const int64_t d_value = p.inputs.d_value;
  const double floor = t.floor;
  ExpectClose(run.out, ref.out, d_value, t.r, t.m, what + " out", floor);
  ExpectClose(WideFloats(run.S), ref.S, d_value, 2e-6, 5e-5, what + " S",
              floor);
  DplrProblem bare = p;
  bare.inputs.S.clear();
  SerialExecutor serial;
  ExpectClose(RunDplr({bare}, dtype, spread, false, serial, false)[0].out,
              reference::DplrForward(bare).out, d_value, t.r, t.m,
              what + " out without states", floor);
}

void CheckGradient(const DplrProblem& problem, uint64_t seed, DType dtype,
                   bool spread, const std::string& what, bool states = true) {
  const DecayProblem& p = problem.inputs;
  RecurrentLoss loss = MakeRecurrentLoss(p, seed, dtype);
  SerialExecutor serial;
  const DplrGradientOutcome got = RunDplrGradients(
      {problem}, {loss}, dtype, spread, false, serial, states)[0];
  if (!states) std::fill(loss.S.begin(), loss.S.end(), 0.0);
  const reference::DplrGradients ref =
      reference::DplrBackward(problem, loss.out, loss.S);
  const RowTolerance t =
      RowsOf(p, GradientTolerance(dtype), dtype, ref.queries.size());
  // Without a state the first tokens' sums may cancel too.
  const double near =
      states && t.floor < 0.1 ? t.floor : std::max(0.3, t.floor);
  const auto rows = [&](const std::vector<double>& x,
                        const std::vector<double>& y, int64_t width,
                        const char* name) {
    ExpectClose(x, y, width, t.r, t.m, what + name, near);
  };
  rows(got.rest.queries, ref.queries, p.d_key, " dq");
  rows(got.rest.keys, ref.keys, p.d_key, " dk");
  rows(got.rest.values, ref.values, p.d_value, " dv");
  rows(got.reads, ref.reads, p.d_key, " dc");
  rows(got.writes, ref.writes, p.d_key, " db");
  if (states) {
    ExpectClose(WideFloats(got.rest.S), ref.S, p.d_value, 2e-6, 5e-5,
                what + " dS", near);
  }
  if (p.gate_kind == Gate::kHead) {
    DplrProblem tokens = problem;
    tokens.inputs = WithTokenGates(p);
    ExpectCloseSums(got.rest.gates, ref.gates,
                    reference::DplrBackward(tokens, loss.out, loss.S).gates,
                    3e-6, what + " dg", states ? 0 : 0.3);
  } else if (p.gate_kind != Gate::kNone) {
    ExpectCloseByHead(got.rest.gates, ref.gates, p.heads,
                      p.gate_kind == Gate::kChannel ? p.d_key : 1, 3e-6, 2e-4,
                      what + " dg", states ? 0 : 0.3);
  }
}

TEST(DplrAttentionReference, AgreesWithFiniteDifferences) {
  for (Gate gate : kGateKinds) {
    DplrProblem p =
        MakeDplrProblem({7, 2, 2, 4, 3}, gate, 3, DType::kF32, {0.7, false});
    const RecurrentLoss loss = MakeRecurrentLoss(p.inputs, 4);
    const reference::DplrGradients g =
        reference::DplrBackward(p, loss.out, loss.S);
    const auto value = [&] {
      const reference::DecayResult r = reference::DplrForward(p);
      return LossValue(loss, r.out, r.S);
    };
    const auto check = [&](std::vector<double>& x,
                           const std::vector<double>& dx) {
      ASSERT_EQ(x.size(), dx.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const double saved = x[i], h = 1e-6;
        x[i] = saved + h;
        const double up = value();
        x[i] = saved - h;
        const double down = value();
        x[i] = saved;
        EXPECT_NEAR((up - down) / (2 * h), dx[i],
                    1e-7 * std::max(1.0, std::abs(dx[i])));
      }
    };
    check(p.inputs.queries, g.queries);
    check(p.inputs.keys, g.keys);
    check(p.inputs.values, g.values);
    check(p.inputs.gates, g.gates);
    check(p.reads, g.reads);
    check(p.writes, g.writes);
    check(p.inputs.S, g.S);
  }
}

class DplrAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(DplrAttentionTest, LengthsMatchReference) {
  for (int64_t T : {0, 1, 2, 3, 7, 15, 16, 17, 31, 64, 65, 100, 257, 530}) {
    for (Gate gate : kGateKinds) {
      const RecurrentShape shape{T, 1, 1, 20, 33};
      const DplrProblem p = MakeDplrProblem(shape, gate, 7 + T);
      CheckForward(p, DType::kF32, T % 2, RecurrentLabel(shape, gate));
      CheckGradient(p, 5, DType::kF32, T % 2, RecurrentLabel(shape, gate));
      DplrProblem bare = p;
      bare.inputs.S.clear();
      CheckGradient(bare, 6, DType::kF32, T % 2,
                    RecurrentLabel(shape, gate) + " without states", false);
    }
  }
}

TEST_P(DplrAttentionTest, WidthsMatchReference) {
  const int64_t widths[] = {1, 3, 16, 20, 32, 33, 60, 64, 100, 128, 192, 256};
  for (int i = 0; i < 12; ++i) {
    const RecurrentShape shape{50, 1, 1, widths[i], widths[(i * 5 + 3) % 12]};
    const DplrProblem p = MakeDplrProblem(shape, Gate::kChannel, 11 + i);
    CheckForward(p, DType::kF32, i % 2, RecurrentLabel(shape, Gate::kChannel));
    CheckGradient(p, 6, DType::kF32, i % 2,
                  RecurrentLabel(shape, Gate::kChannel));
  }
}

TEST_P(DplrAttentionTest, GatesOfAnySizeAndResetsMatchReference) {
  int seed = 0;
  for (Gate gate : {Gate::kToken, Gate::kChannel}) {
    for (double size : {0.01, 0.1, 1.0, 10.0}) {
      for (bool resets : {false, true}) {
        const RecurrentShape shape{100, 2, 2, 24, 20};
        ++seed;
        const DplrProblem p =
            MakeDplrProblem(shape, gate, seed, DType::kF32, {size, resets});
        const std::string what = RecurrentLabel(shape, gate) + " size " +
                                 std::to_string(size) +
                                 (resets ? " resets" : "");
        CheckForward(p, DType::kF32, seed % 2, what);
        CheckGradient(p, seed, DType::kF32, seed % 2, what);
      }
    }
  }
}

TEST_P(DplrAttentionTest, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (Gate gate : {Gate::kNone, Gate::kChannel}) {
      const RecurrentShape shape{50, 2, 2, 33, 20};
      const DplrProblem p = MakeDplrProblem(shape, gate, 41, dtype);
      const std::string what = DTypeName(dtype) + RecurrentLabel(shape, gate);
      CheckForward(p, dtype, true, what);
      CheckGradient(p, 8, dtype, true, what);
    }
  }
}

TEST_P(DplrAttentionTest, PackedAndPaddedRowsAndCheckpointsAndThreads) {
  // All of them give the bits of each sequence alone.
  SerialExecutor serial;
  ThreadPool pool(3);
  ReversedExecutor reversed;
  std::vector<DplrProblem> problems;
  std::vector<RecurrentLoss> losses;
  for (int64_t T : {15, 85, 0, 300, 1, 1, 530}) {
    problems.push_back(MakeDplrProblem({T, 2, 2, 20, 33}, Gate::kChannel, 60));
    losses.push_back(MakeRecurrentLoss(problems.back().inputs, T));
  }
  for (bool packed : {false, true}) {
    const auto out = RunDplr(problems, DType::kF32, packed, packed, pool);
    const auto grad =
        RunDplrGradients(problems, losses, DType::kF32, packed, packed, pool);
    for (size_t n = 0; n < problems.size(); ++n) {
      std::vector<float> checkpoints;
      EXPECT_TRUE(
          SameOutcome(out[n], RunDplr({problems[n]}, DType::kF32, false, false,
                                      reversed, true, &checkpoints)[0]))
          << n;
      EXPECT_TRUE(SameDplrGradients(
          grad[n],
          RunDplrGradients({problems[n]}, {losses[n]}, DType::kF32, false,
                           false, serial, true, &checkpoints)[0]))
          << n;
    }
  }
}

TEST_P(DplrAttentionTest, StepMatchesReferenceAndAnySplitGivesTheSameBits) {
  SerialExecutor serial;
  ThreadPool two(2);
  int seed = 0;
  for (auto [K, V] :
       {std::pair<int64_t, int64_t>{1, 1}, {25, 64}, {64, 33}, {300, 130}}) {
    for (Gate gate : kGateKinds) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        ++seed;
        const DplrProblem p = MakeDplrProblem({40, 2, 2, K, V}, gate, seed,
                                              dtype, {0.3, seed % 2 == 0});
        const reference::DecayResult ref = reference::DplrForward(p);
        const RecurrentOutcome s =
            FeedDplr(p, std::vector<int64_t>(40, 1), dtype, seed % 2, serial);
        const Tolerance t = OutputTolerance(dtype);
        const double floor = V == 1 ? 0.1 : 0;
        ExpectClose(s.out, ref.out, V, t.r, t.m, std::to_string(seed), floor);
        ExpectClose(WideFloats(s.S), ref.S, V, 2e-6, 5e-5, "S", floor);
        EXPECT_TRUE(SameOutcome(s, FeedDplr(p, {40}, dtype, seed % 2, two)));
        EXPECT_TRUE(SameOutcome(
            s, FeedDplr(p, {3, 0, 20, 1, 16}, dtype, seed % 2, serial)));
      }
    }
  }
}

TEST_P(DplrAttentionTest, TheDeltaRuleIsACaseOfIt) {
  // c = gamma p, b = -beta k, and beta k for the key.
  SerialExecutor serial;
  const RecurrentShape shape{100, 2, 2, 24, 20};
  DplrProblem p = MakeDplrProblem(shape, Gate::kChannel, 12);
  DecayProblem delta = p.inputs;
  std::mt19937_64 rng(5);
  std::vector<double> betas;
  for (int64_t row = 0; row < 200; ++row) {
    betas.push_back(static_cast<float>(0.25 + 0.5 * (rng() % 2)));
    for (int64_t k = 0; k < 24; ++k) {
      const int64_t i = row * 24 + k;
      delta.keys[i] = -p.reads[i];
      p.reads[i] =
          static_cast<float>(std::exp(p.inputs.gates[i]) * delta.keys[i]);
      p.writes[i] = static_cast<float>(-betas[row] * delta.keys[i]);
      p.inputs.keys[i] = static_cast<float>(betas[row] * delta.keys[i]);
    }
  }
  const RecurrentOutcome general = RunOne(p);
  const RecurrentOutcome tied = RunRecurrent(
      {delta}, {betas}, DType::kF32, false, false, serial,
      [](const auto& options, const auto& in, const auto& out,
         Executor& executor) {
        const Workspace workspace =
            MakeWorkspace(DeltaAttentionWorkspaceBytes(in, executor.width()));
        DeltaAttentionForward(options, in, out, executor, workspace.get());
      })[0];
  ExpectClose(general.out, tied.out, 20, 4e-6, 1e-4, "out");
  ExpectClose(WideFloats(general.S), WideFloats(tied.S), 20, 4e-6, 1e-4, "S");
}

INSTANTIATE_TEST_SUITE_P(Targets, DplrAttentionTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(DplrAttentionErrors, NameArgumentWantedAndGiven) {
  float data[64] = {0};
  RecurrentInputs in;
  in.queries = in.keys = in.values = TensorView::Dense(data, 1, 2, 2, 4);
  in.reads = in.writes = in.queries;
  const auto message = [&](const RecurrentInputs& i) -> std::string {
    try {
      CheckDplrAttention({}, i, {in.values});
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ("accepted", message(in));
  RecurrentInputs bad = in;
  bad.writes = {};
  EXPECT_EQ("dplr_attention: writes: want [1, 2, 2, 4], got [0, 0, 0, 0]",
            message(bad));
  bad = in;
  bad.betas = TensorView::Dense(data, 1, 2, 2, 1);
  EXPECT_EQ("dplr_attention: betas: want no betas, got [1, 2, 2, 1]",
            message(bad));
}

}  // namespace
}  // namespace tarn::testing
