// Gradient of delta_attention on CUDA: checks, and the call for gates per
// token, per head and none.
#include "kernels/delta/cuda/channels.h"
#include "kernels/delta/cuda/launch_gradient.cuh"

namespace tarn {

using namespace cuda::delta;  // NOLINT: what this file launches

size_t DeltaAttentionCudaGradientBytes(const RecurrentInputs& in,
                                       bool checkpoints) {
  size_t bytes = 0;
  ForType(in.queries.dtype, [&](auto number) {
    LayOut<decltype(number)>(OnDevice({}, in), GradientNeeds(in, checkpoints),
                             nullptr, &bytes);
  });
  return bytes;
}

void DeltaAttentionCudaBackward(const RecurrentOptions& options,
                                const RecurrentInputs& in,
                                const RecurrentGradients& gradients,
                                CudaStream stream, void* workspace) {
  CheckOnDevice(options, in, gradients.grad_out, "grad_out");
  CheckRecurrentGradients(kOp, OnDeviceOnly(in), gradients);
  if (in.VectorGates()) {
    return ChannelsBackward(options, in, gradients, stream, workspace);
  }
  BackwardOnDevice<false>(options, in, gradients, stream, workspace);
}

}  // namespace tarn
