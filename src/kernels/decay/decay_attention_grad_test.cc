// The gradient: the reference against finite differences, the kernel against
// the reference on every SIMD target.
#include "core/error.h"
#include "kernels/decay/decay_attention.h"
#include "kernels/decay/decay_attention_ref.h"
#include "kernels/recurrence/gate_digits.h"
#include "kernels/recurrence/test_gradients.h"
#include "kernels/recurrence/test_measures.h"
#include "kernels/recurrence/test_problem.h"

namespace tarn::testing {
namespace {

void Backward(const RecurrentOptions& options, const RecurrentInputs& in,
              const RecurrentGradients& gradients, Executor& executor) {
  const Workspace workspace = MakeWorkspace(DecayAttentionGradientBytes(
      in, executor.width(), gradients.checkpoints != nullptr));
  DecayAttentionBackward(options, in, gradients, executor, workspace.get());
}

RecurrentGradientOutcome RunOne(
    const DecayProblem& p, const RecurrentLoss& loss, Executor& executor,
    DType dtype = DType::kF32, bool spread = false, bool states = true,
    const std::vector<float>* checkpoints = nullptr) {
  return RunRecurrentGradients({p}, {}, {loss}, dtype, spread, false, executor,
                               Backward, states, checkpoints)[0];
}

void CheckGradient(const DecayProblem& p, uint64_t seed, DType dtype,
                   bool spread, const std::string& what, bool states = true) {
  RecurrentLoss loss = MakeRecurrentLoss(p, seed, dtype);
  SerialExecutor serial;
  const RecurrentGradientOutcome got =
      RunOne(p, loss, serial, dtype, spread, states);
  if (!states) std::fill(loss.S.begin(), loss.S.end(), 0.0);
  const reference::DecayGradients ref =
      reference::DecayBackward(p, loss.out, loss.S);
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
    const auto terms =
        reference::DecayBackward(WithTokenGates(p), loss.out, loss.S).gates;
    ExpectCloseSums(got.gates, ref.gates, terms, 3e-6, what + " dg",
                    states ? 0 : 0.3);
  } else if (p.gate_kind != Gate::kNone) {
    ExpectCloseByHead(got.gates, ref.gates, p.value_heads, width, 3e-6, 2e-4,
                      what + " dg", states ? 0 : 0.3);
  }
  ExpectClose(WideFloats(got.bonus), ref.bonus, p.d_key, 3e-6, 1e-4,
              what + " du", near);
}

TEST(DecayAttentionReference, AgreesWithFiniteDifferences) {
  for (Gate gate : kGateKinds) {
    for (bool bonus : {false, true}) {
      DecayProblem p = MakeDecayProblem({7, 1, 2, 4, 3}, gate, 3, DType::kF32,
                                        {0.7, false}, true, bonus);
      const RecurrentLoss loss = MakeRecurrentLoss(p, 4);
      const reference::DecayGradients g =
          reference::DecayBackward(p, loss.out, loss.S);
      const auto value = [&] {
        const reference::DecayResult r = reference::DecayForward(p);
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
      check(p.queries, g.queries);
      check(p.keys, g.keys);
      check(p.values, g.values);
      check(p.gates, g.gates);
      check(p.bonus, g.bonus);
      check(p.S, g.S);
    }
  }
}

class DecayAttentionGradTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(DecayAttentionGradTest, LengthsMatchReference) {
  for (int64_t T : {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 65, 100, 257, 530}) {
    for (Gate gate : kGateKinds) {
      const RecurrentShape shape{T, 1, 1, 20, 33};
      const DecayProblem p = MakeDecayProblem(shape, gate, 17 + T);
      CheckGradient(p, 5, DType::kF32, T % 2, RecurrentLabel(shape, gate));
      DecayProblem bare = p;
      bare.S.clear();
      CheckGradient(bare, 6, DType::kF32, T % 2,
                    RecurrentLabel(shape, gate) + " without states", false);
    }
  }
}

TEST_P(DecayAttentionGradTest, WidthsMatchReference) {
  const int64_t widths[] = {1, 3, 16, 20, 32, 33, 60, 64, 100, 128, 192, 256};
  for (int i = 0; i < 12; ++i) {
    for (Gate gate : {Gate::kToken, Gate::kChannel}) {
      const RecurrentShape shape{50, 1, 1, widths[i], widths[(i * 5 + 3) % 12]};
      CheckGradient(MakeDecayProblem(shape, gate, 21 + i), 6, DType::kF32,
                    i % 2 == 0, RecurrentLabel(shape, gate));
    }
  }
}

TEST_P(DecayAttentionGradTest, GatesOfAnySizeAndResetsMatchReference) {
  int seed = 0;
  for (Gate gate : {Gate::kHead, Gate::kToken, Gate::kChannel}) {
    for (double size : {0.01, 0.1, 1.0, 10.0}) {
      for (bool resets : {false, true}) {
        for (bool bonus : {false, true}) {
          const RecurrentShape shape{130, 1, 2, 24, 20};
          ++seed;
          CheckGradient(MakeDecayProblem(shape, gate, seed, DType::kF32,
                                         {size, resets}, true, bonus),
                        seed, DType::kF32, seed % 2,
                        RecurrentLabel(shape, gate) + " size " +
                            std::to_string(size) + (resets ? " resets" : "") +
                            (bonus ? " bonus" : ""));
        }
      }
    }
  }
}

TEST_P(DecayAttentionGradTest, GatesOfAnySizeKeepTheirDigits) {
  SerialExecutor serial;
  for (Gate gate : {Gate::kToken, Gate::kChannel}) {
    for (double size : kGateSizes) {
      for (bool bonus : {false, true}) {
        DecayProblem p = MakeDecayProblem(DigitsShape(), gate, 4, DType::kF32,
                                          {}, true, bonus);
        SetGates(p, size);
        const RecurrentLoss loss = MakeRecurrentLoss(p, 5);
        ExpectGateDigits(RunOne(p, loss, serial).gates,
                         reference::DecayBackward(p, loss.out, loss.S).gates,
                         "size " + std::to_string(size) +
                             (gate == Gate::kToken ? " token" : " channel") +
                             (bonus ? " bonus" : ""));
      }
    }
  }
}

TEST_P(DecayAttentionGradTest, GroupedValueHeadsMatchReference) {
  for (Gate gate : kGateKinds) {
    // Groups of more than four are cut into several tasks.
    for (int64_t group : {1, 2, 4, 5, 9}) {
      const int64_t T = gate == Gate::kToken ? 270 : 83;
      const RecurrentShape shape{T, 2, 2 * group, 20, 24};
      const bool bonus = group == 5;
      CheckGradient(MakeDecayProblem(shape, gate, 30 + group, DType::kF32, {},
                                     true, bonus),
                    7, DType::kF32, true, RecurrentLabel(shape, gate));
    }
  }
}

TEST_P(DecayAttentionGradTest, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t T : {17, 100}) {
      for (Gate gate : kGateKinds) {
        const RecurrentShape shape{T, 2, T == 17 ? 12 : 4, 33, 20};
        CheckGradient(MakeDecayProblem(shape, gate, 40 + T, dtype), 8, dtype,
                      true, DTypeName(dtype) + RecurrentLabel(shape, gate));
      }
    }
  }
}

TEST_P(DecayAttentionGradTest, CheckpointsChangeNoBit) {
  for (Gate gate : kGateKinds) {
    const int64_t heads = gate == Gate::kToken ? 9 : 2;
    const DecayProblem p = MakeDecayProblem({700, 1, heads, 20, 33}, gate, 13);
    const RecurrentLoss loss = MakeRecurrentLoss(p, 14);
    SerialExecutor serial;
    std::vector<float> checkpoints;
    RunRecurrent(
        {p}, {}, DType::kF32, false, false, serial,
        [](const auto& options, const auto& in, const auto& out,
           Executor& executor) {
          const Workspace workspace =
              MakeWorkspace(DecayAttentionWorkspaceBytes(in, executor.width()));
          DecayAttentionForward(options, in, out, executor, workspace.get());
        },
        true, &checkpoints);
    EXPECT_TRUE(SameGradients(
        RunOne(p, loss, serial),
        RunOne(p, loss, serial, DType::kF32, false, true, &checkpoints)));
  }
}

TEST_P(DecayAttentionGradTest, PackedEqualsSeparateEqualsPaddedBitwise) {
  SerialExecutor serial;
  for (Gate gate : {Gate::kNone, Gate::kToken, Gate::kChannel}) {
    std::vector<DecayProblem> problems;
    std::vector<RecurrentLoss> losses;
    const int64_t value_heads = gate == Gate::kToken ? 10 : 4;
    for (int64_t T : {15, 85, 0, 300, 1, 1, 33, 270}) {
      problems.push_back(
          MakeDecayProblem({T, 2, value_heads, 20, 33}, gate, 60));
      losses.push_back(MakeRecurrentLoss(problems.back(), T));
    }
    const auto packed = RunRecurrentGradients(problems, {}, losses, DType::kF32,
                                              true, true, serial, Backward);
    const auto padded = RunRecurrentGradients(problems, {}, losses, DType::kF32,
                                              false, false, serial, Backward);
    for (size_t n = 0; n < problems.size(); ++n) {
      const auto alone = RunOne(problems[n], losses[n], serial);
      EXPECT_TRUE(SameGradients(packed[n], alone)) << n;
      EXPECT_TRUE(SameGradients(padded[n], alone)) << n;
    }
  }
}

TEST_P(DecayAttentionGradTest, SumsOverTheBatchAreInOrder) {
  // A constant gate and a bonus collect what every row and head adds.
  SerialExecutor serial;
  ThreadPool pool(3);
  for (int64_t value_heads : {2, 14}) {
    std::vector<DecayProblem> problems;
    std::vector<RecurrentLoss> losses;
    reference::DecayGradients sum;
    for (int n = 0; n < 5; ++n) {
      problems.push_back(MakeDecayProblem({70, 2, value_heads, 20, 16},
                                          Gate::kHead, 80 + 2 * n, DType::kF32,
                                          {}, true, true));
      problems[n].gates = problems[0].gates;
      problems[n].bonus = problems[0].bonus;
      losses.push_back(MakeRecurrentLoss(problems[n], n));
      const auto ref =
          reference::DecayBackward(problems[n], losses[n].out, losses[n].S);
      sum.gates.resize(ref.gates.size());
      sum.bonus.resize(ref.bonus.size());
      for (size_t i = 0; i < ref.gates.size(); ++i)
        sum.gates[i] += ref.gates[i];
      for (size_t i = 0; i < ref.bonus.size(); ++i)
        sum.bonus[i] += ref.bonus[i];
    }
    const auto one = RunRecurrentGradients(problems, {}, losses, DType::kF32,
                                           false, false, serial, Backward);
    const auto many = RunRecurrentGradients(problems, {}, losses, DType::kF32,
                                            false, false, pool, Backward);
    EXPECT_TRUE(SameGradients(one[0], many[0]));
    ExpectClose(one[0].gates, sum.gates, 2, 3e-6, 1e-4, "dg");
    ExpectClose(WideFloats(one[0].bonus), sum.bonus, 20, 3e-6, 1e-4, "du");
  }
}

TEST_P(DecayAttentionGradTest, ThreadsAndOrderChangeNoBit) {
  SerialExecutor serial;
  for (Gate gate : kGateKinds) {
    const int64_t value_heads = gate == Gate::kChannel ? 6 : 15;
    const DecayProblem p =
        MakeDecayProblem({300, 3, value_heads, 33, 40}, gate, 70);
    const RecurrentLoss loss = MakeRecurrentLoss(p, 71);
    const auto one = RunOne(p, loss, serial);
    for (int threads : {2, 3, 8}) {
      ThreadPool pool(threads);
      EXPECT_TRUE(SameGradients(one, RunOne(p, loss, pool))) << threads;
    }
    ReversedExecutor reversed;
    EXPECT_TRUE(SameGradients(one, RunOne(p, loss, reversed)));
  }
}

TEST_P(DecayAttentionGradTest, OneBadHeadStaysAlone) {
  SerialExecutor serial;
  for (Gate gate : kGateKinds) {
    DecayProblem p = MakeDecayProblem({40, 2, 2, 16, 16}, gate, 72);
    const RecurrentLoss loss = MakeRecurrentLoss(p, 73);
    const auto clean = RunOne(p, loss, serial);
    for (int64_t t = 0; t < 40; ++t) p.values[(t * 2 + 1) * 16] = std::nan("");
    const auto run = RunOne(p, loss, serial);
    for (int64_t t = 0; t < 40; ++t) {
      for (int64_t i = 0; i < 16; ++i) {
        EXPECT_EQ(clean.queries[t * 32 + i], run.queries[t * 32 + i]);
        EXPECT_EQ(clean.keys[t * 32 + i], run.keys[t * 32 + i]);
      }
    }
  }
}

TEST_P(DecayAttentionGradTest, NaNReachesNoGradientThatDoesNotDependOnIt) {
  SerialExecutor serial;
  for (Gate gate : kGateKinds) {
    for (bool bonus : {false, true}) {
      const DecayProblem p = MakeDecayProblem({40, 1, 1, 16, 16}, gate, 74,
                                              DType::kF32, {}, true, bonus);
      const RecurrentLoss loss = MakeRecurrentLoss(p, 75);
      const RecurrentGradientOutcome clean = RunOne(p, loss, serial);
      DecayProblem bad_key = p, bad_query = p;
      RecurrentLoss bad_loss = loss;
      bad_key.keys[20 * 16 + 3] = std::nan("");
      bad_query.queries[20 * 16 + 3] = std::nan("");
      bad_loss.out[20 * 16 + 3] = std::nan("");
      const auto key = RunOne(bad_key, loss, serial);
      const auto query = RunOne(bad_query, loss, serial);
      const auto output = RunOne(p, bad_loss, serial);
      for (int64_t i = 0; i < 40 * 16; ++i) {
        const int64_t t = i / 16;
        // A key reaches later queries; a query and an output earlier keys.
        const bool before = t < 20;
        const bool after = t > 20;
        const bool other = t != 20;
        const auto same = [&](bool wanted, const std::vector<double>& x,
                              const std::vector<double>& y, const char* what) {
          EXPECT_TRUE(!wanted || x[i] == y[i]) << what << " " << t;
        };
        same(before, clean.queries, key.queries, "dq of a key");
        same(other, clean.queries, query.queries, "dq of a query");
        same(other, clean.queries, output.queries, "dq of an output");
        same(other, clean.keys, key.keys, "dk of a key");
        same(after, clean.keys, query.keys, "dk of a query");
        same(after, clean.keys, output.keys, "dk of an output");
        same(other, clean.values, key.values, "dv of a key");
        same(after, clean.values, query.values, "dv of a query");
        same(after, clean.values, output.values, "dv of an output");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DecayAttentionGradTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(DecayAttentionGradMemory, IsBoundedByTokensAndCheckpoints) {
  // Scratch does not grow with T beyond the checkpoints, and those by one state
  // every 256 tokens.
  const auto bytes = [](int64_t T, bool saved, int64_t heads = 8) {
    RecurrentInputs in;
    in.queries = in.keys = TensorView::Dense(nullptr, 1, T, heads, 64);
    in.values = TensorView::Dense(nullptr, 1, T, 8, 64);
    in.gates = TensorView::Dense(nullptr, 1, T, 8, 1);
    return static_cast<int64_t>(DecayAttentionGradientBytes(in, 2, saved));
  };
  EXPECT_EQ(bytes(1024, true), bytes(65536, true));
  EXPECT_EQ(bytes(65536, false) - bytes(1024, false),
            2 * (65536 - 1024) / 256 * 64 * 64 * 4);
  EXPECT_LT(bytes(65536, true), 2 * 512 * 1024);
  // One head of queries and keys serves all eight value heads.
  EXPECT_EQ(bytes(1024, true, 1), bytes(65536, true, 1));
}

TEST(DecayAttentionGradErrors, EmptyBatchAndNoTokensAreFine) {
  SerialExecutor serial;
  for (auto [B, T] : {std::pair<int64_t, int64_t>{0, 5}, {2, 0}}) {
    RecurrentInputs in;
    in.queries = in.keys = TensorView::Dense(nullptr, B, T, 2, 4);
    in.values = TensorView::Dense(nullptr, B, T, 2, 3);
    const float head_gates[2] = {-1.0f, -2.0f};
    const std::vector<float> S(B * 2 * 4 * 3, 2.0f);
    std::vector<float> dS(S.size(), NAN), d_head(2, NAN);
    in.head_gates = head_gates;
    RecurrentGradients grad;
    grad.grad_out = grad.grad_values = in.values;
    grad.grad_queries = grad.grad_keys = in.queries;
    grad.grad_final_state = S.data();
    grad.grad_initial_state = dS.data();
    grad.grad_head_gates = d_head.data();
    Backward({}, in, grad, serial);
    EXPECT_EQ(S, dS);
    EXPECT_EQ(std::vector<float>(2, 0.0f), d_head);
  }
}

TEST(DecayAttentionGradErrors, NameArgumentWantedAndGiven) {
  float data[64] = {0};
  RecurrentInputs in;
  in.queries = in.keys = in.values = TensorView::Dense(data, 1, 2, 2, 4);
  in.gates = TensorView::Dense(data, 1, 2, 2, 1);
  RecurrentGradients grad;
  grad.grad_out = grad.grad_queries = grad.grad_keys = grad.grad_values =
      in.values;
  SerialExecutor serial;
  try {
    DecayAttentionBackward({}, in, grad, serial, nullptr);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(
        "decay_attention gradient: grad_gates: want [1, 2, 2, 1] F32, got "
        "[0, 0, 0, 0] F32",
        error.what());
  }
  grad.grad_gates = in.gates;
  grad.grad_out.size[1] = 1;
  try {
    DecayAttentionBackward({}, in, grad, serial, nullptr);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(
        "decay_attention: grad_out: want [1, 2, 2, 4], got [1, 1, 2, 4]",
        error.what());
  }
}

}  // namespace
}  // namespace tarn::testing
