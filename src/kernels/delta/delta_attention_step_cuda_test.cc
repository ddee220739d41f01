// The CUDA kernel's steps against the double reference, on the emulated device;
// bits that do not depend on how a prompt is split.
#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/delta/cuda_test_calls.h"
#include "kernels/recurrence/step_stream.h"

namespace tarn::testing {
namespace {

void Step(const RecurrentOptions& options, const RecurrentInputs& in,
          const RecurrentState& state, const TensorView& out, Executor&) {
  DeltaAttentionCudaStep(options, in, state, out, nullptr);
}

RecurrentOutcome Feed(const DeltaProblem& p, const std::vector<int64_t>& runs,
                      DType dtype = DType::kF32, bool spread = false) {
  SerialExecutor unused;
  return FeedTokens(p.inputs, {p.betas}, runs, dtype, spread, unused, Step);
}

TEST(DeltaAttentionStepCuda, MatchesReference) {
  int seed = 0;
  for (auto [K, V] : {std::pair<int64_t, int64_t>{1, 1},
                      {3, 16},
                      {25, 64},
                      {64, 33},
                      {128, 130}}) {
    for (Gate gate : kGateKinds) {
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        ++seed;
        const DeltaProblem p = MakeDeltaProblem(
            {20, 2, 4, K, V}, gate, seed, dtype, {0.3, seed % 2 == 0},
            seed % 3 != 0,
            seed % 2 == 0 ? BetaStyle::kInside : BetaStyle::kOutside);
        const reference::DecayResult ref = reference::DeltaForward(p);
        const RecurrentOutcome s =
            Feed(p, std::vector<int64_t>(20, 1), dtype, seed % 2);
        // All in float32, as on a CPU: its tolerances.
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

TEST(DeltaAttentionStepCuda, AnySplitGivesTheSameBits) {
  for (Gate gate : kGateKinds) {
    const DeltaProblem p = MakeDeltaProblem({24, 2, 2, 64, 100}, gate, 3);
    const RecurrentOutcome whole = Feed(p, {24});
    std::mt19937_64 rng(4);
    for (int round = 0; round < 3; ++round) {
      std::vector<int64_t> runs;
      for (int64_t left = 24; left > 0; left -= runs.back()) {
        runs.push_back(std::min<int64_t>(left, rng() % (2 * round + 2)));
      }
      EXPECT_TRUE(SameOutcome(whole, Feed(p, runs, DType::kF32, round % 2)));
    }
  }
}

TEST(DeltaAttentionStepCuda, ABatchWithSlotsAndLengthsEqualsItsRows) {
  for (Gate gate : {Gate::kNone, Gate::kToken, Gate::kChannel}) {
    std::vector<DeltaProblem> problems;
    for (int64_t T : {5, 3, 0, 4}) {
      problems.push_back(MakeDeltaProblem({T, 1, 2, 20, 24}, gate, 8));
    }
    ExpectSlotsOfABatch(
        InputsOf(problems), BetasOf(problems), Step, [&](int64_t b) {
          return Feed(problems[b], {problems[b].inputs.seq_len});
        });
  }
}

TEST(DeltaAttentionStepCuda, ARingKeepsTheStatesBehindATokenAndRejectsOne) {
  for (Gate gate : kGateKinds) {
    const DeltaProblem p = MakeDeltaProblem({9, 1, 2, 20, 24}, gate, 8);
    ExpectARingOfStates(p.inputs, {p.betas}, Step);
  }
}

}  // namespace
}  // namespace tarn::testing
