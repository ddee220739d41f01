// The forms of the gated recurrences for each dispatch key (autograd.cc), and
// their calls through the dispatcher (library.cc).
#pragma once

#include "torch_ops/gated/call.h"

namespace tarn::ops {

GatedResults GatedComposed(const GatedCall& in, bool checkpoints);
/// By the kernels of the device where they serve the call.
GatedResults GatedKernels(const GatedCall& in, bool checkpoints);
GatedResults GatedMeta(const GatedCall& in, bool checkpoints);
GatedResults GatedAutograd(const GatedCall& in, bool checkpoints);

/// checkpoints: of the forward call, or [0].
GatedGradients GatedBackwardKernels(const GatedCall& in,
                                    const at::Tensor& checkpoints,
                                    const OptionalTensor& grad_out,
                                    const OptionalTensor& grad_state);
GatedGradients GatedBackwardMeta(const GatedCall& in,
                                 const at::Tensor& checkpoints,
                                 const OptionalTensor& grad_out,
                                 const OptionalTensor& grad_state);

/// Calls of torch.ops.tarn.*, each of the operator that the call's kind names.
GatedResults CallGated(const GatedCall& in, bool checkpoints);
GatedGradients CallGatedBackward(const GatedCall& in,
                                 const at::Tensor& checkpoints,
                                 const OptionalTensor& grad_out,
                                 const OptionalTensor& grad_state);

}  // namespace tarn::ops
