// Recurrent form: step and prefill against the double reference; bits that do
// not depend on how a prompt is split or on threads.
#include <algorithm>
#include <string>

#include "kernels/delta/delta_attention.h"
#include "kernels/delta/test_problem.h"
#include "kernels/recurrence/step_stream.h"
#include "kernels/recurrence/test_measures.h"

namespace tarn::testing {
namespace {

RecurrentOutcome Feed(const DeltaProblem& p, const std::vector<int64_t>& runs,
                      DType dtype, bool spread, Executor& executor) {
  return FeedTokens(p.inputs, {p.betas}, runs, dtype, spread, executor,
                    DeltaAttentionStep);
}

class DeltaAttentionStepTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(DeltaAttentionStepTest, MatchesReference) {
  SerialExecutor serial;
  int seed = 0;
  for (auto [K, V] : {std::pair<int64_t, int64_t>{1, 1},
                      {3, 16},
                      {25, 64},
                      {64, 33},
                      {300, 130}}) {
    for (Gate gate : kGateKinds) {
      for (BetaStyle betas : {BetaStyle::kInside, BetaStyle::kOutside}) {
        for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          ++seed;
          const DeltaProblem p =
              MakeDeltaProblem({40, 2, 4, K, V}, gate, seed, dtype,
                               {0.3, seed % 2 == 0}, seed % 3 != 0, betas);
          const reference::DecayResult ref = reference::DeltaForward(p);
          const RecurrentOutcome s =
              Feed(p, std::vector<int64_t>(40, 1), dtype, seed % 2, serial);
          const RowTolerance t =
              RowsOf(p.inputs, OutputTolerance(dtype), dtype, ref.out.size());
          const std::string what = "case " + std::to_string(seed);
          ExpectClose(s.out, ref.out, V, t.r, t.m, what, t.floor);
          ExpectClose(WideFloats(s.S), ref.S, V, 2e-6, 5e-5, what + " S",
                      t.floor);
        }
      }
    }
  }
}

TEST_P(DeltaAttentionStepTest, AnySplitAndThreadCountGiveTheSameBits) {
  SerialExecutor serial;
  ThreadPool two(2), three(3);
  for (Gate gate : kGateKinds) {
    const DeltaProblem p = MakeDeltaProblem({64, 4, 4, 64, 100}, gate, 3);
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

TEST_P(DeltaAttentionStepTest, ABatchWithSlotsAndLengthsEqualsItsRows) {
  SerialExecutor serial;
  for (Gate gate : {Gate::kNone, Gate::kToken, Gate::kChannel}) {
    std::vector<DeltaProblem> problems;
    for (int64_t T : {5, 3, 0, 4}) {
      problems.push_back(MakeDeltaProblem({T, 1, 2, 20, 24}, gate, 8));
    }
    ExpectSlotsOfABatch(InputsOf(problems), BetasOf(problems),
                        DeltaAttentionStep, [&](int64_t b) {
                          return Feed(problems[b], {problems[b].inputs.seq_len},
                                      DType::kF32, false, serial);
                        });
  }
}

TEST_P(DeltaAttentionStepTest, ARingKeepsTheStatesBehindATokenAndRejectsOne) {
  for (Gate gate : kGateKinds) {
    const DeltaProblem p = MakeDeltaProblem({9, 1, 2, 20, 24}, gate, 8);
    ExpectARingOfStates(p.inputs, {p.betas}, DeltaAttentionStep);
  }
}

TEST_P(DeltaAttentionStepTest, AgreesWithTheChunkedForm) {
  SerialExecutor serial;
  for (Gate gate : kGateKinds) {
    const DeltaProblem p =
        MakeDeltaProblem({100, 2, 2, 32, 48}, gate, 9, DType::kF32, {0.3, true},
                         true, BetaStyle::kOutside);
    const RecurrentOutcome chunked = RunRecurrent(
        {p.inputs}, {p.betas}, DType::kF32, false, false, serial,
        [](const auto& options, const auto& in, const auto& out,
           Executor& executor) {
          const Workspace workspace =
              MakeWorkspace(DeltaAttentionWorkspaceBytes(in, executor.width()));
          DeltaAttentionForward(options, in, out, executor, workspace.get());
        })[0];
    const RecurrentOutcome steps = Feed(p, {100}, DType::kF32, false, serial);
    ExpectClose(steps.out, chunked.out, 48, 4e-6, 1e-4, "out");
    ExpectClose(WideFloats(steps.S), WideFloats(chunked.S), 48, 4e-6, 1e-4,
                "S");
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DeltaAttentionStepTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tarn::testing
