// The CUDA kernels' forward pass against the double reference, on the emulated
// device.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/delta/cuda_test_calls.h"

namespace tarn::testing {
namespace {

void CheckAgainstReference(const DeltaProblem& p, DType dtype, bool spread,
                           const std::string& what) {
  const reference::DecayResult ref = reference::DeltaForward(p);
  const RecurrentOutcome run = RunOnCuda({p}, dtype, spread)[0];
  const CudaTolerances tolerances(dtype);
  const RowTolerance t =
      RowsOf(p.inputs, tolerances.out, dtype, ref.out.size());
  const int64_t d_value = p.inputs.d_value;
  ExpectClose(run.out, ref.out, d_value, t.r, t.m, what + " out", t.floor);
  ExpectClose(WideFloats(run.S), ref.S, d_value, tolerances.state.r,
              tolerances.state.m, what + " S", t.floor);
}

TEST(DeltaAttentionCuda, LengthsMatchReference) {
  for (int64_t T : {0, 1, 2, 15, 17, 63, 64, 65, 130, 257}) {
    for (Gate gate : kGateKinds) {
      const RecurrentShape shape{T, 1, 1, 20, 33};
      CheckAgainstReference(MakeDeltaProblem(shape, gate, 7 + T), DType::kF32,
                            T % 2, RecurrentLabel(shape, gate));
    }
  }
}

TEST(DeltaAttentionCuda, WidthsMatchReference) {
  const int64_t keys[] = {1, 3, 16, 33, 60, 64, 65, 100, 128};
  const int64_t values[] = {33, 1, 64, 20, 128, 3, 160, 32, 100};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    // With a few channels new keys erase the state over and over, and what is
    // left is the rounding of 16-bit operands.
    for (int i = dtype == DType::kF32 ? 0 : 2; i < 9; ++i) {
      for (Gate gate : {Gate::kToken, Gate::kChannel}) {
        const RecurrentShape shape{70, 1, 1, keys[i], values[i]};
        CheckAgainstReference(MakeDeltaProblem(shape, gate, 11 + i, dtype),
                              dtype, i % 2 == 0,
                              DTypeName(dtype) + RecurrentLabel(shape, gate));
      }
    }
  }
}

TEST(DeltaAttentionCuda, GatesOfAnySizeAndAnyBetasMatchReference) {
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

TEST(DeltaAttentionCuda, GroupedValueHeadsMatchReference) {
  for (Gate gate : kGateKinds) {
    for (int64_t group : {1, 2, 4}) {
      const RecurrentShape shape{83, 2, 2 * group, 20, 24};
      CheckAgainstReference(MakeDeltaProblem(shape, gate, 30 + group),
                            DType::kF32, true, RecurrentLabel(shape, gate));
    }
  }
}

TEST(DeltaAttentionCuda, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t T : {1, 17, 200}) {
      for (Gate gate : kGateKinds) {
        const RecurrentShape shape{T, 2, 2, 40, 24};
        CheckAgainstReference(MakeDeltaProblem(shape, gate, 40 + T, dtype),
                              dtype, T % 2,
                              DTypeName(dtype) + RecurrentLabel(shape, gate));
      }
    }
  }
}

TEST(DeltaAttentionCuda, PackedEqualsSeparateEqualsPaddedBitwise) {
  for (Gate gate : {Gate::kNone, Gate::kToken, Gate::kChannel}) {
    std::vector<DeltaProblem> problems;
    for (int64_t T : {15, 85, 0, 300, 1, 1, 33, 64, 128}) {
      problems.push_back(MakeDeltaProblem({T, 1, 2, 20, 33}, gate, 60));
    }
    const auto packed = RunOnCuda(problems, DType::kF32, true, true);
    const auto padded = RunOnCuda(problems, DType::kF32, false, false);
    for (size_t n = 0; n < problems.size(); ++n) {
      const RecurrentOutcome alone = RunOnCuda({problems[n]})[0];
      EXPECT_TRUE(SameOutcome(packed[n], alone)) << n;
      EXPECT_TRUE(SameOutcome(padded[n], alone)) << n;
    }
  }
}

TEST(DeltaAttentionCuda, SplitAtChunksAndCarriedStateIsBitwise) {
  for (Gate gate : kGateKinds) {
    const DeltaProblem p = MakeDeltaProblem({192, 1, 2, 20, 20}, gate, 71);
    const RecurrentOutcome whole = RunOnCuda({p})[0];
    for (int64_t cut : {64, 128}) {
      const RecurrentOutcome first = RunOnCuda({Cut(p, cut, false)})[0];
      DeltaProblem rest = Cut(p, cut, true);
      rest.inputs.S = WideFloats(first.S);
      const RecurrentOutcome second = RunOnCuda({rest})[0];
      std::vector<double> joined = first.out;
      joined.insert(joined.end(), second.out.begin(), second.out.end());
      EXPECT_EQ(joined, whole.out);
      EXPECT_EQ(second.S, whole.S);
    }
  }
}

TEST(DeltaAttentionCuda, LaterTokensChangeNoEarlierBit) {
  const DeltaProblem p = MakeDeltaProblem({100, 1, 1, 20, 20}, Gate::kToken, 6);
  const RecurrentOutcome before = RunOnCuda({p})[0];
  for (int64_t from : {1, 20, 47, 64, 99}) {
    DeltaProblem changed = p;
    DecayProblem& in = changed.inputs;
    // Keys stay unit vectors: a masked product with infinity is not a zero.
    for (int64_t n = from * 20; n < 2000; ++n) {
      in.keys[n] = -in.keys[n];
      in.values[n] = in.queries[n] = 1e3;
    }
    const RecurrentOutcome after = RunOnCuda({changed})[0];
    EXPECT_EQ(0, std::memcmp(before.out.data(), after.out.data(),
                             from * 20 * sizeof(double)))
        << from;
  }
}

TEST(DeltaAttentionCuda, BetasOfZeroWriteNothing) {
  for (Gate gate : {Gate::kNone, Gate::kToken}) {
    DeltaProblem p = MakeDeltaProblem({40, 1, 1, 20, 20}, gate, 8);
    std::fill(p.betas.begin(), p.betas.end(), 0.0);
    std::fill(p.inputs.gates.begin(), p.inputs.gates.end(), 0.0);
    EXPECT_EQ(WideFloats(RunOnCuda({p})[0].S), p.inputs.S);
  }
}

TEST(DeltaAttentionCuda, OneBadHeadStaysAlone) {
  DeltaProblem p = MakeDeltaProblem({70, 2, 2, 16, 16}, Gate::kToken, 72);
  const RecurrentOutcome clean = RunOnCuda({p})[0];
  for (int64_t t = 0; t < 70; ++t) {
    p.inputs.values[(t * 2 + 1) * 16] = std::nan("");
  }
  const RecurrentOutcome run = RunOnCuda({p})[0];
  for (int64_t t = 0; t < 70; ++t) {
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(clean.out[t * 32 + i], run.out[t * 32 + i]);
    }
  }
}

TEST(DeltaAttentionCuda, RefusesWhatItDoesNotServe) {
  float data[4] = {0};
  RecurrentInputs in;
  in.queries = in.keys = TensorView::Dense(data, 1, 2, 1, 129);
  in.values = TensorView::Dense(data, 1, 2, 1, 4);
  in.betas = TensorView::Dense(data, 1, 2, 1, 1);
  const RecurrentOutputs out{TensorView::Dense(data, 1, 2, 1, 4)};
  EXPECT_FALSE(DeltaAttentionCudaServes(129, 4, false));
  const auto message = [&](const RecurrentInputs& given) -> std::string {
    try {
      DeltaAttentionCudaForward({}, given, out, nullptr, nullptr);
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ("delta_attention on CUDA: queries: want K of at most 128, got 129",
            message(in));
  in.queries = in.keys = TensorView::Dense(data, 1, 2, 1, 4);
  EXPECT_TRUE(DeltaAttentionCudaServes(128, 400, false));
  in.betas = {};
  EXPECT_EQ("delta_attention: betas: want [1, 2, 1, 1], got [0, 0, 0, 0]",
            message(in));
}

}  // namespace
}  // namespace tarn::testing
