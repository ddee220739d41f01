// Recurrent form: step and prefill against the double reference; bits that do
// not depend on how a prompt is split, on slots or on threads.
#include "kernels/dplr/dplr_attention.h"
#include "kernels/dplr/test_problem.h"
#include "kernels/recurrence/step_stream.h"

namespace tarn::testing {
namespace {

class DplrAttentionStepTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(DplrAttentionStepTest, MatchesReferenceAndAnySplitGivesTheSameBits) {
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

TEST_P(DplrAttentionStepTest, ABatchWithSlotsAndLengthsEqualsItsRows) {
  SerialExecutor serial;
  for (Gate gate : {Gate::kNone, Gate::kToken, Gate::kChannel}) {
    std::vector<DplrProblem> problems;
    for (int64_t T : {5, 3, 0, 4}) {
      problems.push_back(MakeDplrProblem({T, 2, 2, 20, 24}, gate, 8));
    }
    const PairTensors pair(problems, DType::kF32, true, false);
    ExpectSlotsOfABatch(
        InputsOf(problems), {}, DplrAttentionStep,
        [&](int64_t b) {
          return FeedDplr(problems[b], {problems[b].inputs.seq_len},
                          DType::kF32, false, serial);
        },
        [&](const RecurrentInputs& in) { return pair.Add(in); });
  }
}

TEST_P(DplrAttentionStepTest, ARingKeepsTheStatesBehindATokenAndRejectsOne) {
  for (Gate gate : kGateKinds) {
    const DplrProblem p = MakeDplrProblem({9, 2, 2, 20, 24}, gate, 8);
    const PairTensors pair({p}, DType::kF32, false, false);
    ExpectARingOfStates(
        p.inputs, {}, DplrAttentionStep,
        [&](const RecurrentInputs& in) { return pair.Add(in); });
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DplrAttentionStepTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tarn::testing
