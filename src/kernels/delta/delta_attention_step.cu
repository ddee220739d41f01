// Step and short prefill of delta_attention on CUDA (cuda/step.cuh).
#include "kernels/delta/cuda/launch.cuh"
#include "kernels/delta/cuda/step.cuh"

namespace tarn {

using namespace cuda::delta;  // NOLINT: what this file launches

void DeltaAttentionCudaStep(const RecurrentOptions& options,
                            const RecurrentInputs& in,
                            const RecurrentState& state, const TensorView& out,
                            CudaStream stream) {
  CheckOnDevice(options, in, out);
  CheckRecurrentStep(kOp, in, state);
  const Call call = OnDevice(options, in);
  StepTensors tensors = {OnDevice(out),    state.state,       state.next,
                         state.read_slots, state.write_slots, false};
  tensors.vectors = call.d_value % 4 == 0 &&
                    reinterpret_cast<uintptr_t>(state.state) % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(state.next) % 16 == 0;
  ForTypeAndKey(in, [&](auto number, auto key) {
    cuda::Launch(&StepTokens<decltype(number), decltype(key)::value>,
                 TileGrid(call, in.queries.size[0]), dim3(kStepThreads),
                 2 * 4 * 8 * 12 * sizeof(float), stream, call, tensors);
  });
}

}  // namespace tarn
