// The forward pass against the double reference, on every SIMD target.
#include "kernels/decay/decay_attention.h"

#include "core/error.h"
#include "kernels/decay/decay_attention_ref.h"
#include "kernels/recurrence/test_measures.h"
#include "kernels/recurrence/test_problem.h"

namespace tarn::testing {
namespace {

void Forward(const RecurrentOptions& options, const RecurrentInputs& in,
             const RecurrentOutputs& outputs, Executor& executor) {
  const Workspace workspace =
      MakeWorkspace(DecayAttentionWorkspaceBytes(in, executor.width()));
  DecayAttentionForward(options, in, outputs, executor, workspace.get());
}

std::vector<RecurrentOutcome> RunMany(const std::vector<DecayProblem>& problems,
                                      DType dtype, bool spread, bool packed,
                                      Executor& executor, bool states = true) {
  return RunRecurrent(problems, {}, dtype, spread, packed, executor, Forward,
                      states);
}

RecurrentOutcome RunOne(const DecayProblem& p, DType dtype = DType::kF32,
                        bool spread = false) {
  SerialExecutor serial;
  return RunMany({p}, dtype, spread, false, serial)[0];
}

// growth: how many times an error grows with the state.
void CheckAgainstReference(const DecayProblem& p, DType dtype, bool spread,
                           const std::string& what, double growth = 1) {
  const reference::DecayResult ref = reference::DecayForward(p);
  const RecurrentOutcome run = RunOne(p, dtype, spread);
  const RowTolerance t =
      RowsOf(p, OutputTolerance(dtype), dtype, ref.out.size());
  const Tolerance state = OutputTolerance(DType::kF32);
  ExpectClose(run.out, ref.out, p.d_value, t.r * growth, t.m * growth,
              what + " out", t.floor);
  ExpectClose(WideFloats(run.S), ref.S, p.d_value, state.r * growth,
              state.m * growth, what + " S", t.floor);
  DecayProblem bare = p;
  bare.S.clear();
  SerialExecutor serial;
  const RecurrentOutcome alone =
      RunMany({bare}, dtype, spread, false, serial, /*states=*/false)[0];
  ExpectClose(alone.out, reference::DecayForward(bare).out, p.d_value,
              t.r * growth, t.m * growth, what + " out without states",
              t.floor);
}

class DecayAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(DecayAttentionTest, LengthsMatchReference) {
  for (int64_t T : {0, 1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 100, 257, 500}) {
    for (Gate gate : kGateKinds) {
      const RecurrentShape shape{T, 1, 1, 20, 33};
      CheckAgainstReference(MakeDecayProblem(shape, gate, 7 + T), DType::kF32,
                            T % 2, RecurrentLabel(shape, gate));
    }
  }
}

TEST_P(DecayAttentionTest, WidthsMatchReference) {
  const int64_t widths[] = {1, 3, 16, 20, 32, 33, 60, 64, 100, 128, 192, 256};
  for (int i = 0; i < 12; ++i) {
    for (Gate gate : {Gate::kToken, Gate::kChannel}) {
      const RecurrentShape shape{50, 1, 1, widths[i], widths[(i * 5 + 3) % 12]};
      CheckAgainstReference(MakeDecayProblem(shape, gate, 11 + i), DType::kF32,
                            i % 2 == 0, RecurrentLabel(shape, gate));
    }
  }
}

TEST_P(DecayAttentionTest, GatesOfAnySizeAndResetsMatchReference) {
  int seed = 0;
  for (Gate gate : {Gate::kHead, Gate::kToken, Gate::kChannel}) {
    for (double size : {0.01, 0.1, 1.0, 10.0}) {
      for (bool resets : {false, true}) {
        for (bool bonus : {false, true}) {
          const RecurrentShape shape{130, 1, 2, 24, 20};
          ++seed;
          CheckAgainstReference(
              MakeDecayProblem(shape, gate, seed, DType::kF32, {size, resets},
                               true, bonus),
              DType::kF32, seed % 2,
              RecurrentLabel(shape, gate) + " size " + std::to_string(size) +
                  (resets ? " resets" : "") + (bonus ? " bonus" : ""));
        }
      }
    }
  }
}

TEST_P(DecayAttentionTest, GroupedValueHeadsMatchReference) {
  for (Gate gate : kGateKinds) {
    for (int64_t group : {1, 2, 4}) {
      const RecurrentShape shape{83, 2, 2 * group, 20, 24};
      CheckAgainstReference(MakeDecayProblem(shape, gate, 30 + group),
                            DType::kF32, true, RecurrentLabel(shape, gate));
    }
  }
}

TEST_P(DecayAttentionTest, GrowingGatesMatchReference) {
  for (Gate gate : {Gate::kHead, Gate::kToken, Gate::kChannel}) {
    DecayProblem p = MakeDecayProblem({40, 1, 1, 16, 16}, gate, 3);
    for (double& g : p.gates) g = static_cast<float>(0.25 + std::abs(g));
    // A factor's error of 6e-8 is raised to the 40th power.
    CheckAgainstReference(p, DType::kF32, false, "growing", 2);
  }
}

TEST_P(DecayAttentionTest, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t T : {1, 17, 100}) {
      for (Gate gate : kGateKinds) {
        const RecurrentShape shape{T, 2, 2, 33, 20};
        CheckAgainstReference(MakeDecayProblem(shape, gate, 40 + T, dtype),
                              dtype, true,
                              DTypeName(dtype) + RecurrentLabel(shape, gate));
      }
    }
  }
}

TEST_P(DecayAttentionTest, GatesOfHalfTypesAreWidened) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (Gate gate : {Gate::kToken, Gate::kChannel}) {
      DecayProblem p = MakeDecayProblem({37, 1, 2, 20, 16}, gate, 5);
      for (double& g : p.gates) g = Round(g, dtype);
      const RecurrentCall call({p}, {}, DType::kF32, true, false, dtype);
      GuardedTensor out(1, 37, 2, 16, DType::kF32, true);
      SerialExecutor serial;
      Forward(call.options, call.in, {out.view()}, serial);
      EXPECT_EQ(out.Read(0, 0, 37), RunOne(p).out);
    }
  }
}

TEST_P(DecayAttentionTest, LaterTokensChangeNoEarlierBit) {
  for (Gate gate : kGateKinds) {
    const DecayProblem p = MakeDecayProblem({100, 1, 1, 20, 20}, gate, 6);
    const RecurrentOutcome before = RunOne(p);
    for (double poison : {1e3, static_cast<double>(INFINITY), std::nan("")}) {
      for (int64_t from : {1, 20, 47, 99}) {
        DecayProblem changed = p;
        for (int64_t n = from * 20; n < 2000; ++n) {
          changed.keys[n] = changed.values[n] = changed.queries[n] = poison;
        }
        // A later reset, and a later gate that grows, leave factors alone too.
        if (gate == Gate::kToken || gate == Gate::kChannel) {
          const int64_t width = gate == Gate::kToken ? 1 : 20;
          for (int64_t n = from * width; n < 100 * width; ++n) {
            changed.gates[n] = n % 2 == 0 ? poison : -poison;
          }
        }
        const RecurrentOutcome after = RunOne(changed);
        EXPECT_EQ(0, std::memcmp(before.out.data(), after.out.data(),
                                 from * 20 * sizeof(double)))
            << poison << " from " << from;
      }
    }
  }
}

TEST_P(DecayAttentionTest, AResetForgetsExactly) {
  // After a reset nothing depends on what came before, not by one bit.
  for (double reset : {-104.0, -1e4, -INFINITY + 0.0}) {
    for (Gate gate : {Gate::kToken, Gate::kChannel}) {
      DecayProblem p = MakeDecayProblem({60, 1, 1, 20, 20}, gate, 8);
      const int64_t width = gate == Gate::kChannel ? 20 : 1;
      for (int64_t i = 0; i < width; ++i) p.gates[37 * width + i] = reset;
      DecayProblem other = p;
      for (int64_t i = 0; i < 37 * 20; ++i) other.values[i] = 3 * p.values[i];
      const RecurrentOutcome a = RunOne(p), b = RunOne(other);
      for (int64_t i = 37 * 20; i < 60 * 20; ++i) {
        EXPECT_EQ(a.out[i], b.out[i]);
      }
    }
  }
}

TEST_P(DecayAttentionTest, PackedEqualsSeparateEqualsPaddedBitwise) {
  SerialExecutor serial;
  for (Gate gate : kGateKinds) {
    std::vector<DecayProblem> problems;
    for (int64_t T : {15, 85, 0, 300, 1, 1, 33}) {
      problems.push_back(MakeDecayProblem({T, 2, 4, 20, 33}, gate, 60));
      problems.back().scale = 1;
      if (gate == Gate::kHead) problems.back().gates = problems[0].gates;
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

TEST_P(DecayAttentionTest, ThreadsAndOrderChangeNoBit) {
  for (Gate gate : kGateKinds) {
    for (int64_t heads : {1, 6}) {
      const DecayProblem p =
          MakeDecayProblem({150, heads, heads, 33, 100}, gate, 70);
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

TEST_P(DecayAttentionTest, SplitAtChunksAndCarriedStateIsBitwise) {
  for (Gate gate : kGateKinds) {
    const DecayProblem p = MakeDecayProblem({96, 1, 2, 20, 20}, gate, 71);
    const RecurrentOutcome whole = RunOne(p);
    const int64_t gates = gate == Gate::kToken     ? 2
                          : gate == Gate::kChannel ? 40
                                                   : 0;
    for (int64_t cut : {32, 64}) {
      DecayProblem a = p, b = p;
      a.seq_len = cut;
      a.queries.resize(cut * 20);
      a.keys.resize(cut * 20);
      a.values.resize(cut * 40);
      b.seq_len = 96 - cut;
      b.queries.erase(b.queries.begin(), b.queries.begin() + cut * 20);
      b.keys.erase(b.keys.begin(), b.keys.begin() + cut * 20);
      b.values.erase(b.values.begin(), b.values.begin() + cut * 40);
      if (gates > 0) {
        a.gates.resize(cut * gates);
        b.gates.erase(b.gates.begin(), b.gates.begin() + cut * gates);
      }
      const RecurrentOutcome first = RunOne(a);
      b.S = WideFloats(first.S);
      const RecurrentOutcome second = RunOne(b);
      std::vector<double> joined = first.out;
      joined.insert(joined.end(), second.out.begin(), second.out.end());
      EXPECT_EQ(joined, whole.out);
      EXPECT_EQ(second.S, whole.S);
    }
  }
}

TEST_P(DecayAttentionTest, OneBadHeadStaysAlone) {
  for (Gate gate : kGateKinds) {
    DecayProblem p = MakeDecayProblem({40, 2, 2, 16, 16}, gate, 72);
    const RecurrentOutcome clean = RunOne(p);
    for (int64_t t = 0; t < 40; ++t) p.values[(t * 2 + 1) * 16] = std::nan("");
    const RecurrentOutcome run = RunOne(p);
    for (int64_t t = 0; t < 40; ++t) {
      for (int64_t i = 0; i < 16; ++i) {
        EXPECT_EQ(clean.out[t * 32 + i], run.out[t * 32 + i]);
      }
    }
  }
}

TEST_P(DecayAttentionTest, EqualGatesOfAllKindsAgree) {
  DecayProblem head = MakeDecayProblem({100, 1, 1, 24, 20}, Gate::kHead, 9);
  DecayProblem token = head, channel = head;
  token.gate_kind = Gate::kToken;
  token.gates.assign(100, head.gates[0]);
  channel.gate_kind = Gate::kChannel;
  channel.gates.assign(100 * 24, head.gates[0]);
  EXPECT_TRUE(SameOutcome(RunOne(head), RunOne(token)));
  ExpectClose(RunOne(channel).out, RunOne(head).out, 20, 2e-6, 5e-5, "vector");
  DecayProblem none = MakeDecayProblem({100, 1, 1, 24, 20}, Gate::kNone, 9);
  DecayProblem zero = none;
  zero.gate_kind = Gate::kToken;
  zero.gates.assign(100, 0.0);
  EXPECT_TRUE(SameOutcome(RunOne(none), RunOne(zero)));
}

TEST_P(DecayAttentionTest, CheckpointsAreTheStatesOfAGroup) {
  for (Gate gate : kGateKinds) {
    const DecayProblem p = MakeDecayProblem({530, 1, 2, 20, 20}, gate, 12);
    SerialExecutor serial;
    std::vector<float> checkpoints;
    RunRecurrent({p}, {}, DType::kF32, false, false, serial, Forward, true,
                 &checkpoints);
    ASSERT_EQ(checkpoints.size(), 2u * 2 * 400);
    for (int64_t group : {1, 2}) {
      DecayProblem part = p;
      part.seq_len = 256 * group;
      part.queries.resize(part.seq_len * 20);
      part.keys.resize(part.seq_len * 20);
      part.values.resize(part.seq_len * 40);
      if (gate == Gate::kToken) part.gates.resize(part.seq_len * 2);
      if (gate == Gate::kChannel) part.gates.resize(part.seq_len * 40);
      const RecurrentOutcome run = RunOne(part);
      EXPECT_TRUE(SameVectorBits(
          run.S, std::vector<float>(checkpoints.begin() + (group - 1) * 800,
                                    checkpoints.begin() + group * 800)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DecayAttentionTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(DecayAttentionErrors, NameArgumentWantedAndGiven) {
  float data[64] = {0};
  RecurrentInputs in;
  in.queries = TensorView::Dense(data, 1, 2, 2, 4);
  in.keys = TensorView::Dense(data, 1, 2, 2, 4);
  in.values = TensorView::Dense(data, 1, 2, 2, 4);
  in.gates = TensorView::Dense(data, 1, 2, 2, 1);
  const RecurrentOutputs out{TensorView::Dense(data, 1, 2, 2, 4)};
  const auto message = [&](const RecurrentInputs& i,
                           RecurrentOptions o = {}) -> std::string {
    try {
      CheckDecayAttention(o, i, out);
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ("accepted", message(in));
  RecurrentInputs bad = in;
  bad.keys.size[2] = 1;
  EXPECT_EQ("decay_attention: keys: want [1, 2, 2, 4], got [1, 2, 1, 4]",
            message(bad));
  bad = in;
  bad.values.dtype = DType::kF16;
  EXPECT_EQ("decay_attention: values: want F32 as queries, got F16",
            message(bad));
  bad = in;
  bad.gates.size[3] = 3;
  EXPECT_EQ("decay_attention: gates: want [1, 2, 2, 1 or 4], got [1, 2, 2, 3]",
            message(bad));
  bad = in;
  bad.head_gates = data;
  EXPECT_EQ(
      "decay_attention: head_gates: want no head_gates with gates, got both",
      message(bad));
  bad = in;
  bad.betas = in.gates;
  EXPECT_EQ("decay_attention: betas: want no betas, got [1, 2, 2, 1]",
            message(bad));
  const int64_t lengths[] = {3};
  bad = in;
  bad.lengths = lengths;
  EXPECT_EQ("decay_attention: lengths[0]: want 0 to 2, got 3", message(bad));
  const int64_t cu[] = {0, 2, 1, 2};
  bad = in;
  bad.cu_seqlens = cu;
  bad.sequences = 3;
  EXPECT_EQ("decay_attention: cu_seqlens[2]: want at least 2, got 1",
            message(bad));
  EXPECT_EQ("decay_attention: scale: want a finite number, got inf",
            message(in, {INFINITY}));
  bad = in;
  bad.values.data = nullptr;
  EXPECT_EQ("decay_attention: values: want data, got a null pointer",
            message(bad));
}

TEST(DecayAttentionErrors, EmptyBatchAndNoTokensAreFine) {
  SerialExecutor serial;
  for (auto [B, T] : {std::pair<int64_t, int64_t>{0, 5}, {2, 0}}) {
    RecurrentInputs in;
    in.queries = in.keys = TensorView::Dense(nullptr, B, T, 2, 4);
    in.values = TensorView::Dense(nullptr, B, T, 2, 3);
    std::vector<float> S(B * 2 * 4 * 3, 2.0f), final_S(S.size(), NAN);
    in.initial_state = S.data();
    Forward({}, in, {in.values, final_S.data(), nullptr}, serial);
    EXPECT_EQ(S, final_S);
  }
}

}  // namespace
}  // namespace tarn::testing
