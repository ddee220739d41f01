// Gradient of delta_attention on CUDA with gates per channel (KDA).
#include "kernels/delta/cuda/channels.h"
#include "kernels/delta/cuda/launch_gradient.cuh"

namespace tarn::cuda::delta {

void ChannelsBackward(const RecurrentOptions& options,
                      const RecurrentInputs& in,
                      const RecurrentGradients& gradients, CudaStream stream,
                      void* workspace) {
  BackwardOnDevice<true>(options, in, gradients, stream, workspace);
}

}  // namespace tarn::cuda::delta
