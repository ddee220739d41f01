// The CUDA kernels' forward pass against the double reference, on the emulated
// device.
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
    for (Gate gate : kScalarGates) {
      const RecurrentShape shape{T, 1, 1, 20, 33};
      CheckAgainstReference(MakeDeltaProblem(shape, gate, 7 + T), DType::kF32,
                            T % 2, RecurrentLabel(shape, gate));
    }
  }
}

}  // namespace
}  // namespace tarn::testing
