// The forward pass against the double reference, on every SIMD target.
#include "kernels/delta/delta_attention.h"

#include "core/error.h"
#include "kernels/delta/test_problem.h"
#include "kernels/recurrence/test_measures.h"

namespace tarn::testing {
namespace {

void Forward(const RecurrentOptions& options, const RecurrentInputs& in,
             const RecurrentOutputs& outputs, Executor& executor) {
  const Workspace workspace =
      MakeWorkspace(DeltaAttentionWorkspaceBytes(in, executor.width()));
  DeltaAttentionForward(options, in, outputs, executor, workspace.get());
}

std::vector<RecurrentOutcome> RunMany(const std::vector<DeltaProblem>& problems,
                                      DType dtype, bool spread, bool packed,
                                      Executor& executor, bool states = true) {
  return RunRecurrent(InputsOf(problems), BetasOf(problems), dtype, spread,
                      packed, executor, Forward, states);
}

RecurrentOutcome RunOne(const DeltaProblem& p, DType dtype = DType::kF32,
                        bool spread = false) {
  SerialExecutor serial;
  return RunMany({p}, dtype, spread, false, serial)[0];
}

void CheckAgainstReference(const DeltaProblem& p, DType dtype, bool spread,
                           const std::string& what) {
  const reference::DecayResult ref = reference::DeltaForward(p);
  const RecurrentOutcome run = RunOne(p, dtype, spread);
  const RowTolerance t =
      RowsOf(p.inputs, OutputTolerance(dtype), dtype, ref.out.size());
  const Tolerance state = OutputTolerance(DType::kF32);
  const int64_t d_value = p.inputs.d_value;
  const double floor = t.floor;
  ExpectClose(run.out, ref.out, d_value, t.r, t.m, what + " out", floor);
  ExpectClose(WideFloats(run.S), ref.S, d_value, state.r, state.m, what + " S",
              floor);
  DeltaProblem bare = p;
  bare.inputs.S.clear();
  SerialExecutor serial;
  const RecurrentOutcome alone =
      RunMany({bare}, dtype, spread, false, serial, /*states=*/false)[0];
  ExpectClose(alone.out, reference::DeltaForward(bare).out, d_value, t.r, t.m,
              what + " out without states", floor);
}

class DeltaAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(DeltaAttentionTest, LengthsMatchReference) {
  for (int64_t T : {0, 1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 100, 257, 500}) {
    for (Gate gate : kGateKinds) {
      const RecurrentShape shape{T, 1, 1, 20, 33};
      CheckAgainstReference(MakeDeltaProblem(shape, gate, 7 + T), DType::kF32,
                            T % 2, RecurrentLabel(shape, gate));
    }
  }
}

TEST_P(DeltaAttentionTest, WidthsMatchReference) {
  const int64_t widths[] = {1, 3, 16, 20, 32, 33, 60, 64, 100, 128, 192, 256};
  for (int i = 0; i < 12; ++i) {
    for (Gate gate : {Gate::kToken, Gate::kChannel}) {
      const RecurrentShape shape{50, 1, 1, widths[i], widths[(i * 5 + 3) % 12]};
      CheckAgainstReference(MakeDeltaProblem(shape, gate, 11 + i), DType::kF32,
                            i % 2 == 0, RecurrentLabel(shape, gate));
    }
  }
}

TEST_P(DeltaAttentionTest, GatesOfAnySizeAndAnyBetasMatchReference) {
  int seed = 0;
  for (Gate gate : kGateKinds) {
    for (double size : {0.01, 0.1, 1.0, 10.0}) {
      for (bool resets : {false, true}) {
        for (BetaStyle betas : {BetaStyle::kInside, BetaStyle::kOutside}) {
          const RecurrentShape shape{100, 1, 2, 24, 20};
          ++seed;
          CheckAgainstReference(
              MakeDeltaProblem(shape, gate, seed, DType::kF32, {size, resets},
                               true, betas),
              DType::kF32, seed % 2,
              RecurrentLabel(shape, gate) + " size " + std::to_string(size) +
                  (resets ? " resets" : "") +
                  (betas == BetaStyle::kOutside ? " betas" : ""));
        }
      }
    }
  }
}

TEST_P(DeltaAttentionTest, GroupedValueHeadsMatchReference) {
  for (Gate gate : kGateKinds) {
    for (int64_t group : {1, 2, 4}) {
      const RecurrentShape shape{83, 2, 2 * group, 20, 24};
      CheckAgainstReference(MakeDeltaProblem(shape, gate, 30 + group),
                            DType::kF32, true, RecurrentLabel(shape, gate));
    }
  }
}

TEST_P(DeltaAttentionTest, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t T : {1, 17, 100}) {
      for (Gate gate : kGateKinds) {
        const RecurrentShape shape{T, 2, 2, 33, 20};
        CheckAgainstReference(MakeDeltaProblem(shape, gate, 40 + T, dtype),
                              dtype, true,
                              DTypeName(dtype) + RecurrentLabel(shape, gate));
      }
    }
  }
}

TEST_P(DeltaAttentionTest, LaterTokensChangeNoEarlierBit) {
  for (Gate gate : kGateKinds) {
    const DeltaProblem p = MakeDeltaProblem({100, 1, 1, 20, 20}, gate, 6);
    const RecurrentOutcome before = RunOne(p);
    for (double poison : {1e3, static_cast<double>(INFINITY), std::nan("")}) {
      for (int64_t from : {1, 20, 47, 99}) {
        DeltaProblem changed = p;
        DecayProblem& in = changed.inputs;
        for (int64_t n = from * 20; n < 2000; ++n) {
          in.keys[n] = in.values[n] = in.queries[n] = poison;
        }
        const RecurrentOutcome after = RunOne(changed);
        EXPECT_EQ(0, std::memcmp(before.out.data(), after.out.data(),
                                 from * 20 * sizeof(double)))
            << poison << " from " << from;
      }
    }
  }
}

TEST_P(DeltaAttentionTest, BetasOfZeroWriteNothing) {
  for (Gate gate : {Gate::kNone, Gate::kToken}) {
    DeltaProblem p = MakeDeltaProblem({40, 1, 1, 20, 20}, gate, 8);
    std::fill(p.betas.begin(), p.betas.end(), 0.0);
    std::fill(p.inputs.gates.begin(), p.inputs.gates.end(), 0.0);
    EXPECT_EQ(WideFloats(RunOne(p).S), p.inputs.S);
  }
}

TEST_P(DeltaAttentionTest, PackedEqualsSeparateEqualsPaddedBitwise) {
  SerialExecutor serial;
  for (Gate gate : {Gate::kNone, Gate::kToken, Gate::kChannel}) {
    std::vector<DeltaProblem> problems;
    for (int64_t T : {15, 85, 0, 300, 1, 1, 33}) {
      problems.push_back(MakeDeltaProblem({T, 2, 4, 20, 33}, gate, 60));
    }
    const auto packed = RunMany(problems, DType::kF32, true, true, serial);
    const auto padded = RunMany(problems, DType::kF32, false, false, serial);
    for (size_t n = 0; n < problems.size(); ++n) {
      const RecurrentOutcome alone = RunOne(problems[n]);
      EXPECT_TRUE(SameOutcome(packed[n], alone)) << n;
      EXPECT_TRUE(SameOutcome(padded[n], alone)) << n;
    }
  }
}

TEST_P(DeltaAttentionTest, ThreadsAndOrderChangeNoBit) {
  for (Gate gate : kGateKinds) {
    for (int64_t heads : {1, 6}) {
      const DeltaProblem p =
          MakeDeltaProblem({150, heads, heads, 33, 100}, gate, 70);
      const RecurrentOutcome one = RunOne(p);
      for (int threads : {2, 3, 8}) {
        ThreadPool pool(threads);
        EXPECT_TRUE(
            SameOutcome(one, RunMany({p}, DType::kF32, false, false, pool)[0]))
            << threads;
      }
      ReversedExecutor reversed;
      EXPECT_TRUE(SameOutcome(
          one, RunMany({p}, DType::kF32, false, false, reversed)[0]));
    }
  }
}

TEST_P(DeltaAttentionTest, SplitAtChunksAndCarriedStateIsBitwise) {
  for (Gate gate : kGateKinds) {
    const DeltaProblem p = MakeDeltaProblem({96, 1, 2, 20, 20}, gate, 71);
    const RecurrentOutcome whole = RunOne(p);
    for (int64_t cut : {32, 64}) {
      const RecurrentOutcome first = RunOne(Cut(p, cut, false));
      DeltaProblem rest = Cut(p, cut, true);
      rest.inputs.S = WideFloats(first.S);
      const RecurrentOutcome second = RunOne(rest);
      std::vector<double> joined = first.out;
      joined.insert(joined.end(), second.out.begin(), second.out.end());
      EXPECT_EQ(joined, whole.out);
      EXPECT_EQ(second.S, whole.S);
    }
  }
}

TEST_P(DeltaAttentionTest, OneBadHeadStaysAlone) {
  for (Gate gate : kGateKinds) {
    DeltaProblem p = MakeDeltaProblem({40, 2, 2, 16, 16}, gate, 72);
    const RecurrentOutcome clean = RunOne(p);
    for (int64_t t = 0; t < 40; ++t) {
      p.inputs.values[(t * 2 + 1) * 16] = std::nan("");
    }
    const RecurrentOutcome run = RunOne(p);
    for (int64_t t = 0; t < 40; ++t) {
      for (int64_t i = 0; i < 16; ++i) {
        EXPECT_EQ(clean.out[t * 32 + i], run.out[t * 32 + i]);
      }
    }
  }
}

TEST_P(DeltaAttentionTest, EqualGatesOfAllKindsAgree) {
  DeltaProblem head = MakeDeltaProblem({100, 1, 1, 24, 20}, Gate::kHead, 9);
  DeltaProblem token = head, channel = head;
  token.inputs.gate_kind = Gate::kToken;
  token.inputs.gates.assign(100, head.inputs.gates[0]);
  channel.inputs.gate_kind = Gate::kChannel;
  channel.inputs.gates.assign(100 * 24, head.inputs.gates[0]);
  EXPECT_TRUE(SameOutcome(RunOne(head), RunOne(token)));
  ExpectClose(RunOne(channel).out, RunOne(head).out, 20, 4e-6, 1e-4, "vector");
}

INSTANTIATE_TEST_SUITE_P(Targets, DeltaAttentionTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(DeltaAttentionErrors, NameArgumentWantedAndGiven) {
  float data[64] = {0};
  RecurrentInputs in;
  in.queries = TensorView::Dense(data, 1, 2, 2, 4);
  in.keys = TensorView::Dense(data, 1, 2, 2, 4);
  in.values = TensorView::Dense(data, 1, 2, 2, 4);
  in.betas = TensorView::Dense(data, 1, 2, 2, 1);
  const RecurrentOutputs out{TensorView::Dense(data, 1, 2, 2, 4)};
  const auto message = [&](const RecurrentInputs& i) -> std::string {
    try {
      CheckDeltaAttention({}, i, out);
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ("accepted", message(in));
  RecurrentInputs bad = in;
  bad.betas = {};
  EXPECT_EQ("delta_attention: betas: want [1, 2, 2, 1], got [0, 0, 0, 0]",
            message(bad));
  bad = in;
  bad.bonus = data;
  EXPECT_EQ("delta_attention: bonus: want no bonus, got one", message(bad));
}

}  // namespace
}  // namespace tarn::testing
