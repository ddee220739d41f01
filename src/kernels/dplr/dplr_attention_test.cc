// Forward pass and gradient against the double reference, on every SIMD target.
#include "kernels/dplr/dplr_attention.h"

#include "core/error.h"
#include "kernels/delta/delta_attention.h"
#include "kernels/dplr/test_problem.h"
#include "kernels/recurrence/gate_digits.h"
#include "kernels/recurrence/test_measures.h"

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

// Everything of head 0 (of two, 16 wide) has the bits that are wanted.
void ExpectFirstHeadSame(const DplrProblem& p, const RecurrentLoss& loss,
                         const RecurrentOutcome& wanted,
                         const DplrGradientOutcome& wanted_gradients) {
  SerialExecutor serial;
  const RecurrentOutcome run = RunOne(p);
  const DplrGradientOutcome grad =
      RunDplrGradients({p}, {loss}, DType::kF32, false, false, serial)[0];
  const auto same = [&](const std::vector<double>& x,
                        const std::vector<double>& y, const char* what) {
    for (int64_t i = 0; i < 40 * 16; ++i) {
      const int64_t at = i / 16 * 32 + i % 16;
      EXPECT_EQ(x[at], y[at]) << what << " " << i;
    }
  };
  same(wanted.out, run.out, "out");
  same(wanted_gradients.rest.queries, grad.rest.queries, "dq");
  same(wanted_gradients.rest.keys, grad.rest.keys, "dk");
  same(wanted_gradients.rest.values, grad.rest.values, "dv");
  same(wanted_gradients.reads, grad.reads, "dc");
  same(wanted_gradients.writes, grad.writes, "db");
  for (int64_t i = 0; i < 16 * 16; ++i) EXPECT_EQ(wanted.S[i], run.S[i]);
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

TEST_P(DplrAttentionTest, GateGradientsKeepTheirDigits) {
  SerialExecutor serial;
  for (Gate gate : {Gate::kToken, Gate::kChannel}) {
    for (double size : kGateSizes) {
      DplrProblem p = MakeDplrProblem(DigitsShape(), gate, 4);
      SetGates(p.inputs, size);
      const RecurrentLoss loss = MakeRecurrentLoss(p.inputs, 5);
      ExpectGateDigits(
          RunDplrGradients({p}, {loss}, DType::kF32, false, false, serial)[0]
              .rest.gates,
          reference::DplrBackward(p, loss.out, loss.S).gates,
          "size " + std::to_string(size) +
              (gate == Gate::kToken ? " token" : " channel"));
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
  // Every such call gives the bits of each sequence alone.
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

// A NaN of one head reaches nothing of the other.
TEST_P(DplrAttentionTest, OneBadHeadStaysAlone) {
  SerialExecutor serial;
  for (Gate gate : kGateKinds) {
    const DplrProblem clean = MakeDplrProblem({40, 2, 2, 16, 16}, gate, 72);
    const RecurrentLoss loss = MakeRecurrentLoss(clean.inputs, 73);
    const RecurrentOutcome wanted = RunOne(clean);
    const DplrGradientOutcome wanted_grad =
        RunDplrGradients({clean}, {loss}, DType::kF32, false, false, serial)[0];
    for (auto part :
         {&DecayProblem::queries, &DecayProblem::keys, &DecayProblem::values}) {
      DplrProblem p = clean;
      (p.inputs.*part)[(7 * 2 + 1) * 16 + 3] = std::nan("");
      ExpectFirstHeadSame(p, loss, wanted, wanted_grad);
    }
    for (auto part : {&DplrProblem::reads, &DplrProblem::writes}) {
      DplrProblem p = clean;
      (p.*part)[(7 * 2 + 1) * 16 + 3] = std::nan("");
      ExpectFirstHeadSame(p, loss, wanted, wanted_grad);
    }
  }
}

// A NaN in every tensor of a sequence reaches neither the other rows nor what
// is packed before and after it; the padding (every byte of it is a NaN here)
// reaches nothing.
TEST_P(DplrAttentionTest, OneBadSequenceStaysAlone) {
  SerialExecutor serial;
  for (Gate gate : {Gate::kNone, Gate::kToken, Gate::kChannel}) {
    std::vector<DplrProblem> problems;
    std::vector<RecurrentLoss> losses;
    for (int64_t T : {21, 40, 0, 300}) {
      problems.push_back(MakeDplrProblem({T, 2, 2, 20, 24}, gate, 60));
      losses.push_back(MakeRecurrentLoss(problems.back().inputs, T));
    }
    for (bool packed : {false, true}) {
      const auto run = [&] {
        return RunDplr(problems, DType::kF32, packed, packed, serial);
      };
      const auto gradients = [&] {
        return RunDplrGradients(problems, losses, DType::kF32, packed, packed,
                                serial);
      };
      const auto clean = run();
      const auto clean_gradients = gradients();
      const DplrProblem saved = problems[1];
      DecayProblem& in = problems[1].inputs;
      for (auto* x : {&in.queries, &in.keys, &in.values, &in.gates, &in.S,
                      &problems[1].reads, &problems[1].writes}) {
        std::fill(x->begin(), x->end(), std::nan(""));
      }
      const auto bad = run();
      const auto bad_gradients = gradients();
      problems[1] = saved;
      EXPECT_TRUE(std::isnan(bad[1].out[0]));
      for (size_t n : {0, 2, 3}) {
        EXPECT_TRUE(SameOutcome(clean[n], bad[n])) << n;
        EXPECT_TRUE(SameDplrGradients(clean_gradients[n], bad_gradients[n]))
            << n;
      }
    }
  }
}

// Tokens after a bad one are not read for those before it.
TEST_P(DplrAttentionTest, LaterTokensChangeNoEarlierBit) {
  for (Gate gate : kGateKinds) {
    const DplrProblem p = MakeDplrProblem({100, 1, 1, 20, 20}, gate, 50);
    const RecurrentOutcome before = RunOne(p);
    for (int64_t from : {1, 20, 47, 99}) {
      DplrProblem changed = p;
      DecayProblem& in = changed.inputs;
      for (auto* x : {&in.queries, &in.keys, &in.values, &changed.reads,
                      &changed.writes}) {
        std::fill(x->begin() + from * 20, x->end(), std::nan(""));
      }
      const RecurrentOutcome after = RunOne(changed);
      EXPECT_EQ(0, std::memcmp(before.out.data(), after.out.data(),
                               from * 20 * sizeof(double)))
          << from;
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
