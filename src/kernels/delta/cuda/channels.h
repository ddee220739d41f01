// The calls with gates per channel, which have sources of their own: checks are
// done.
#pragma once

#include "kernels/cuda/stream.h"
#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn::cuda::delta {

void ChannelsForward(const RecurrentOptions& options, const RecurrentInputs& in,
                     const RecurrentOutputs& outputs, CudaStream stream,
                     void* workspace);
void ChannelsBackward(const RecurrentOptions& options,
                      const RecurrentInputs& in,
                      const RecurrentGradients& gradients, CudaStream stream,
                      void* workspace);

}  // namespace tarn::cuda::delta
