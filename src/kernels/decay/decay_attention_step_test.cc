// Recurrent form: step and prefill against the double reference; bits that do
// not depend on how a prompt is split, on the batch or on threads.
#include <algorithm>
#include <string>

#include "core/error.h"
#include "kernels/decay/decay_attention.h"
#include "kernels/decay/decay_attention_ref.h"
#include "kernels/recurrence/step_stream.h"
#include "kernels/recurrence/test_measures.h"
#include "kernels/recurrence/test_problem.h"

namespace tarn::testing {
namespace {

RecurrentOutcome Feed(const DecayProblem& p, const std::vector<int64_t>& runs,
                      DType dtype, bool spread, Executor& executor) {
  return FeedTokens(p, {}, runs, dtype, spread, executor, DecayAttentionStep);
}

class DecayAttentionStepTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(DecayAttentionStepTest, MatchesReference) {
  SerialExecutor serial;
  int seed = 0;
  for (auto [K, V] : {std::pair<int64_t, int64_t>{1, 1},
                      {3, 16},
                      {25, 64},
                      {64, 33},
                      {300, 130}}) {
    for (Gate gate : kGateKinds) {
      for (bool bonus : {false, true}) {
        for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          ++seed;
          const DecayProblem p =
              MakeDecayProblem({40, 2, 4, K, V}, gate, seed, dtype,
                               {0.3, seed % 2 == 0}, seed % 3 != 0, bonus);
          const reference::DecayResult ref = reference::DecayForward(p);
          const RecurrentOutcome s =
              Feed(p, std::vector<int64_t>(40, 1), dtype, seed % 2, serial);
          const RowTolerance t =
              RowsOf(p, OutputTolerance(dtype), dtype, ref.out.size());
          const std::string what = "case " + std::to_string(seed);
          ExpectClose(s.out, ref.out, V, t.r, t.m, what, t.floor);
          ExpectClose(WideFloats(s.S), ref.S, V, 2e-6, 5e-5, what + " S",
                      t.floor);
        }
      }
    }
  }
}

TEST_P(DecayAttentionStepTest, AnySplitAndThreadCountGiveTheSameBits) {
  SerialExecutor serial;
  ThreadPool two(2), three(3);
  for (Gate gate : kGateKinds) {
    const DecayProblem p = MakeDecayProblem({64, 4, 4, 64, 100}, gate, 3);
    const RecurrentOutcome whole = Feed(p, {64}, DType::kF32, false, serial);
    std::mt19937_64 rng(4);
    for (int round = 0; round < 6; ++round) {
      std::vector<int64_t> runs;
      for (int64_t left = 64; left > 0; left -= runs.back()) {
        runs.push_back(std::min<int64_t>(left, rng() % (2 * round + 2)));
      }
      Executor& executor = round % 3 == 0   ? static_cast<Executor&>(serial)
                           : round % 3 == 1 ? static_cast<Executor&>(two)
                                            : three;
      EXPECT_TRUE(
          SameOutcome(whole, Feed(p, runs, DType::kF32, round % 2, executor)));
    }
  }
}

TEST_P(DecayAttentionStepTest, ABatchWithSlotsAndLengthsEqualsItsRows) {
  SerialExecutor serial;
  for (Gate gate : {Gate::kNone, Gate::kToken, Gate::kChannel}) {
    std::vector<DecayProblem> problems;
    for (int64_t T : {5, 3, 0, 4}) {
      problems.push_back(MakeDecayProblem({T, 1, 2, 20, 24}, gate, 8));
    }
    ExpectSlotsOfABatch(problems, {}, DecayAttentionStep, [&](int64_t b) {
      return Feed(problems[b], {problems[b].seq_len}, DType::kF32, false,
                  serial);
    });
  }
}

TEST_P(DecayAttentionStepTest, ARingKeepsTheStatesBehindATokenAndRejectsOne) {
  for (Gate gate : kGateKinds) {
    ExpectARingOfStates(MakeDecayProblem({9, 1, 2, 20, 24}, gate, 8), {},
                        DecayAttentionStep);
  }
}

TEST_P(DecayAttentionStepTest, AgreesWithTheChunkedForm) {
  SerialExecutor serial;
  for (Gate gate : kGateKinds) {
    for (bool bonus : {false, true}) {
      const DecayProblem p = MakeDecayProblem(
          {100, 2, 2, 32, 48}, gate, 9, DType::kF32, {0.3, true}, true, bonus);
      const RecurrentOutcome chunked = RunRecurrent(
          {p}, {}, DType::kF32, false, false, serial,
          [](const auto& options, const auto& in, const auto& out,
             Executor& executor) {
            const Workspace workspace = MakeWorkspace(
                DecayAttentionWorkspaceBytes(in, executor.width()));
            DecayAttentionForward(options, in, out, executor, workspace.get());
          })[0];
      const RecurrentOutcome steps = Feed(p, {100}, DType::kF32, false, serial);
      ExpectClose(steps.out, chunked.out, 48, 4e-6, 1e-4, "out");
      ExpectClose(WideFloats(steps.S), WideFloats(chunked.S), 48, 4e-6, 1e-4,
                  "S");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DecayAttentionStepTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(DecayAttentionStepErrors, NameArgumentWantedAndGiven) {
  float data[64] = {0};
  RecurrentInputs in;
  in.queries = in.keys = in.values = TensorView::Dense(data, 1, 1, 2, 4);
  SerialExecutor serial;
  const auto message = [&](const RecurrentInputs& i, const RecurrentState& s) {
    try {
      DecayAttentionStep({}, i, s, in.values, serial);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(
      "decay_attention step: state: want a state before and after, got a null "
      "pointer",
      message(in, {data, nullptr}));
  RecurrentInputs bad = in;
  bad.initial_state = data;
  EXPECT_EQ(
      "decay_attention step: initial_state: want none: a step works on states, "
      "got one",
      message(bad, {data, data}));
}

}  // namespace
}  // namespace tarn::testing
