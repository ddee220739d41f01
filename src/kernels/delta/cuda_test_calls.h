// The CUDA calls of delta_attention through the harness of the CPU's tests, and
// their tolerances (r / m of test_problem.h).
#pragma once

#include <vector>

#include "kernels/delta/delta_attention_cuda.h"
#include "kernels/delta/test_problem.h"
#include "kernels/recurrence/test_gradients.h"
#include "kernels/recurrence/test_measures.h"

namespace tarn::testing {

// 16-bit operands of products are rounded once more than on a CPU: the solved
// values and the copy of the state.
struct CudaTolerances {
  Tolerance out, state, rows, betas, gates;
  explicit CudaTolerances(DType dtype) {
    if (dtype == DType::kBF16) {
      out = {5e-3, 5e-2};
      state = {4e-3, 4e-2};
      rows = {8e-3, 6e-2};
      betas = gates = {1.5e-2, 1e-1};
    } else if (dtype == DType::kF16) {
      out = {1.5e-3, 1.5e-2};
      state = {1e-3, 1e-2};
      rows = {2e-3, 2e-2};
      betas = gates = {4e-3, 4e-2};
    } else {
      out = state = {2e-6, 5e-5};
      rows = betas = {3e-6, 1e-4};
      gates = {1e-5, 2e-4};
    }
  }
};

inline void CudaForward(const RecurrentOptions& options,
                        const RecurrentInputs& in,
                        const RecurrentOutputs& outputs, Executor&) {
  const Workspace workspace = MakeWorkspace(
      DeltaAttentionCudaWorkspaceBytes(in, outputs.checkpoints != nullptr));
  DeltaAttentionCudaForward(options, in, outputs, nullptr, workspace.get());
}

inline std::vector<RecurrentOutcome> RunOnCuda(
    const std::vector<DeltaProblem>& problems, DType dtype = DType::kF32,
    bool spread = false, bool packed = false, bool states = true,
    std::vector<float>* checkpoints = nullptr) {
  SerialExecutor unused;
  return RunRecurrent(InputsOf(problems), BetasOf(problems), dtype, spread,
                      packed, unused, CudaForward, states, checkpoints);
}

inline void CudaBackward(const RecurrentOptions& options,
                         const RecurrentInputs& in,
                         const RecurrentGradients& gradients, Executor&) {
  const Workspace workspace = MakeWorkspace(
      DeltaAttentionCudaGradientBytes(in, gradients.checkpoints != nullptr));
  DeltaAttentionCudaBackward(options, in, gradients, nullptr, workspace.get());
}

inline std::vector<RecurrentGradientOutcome> GradientsOnCuda(
    const std::vector<DeltaProblem>& problems,
    const std::vector<RecurrentLoss>& losses, DType dtype = DType::kF32,
    bool spread = false, bool packed = false, bool states = true,
    const std::vector<float>* checkpoints = nullptr) {
  SerialExecutor unused;
  return RunRecurrentGradients(InputsOf(problems), BetasOf(problems), losses,
                               dtype, spread, packed, unused, CudaBackward,
                               states, checkpoints);
}

}  // namespace tarn::testing
