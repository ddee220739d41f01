// The CUDA kernels' gradient against the double reference, on the emulated
// device.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/delta/cuda_test_calls.h"
#include "kernels/recurrence/gate_digits.h"

namespace tarn::testing {
namespace {

void CheckGradient(const DeltaProblem& problem, uint64_t seed, DType dtype,
                   bool spread, const std::string& what, bool states = true,
                   double loosen = 1) {
  const DecayProblem& p = problem.inputs;
  RecurrentLoss loss = MakeRecurrentLoss(p, seed, dtype);
  const RecurrentGradientOutcome got =
      GradientsOnCuda({problem}, {loss}, dtype, spread, false, states)[0];
  if (!states) std::fill(loss.S.begin(), loss.S.end(), 0.0);
  const reference::DeltaGradients ref =
      reference::DeltaBackward(problem, loss.out, loss.S);
  const CudaTolerances tolerances(dtype);
  RowTolerance t = RowsOf(p, tolerances.rows, dtype, ref.queries.size());
  t.r *= loosen;
  t.m *= loosen;
  // Without a state the first tokens' sums may cancel too.
  const double near =
      states && t.floor < 0.1 ? t.floor : std::max(0.3, t.floor);
  ExpectClose(got.queries, ref.queries, p.d_key, t.r, t.m, what + " dq", near);
  ExpectClose(got.keys, ref.keys, p.d_key, t.r, t.m, what + " dk", near);
  ExpectClose(got.values, ref.values, p.d_value, t.r, t.m, what + " dv", near);
  if (states) {
    ExpectClose(WideFloats(got.S), ref.S, p.d_value,
                loosen * tolerances.state.r, loosen * tolerances.state.m,
                what + " dS", near);
  }
  const int64_t width = p.gate_kind == Gate::kChannel ? p.d_key : 1;
  if (p.gate_kind == Gate::kHead) {
    const auto terms = reference::DeltaBackward(
                           {WithTokenGates(p), problem.betas}, loss.out, loss.S)
                           .gates;
    ExpectCloseSums(got.gates, ref.gates, terms, loosen * tolerances.gates.r,
                    what + " dg", states ? 0 : 0.3);
  } else if (p.gate_kind != Gate::kNone) {
    ExpectCloseByHead(got.gates, ref.gates, p.value_heads, width,
                      loosen * tolerances.gates.r, loosen * tolerances.gates.m,
                      what + " dg", states ? 0 : 0.3);
  }
  ExpectCloseByHead(got.betas, ref.betas, p.value_heads, 1,
                    loosen * tolerances.betas.r, loosen * tolerances.betas.m,
                    what + " dbeta", 0.1);
}

TEST(DeltaAttentionBackwardCuda, LengthsMatchReference) {
  for (int64_t T : {0, 1, 2, 15, 17, 63, 64, 65, 130, 257}) {
    for (Gate gate : kGateKinds) {
      const RecurrentShape shape{T, 1, 1, 20, 33};
      const DeltaProblem p = MakeDeltaProblem(shape, gate, 17 + T);
      CheckGradient(p, 5, DType::kF32, T % 2, RecurrentLabel(shape, gate));
      if (T > 65) continue;
      DeltaProblem bare = p;
      bare.inputs.S.clear();
      CheckGradient(bare, 6, DType::kF32, T % 2,
                    RecurrentLabel(shape, gate) + " without states", false);
    }
  }
}

TEST(DeltaAttentionBackwardCuda, WidthsMatchReference) {
  const int64_t keys[] = {1, 16, 33, 60, 64, 65, 128};
  const int64_t values[] = {33, 1, 64, 128, 3, 160, 100};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    // With one channel new keys erase the state over and over, and what is
    // left is the rounding of 16-bit operands.
    for (int i = dtype == DType::kF32 ? 0 : 1; i < 7; ++i) {
      for (Gate gate : {Gate::kToken, Gate::kChannel}) {
        const RecurrentShape shape{70, 1, 1, keys[i], values[i]};
        CheckGradient(MakeDeltaProblem(shape, gate, 21 + i, dtype), 6, dtype,
                      i % 2 == 0,
                      DTypeName(dtype) + RecurrentLabel(shape, gate));
      }
    }
  }
}

TEST(DeltaAttentionBackwardCuda, GatesOfAnySizeAndAnyBetasMatchReference) {
  int seed = 0;
  for (Gate gate : kGateKinds) {
    for (double size : {0.01, 0.1, 1.0, 10.0}) {
      for (bool resets : {false, true}) {
        for (BetaStyle betas : {BetaStyle::kInside, BetaStyle::kOutside}) {
          const RecurrentShape shape{70, 1, 2, 24, 20};
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

TEST(DeltaAttentionBackwardCuda, GroupedValueHeadsMatchReference) {
  for (Gate gate : kGateKinds) {
    for (int64_t group : {1, 2, 4}) {
      const RecurrentShape shape{83, 2, 2 * group, 20, 24};
      CheckGradient(MakeDeltaProblem(shape, gate, 30 + group), 7, DType::kF32,
                    true, RecurrentLabel(shape, gate));
    }
  }
}

TEST(DeltaAttentionBackwardCuda, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t T : {17, 200}) {
      for (Gate gate : kGateKinds) {
        const RecurrentShape shape{T, 2, 4, 40, 24};
        CheckGradient(MakeDeltaProblem(shape, gate, 40 + T, dtype), 8, dtype,
                      T % 2, DTypeName(dtype) + RecurrentLabel(shape, gate));
      }
    }
  }
}

TEST(DeltaAttentionBackwardCuda, CheckpointsChangeNoBit) {
  for (Gate gate : kGateKinds) {
    const DeltaProblem p = MakeDeltaProblem({520, 1, 1, 20, 20}, gate, 13);
    const RecurrentLoss loss = MakeRecurrentLoss(p.inputs, 14);
    std::vector<float> checkpoints;
    RunOnCuda({p}, DType::kF32, false, false, true, &checkpoints);
    EXPECT_TRUE(SameGradients(GradientsOnCuda({p}, {loss})[0],
                              GradientsOnCuda({p}, {loss}, DType::kF32, false,
                                              false, true, &checkpoints)[0]));
  }
}

TEST(DeltaAttentionBackwardCuda, PackedEqualsSeparateEqualsPaddedBitwise) {
  for (Gate gate : {Gate::kNone, Gate::kToken, Gate::kChannel}) {
    std::vector<DeltaProblem> problems;
    std::vector<RecurrentLoss> losses;
    for (int64_t T : {15, 0, 70, 1, 1, 64, 260}) {
      problems.push_back(MakeDeltaProblem({T, 1, 2, 20, 33}, gate, 60));
      losses.push_back(MakeRecurrentLoss(problems.back().inputs, T));
    }
    const auto packed =
        GradientsOnCuda(problems, losses, DType::kF32, true, true);
    const auto padded =
        GradientsOnCuda(problems, losses, DType::kF32, false, false);
    for (size_t n = 0; n < problems.size(); ++n) {
      const auto alone = GradientsOnCuda({problems[n]}, {losses[n]})[0];
      EXPECT_TRUE(SameGradients(packed[n], alone)) << n;
      EXPECT_TRUE(SameGradients(padded[n], alone)) << n;
    }
  }
}

TEST(DeltaAttentionBackwardCuda, OrderOfThreadsChangesNoBit) {
  // The emulated device runs its threads in another order every time.
  const DeltaProblem p =
      MakeDeltaProblem({150, 1, 2, 33, 40}, Gate::kHead, 70, DType::kBF16);
  const RecurrentLoss loss = MakeRecurrentLoss(p.inputs, 71, DType::kBF16);
  EXPECT_TRUE(SameGradients(GradientsOnCuda({p}, {loss}, DType::kBF16)[0],
                            GradientsOnCuda({p}, {loss}, DType::kBF16)[0]));
}

}  // namespace
}  // namespace tarn::testing
