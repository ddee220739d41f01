// The gradient: the reference against finite differences, the kernel against
// the reference on every SIMD target.
#include "kernels/delta/delta_attention.h"
#include "kernels/delta/test_problem.h"
#include "kernels/recurrence/gate_digits.h"
#include "kernels/recurrence/test_gradients.h"
#include "kernels/recurrence/test_measures.h"

namespace tarn::testing {
namespace {

void Forward(const RecurrentOptions& options, const RecurrentInputs& in,
             const RecurrentOutputs& outputs, Executor& executor) {
  const Workspace workspace =
      MakeWorkspace(DeltaAttentionWorkspaceBytes(in, executor.width()));
  DeltaAttentionForward(options, in, outputs, executor, workspace.get());
}

void Backward(const RecurrentOptions& options, const RecurrentInputs& in,
              const RecurrentGradients& gradients, Executor& executor) {
  const Workspace workspace = MakeWorkspace(DeltaAttentionGradientBytes(
      in, executor.width(), gradients.checkpoints != nullptr));
  DeltaAttentionBackward(options, in, gradients, executor, workspace.get());
}

RecurrentGradientOutcome RunOne(
    const DeltaProblem& p, const RecurrentLoss& loss, Executor& executor,
    DType dtype = DType::kF32, bool spread = false, bool states = true,
    const std::vector<float>* checkpoints = nullptr) {
  return RunRecurrentGradients({p.inputs}, {p.betas}, {loss}, dtype, spread,
                               false, executor, Backward, states,
                               checkpoints)[0];
}

void CheckGradient(const DeltaProblem& problem, uint64_t seed, DType dtype,
                   bool spread, const std::string& what, bool states = true) {
  const DecayProblem& p = problem.inputs;
  RecurrentLoss loss = MakeRecurrentLoss(p, seed, dtype);
  SerialExecutor serial;
  const RecurrentGradientOutcome got =
      RunOne(problem, loss, serial, dtype, spread, states);
  if (!states) std::fill(loss.S.begin(), loss.S.end(), 0.0);
  const reference::DeltaGradients ref =
      reference::DeltaBackward(problem, loss.out, loss.S);
  const RowTolerance t =
      RowsOf(p, GradientTolerance(dtype), dtype, ref.queries.size());
  // Without a state the first tokens' sums may cancel too.
  const double near =
      states && t.floor < 0.1 ? t.floor : std::max(0.3, t.floor);
  ExpectClose(got.queries, ref.queries, p.d_key, t.r, t.m, what + " dq", near);
  ExpectClose(got.keys, ref.keys, p.d_key, t.r, t.m, what + " dk", near);
  ExpectClose(got.values, ref.values, p.d_value, t.r, t.m, what + " dv", near);
  if (states) {
    ExpectClose(WideFloats(got.S), ref.S, p.d_value, 2e-6, 5e-5, what + " dS",
                near);
  }
  const int64_t width = p.gate_kind == Gate::kChannel ? p.d_key : 1;
  if (p.gate_kind == Gate::kHead) {
    const auto terms = reference::DeltaBackward(
                           {WithTokenGates(p), problem.betas}, loss.out, loss.S)
                           .gates;
    ExpectCloseSums(got.gates, ref.gates, terms, 3e-6, what + " dg",
                    states ? 0 : 0.3);
  } else if (p.gate_kind != Gate::kNone) {
    ExpectCloseByHead(got.gates, ref.gates, p.value_heads, width, 3e-6, 2e-4,
                      what + " dg", states ? 0 : 0.3);
  }
  ExpectCloseByHead(got.betas, ref.betas, p.value_heads, 1, 3e-6, 1e-4,
                    what + " dbeta");
}

TEST(DeltaAttentionReference, AgreesWithFiniteDifferences) {
  for (Gate gate : kGateKinds) {
    DeltaProblem p = MakeDeltaProblem({7, 1, 2, 4, 3}, gate, 3, DType::kF32,
                                      {0.7, false}, true, BetaStyle::kOutside);
    const RecurrentLoss loss = MakeRecurrentLoss(p.inputs, 4);
    const reference::DeltaGradients g =
        reference::DeltaBackward(p, loss.out, loss.S);
    const auto value = [&] {
      const reference::DecayResult r = reference::DeltaForward(p);
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
    check(p.betas, g.betas);
    check(p.inputs.S, g.S);
  }
}

class DeltaAttentionGradTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(DeltaAttentionGradTest, LengthsMatchReference) {
  for (int64_t T : {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 65, 100, 257, 530}) {
    for (Gate gate : kGateKinds) {
      const RecurrentShape shape{T, 1, 1, 20, 33};
      const DeltaProblem p = MakeDeltaProblem(shape, gate, 17 + T);
      CheckGradient(p, 5, DType::kF32, T % 2, RecurrentLabel(shape, gate));
      DeltaProblem bare = p;
      bare.inputs.S.clear();
      CheckGradient(bare, 6, DType::kF32, T % 2,
                    RecurrentLabel(shape, gate) + " without states", false);
    }
  }
}

TEST_P(DeltaAttentionGradTest, WidthsMatchReference) {
  const int64_t widths[] = {1, 3, 16, 20, 32, 33, 60, 64, 100, 128, 192, 256};
  for (int i = 0; i < 12; ++i) {
    for (Gate gate : {Gate::kToken, Gate::kChannel}) {
      const RecurrentShape shape{50, 1, 1, widths[i], widths[(i * 5 + 3) % 12]};
      CheckGradient(MakeDeltaProblem(shape, gate, 21 + i), 6, DType::kF32,
                    i % 2 == 0, RecurrentLabel(shape, gate));
    }
  }
}

TEST_P(DeltaAttentionGradTest, GatesOfAnySizeAndAnyBetasMatchReference) {
  int seed = 0;
  for (Gate gate : kGateKinds) {
    for (double size : {0.01, 0.1, 1.0, 10.0}) {
      for (bool resets : {false, true}) {
        for (BetaStyle betas : {BetaStyle::kInside, BetaStyle::kOutside}) {
          const RecurrentShape shape{100, 1, 2, 24, 20};
          ++seed;
          CheckGradient(MakeDeltaProblem(shape, gate, seed, DType::kF32,
                                         {size, resets}, true, betas),
                        seed, DType::kF32, seed % 2,
                        RecurrentLabel(shape, gate) + " size " +
                            std::to_string(size) + (resets ? " resets" : "") +
                            (betas == BetaStyle::kOutside ? " betas" : ""));
        }
      }
    }
  }
}

TEST_P(DeltaAttentionGradTest, GatesOfAnySizeKeepTheirDigits) {
  SerialExecutor serial;
  for (Gate gate : {Gate::kToken, Gate::kChannel}) {
    for (double size : kGateSizes) {
      DeltaProblem p = MakeDeltaProblem(DigitsShape(), gate, 4);
      SetGates(p.inputs, size);
      const RecurrentLoss loss = MakeRecurrentLoss(p.inputs, 5);
      ExpectGateDigits(RunOne(p, loss, serial).gates,
                       reference::DeltaBackward(p, loss.out, loss.S).gates,
                       "size " + std::to_string(size) +
                           (gate == Gate::kToken ? " token" : " channel"));
    }
  }
}

TEST_P(DeltaAttentionGradTest, GroupedValueHeadsMatchReference) {
  for (Gate gate : kGateKinds) {
    for (int64_t group : {1, 2, 4, 5, 9}) {
      const RecurrentShape shape{83, 2, 2 * group, 20, 24};
      CheckGradient(MakeDeltaProblem(shape, gate, 30 + group), 7, DType::kF32,
                    true, RecurrentLabel(shape, gate));
    }
  }
}

TEST_P(DeltaAttentionGradTest, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t T : {17, 100}) {
      for (Gate gate : kGateKinds) {
        const RecurrentShape shape{T, 2, 4, 33, 20};
        CheckGradient(MakeDeltaProblem(shape, gate, 40 + T, dtype), 8, dtype,
                      true, DTypeName(dtype) + RecurrentLabel(shape, gate));
      }
    }
  }
}

TEST_P(DeltaAttentionGradTest, CheckpointsChangeNoBit) {
  for (Gate gate : kGateKinds) {
    const DeltaProblem p = MakeDeltaProblem({700, 1, 2, 20, 33}, gate, 13);
    const RecurrentLoss loss = MakeRecurrentLoss(p.inputs, 14);
    SerialExecutor serial;
    std::vector<float> checkpoints;
    RunRecurrent({p.inputs}, {p.betas}, DType::kF32, false, false, serial,
                 Forward, true, &checkpoints);
    EXPECT_TRUE(SameGradients(
        RunOne(p, loss, serial),
        RunOne(p, loss, serial, DType::kF32, false, true, &checkpoints)));
  }
}

TEST_P(DeltaAttentionGradTest, PackedEqualsSeparateEqualsPaddedBitwise) {
  SerialExecutor serial;
  for (Gate gate : {Gate::kNone, Gate::kToken, Gate::kChannel}) {
    std::vector<DeltaProblem> problems;
    std::vector<RecurrentLoss> losses;
    for (int64_t T : {15, 85, 0, 300, 1, 1, 33, 270}) {
      problems.push_back(MakeDeltaProblem({T, 2, 4, 20, 33}, gate, 60));
      losses.push_back(MakeRecurrentLoss(problems.back().inputs, T));
    }
    const auto run = [&](bool spread, bool packed) {
      return RunRecurrentGradients(InputsOf(problems), BetasOf(problems),
                                   losses, DType::kF32, spread, packed, serial,
                                   Backward);
    };
    const auto packed = run(true, true), padded = run(false, false);
    for (size_t n = 0; n < problems.size(); ++n) {
      const auto alone = RunOne(problems[n], losses[n], serial);
      EXPECT_TRUE(SameGradients(packed[n], alone)) << n;
      EXPECT_TRUE(SameGradients(padded[n], alone)) << n;
    }
  }
}

TEST_P(DeltaAttentionGradTest, ThreadsAndOrderChangeNoBit) {
  SerialExecutor serial;
  for (Gate gate : kGateKinds) {
    const DeltaProblem p = MakeDeltaProblem({150, 3, 15, 33, 40}, gate, 70);
    const RecurrentLoss loss = MakeRecurrentLoss(p.inputs, 71);
    const auto one = RunOne(p, loss, serial);
    for (int threads : {2, 3, 8}) {
      ThreadPool pool(threads);
      EXPECT_TRUE(SameGradients(one, RunOne(p, loss, pool))) << threads;
    }
    ReversedExecutor reversed;
    EXPECT_TRUE(SameGradients(one, RunOne(p, loss, reversed)));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DeltaAttentionGradTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(DeltaAttentionGradMemory, IsBoundedByTokensAndCheckpoints) {
  const auto bytes = [](int64_t T, bool saved) {
    RecurrentInputs in;
    in.queries = in.keys = TensorView::Dense(nullptr, 1, T, 8, 64);
    in.values = TensorView::Dense(nullptr, 1, T, 8, 64);
    in.gates = in.betas = TensorView::Dense(nullptr, 1, T, 8, 1);
    return static_cast<int64_t>(DeltaAttentionGradientBytes(in, 2, saved));
  };
  EXPECT_EQ(bytes(1024, true), bytes(65536, true));
  EXPECT_EQ(bytes(65536, false) - bytes(1024, false),
            2 * (65536 - 1024) / 256 * 64 * 64 * 4);
  EXPECT_LT(bytes(65536, true), 2 * 640 * 1024);
}

}  // namespace
}  // namespace tarn::testing
