// Kernels on CUDA: which calls they serve, and the way to them. Without the
// CUDA toolkit, or with a torch for the CPU alone, kernels_stub.cc is compiled
// in place of the other files here and says that no call is served. The
// composed forms serve what the kernels do not.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/linear_attention/linear_attention.h"
#include "kernels/recurrence/recurrent_inputs.h"
#include "torch_ops/common/call.h"
#include "torch_ops/gated/call.h"

namespace tarn::ops {

// torch.ops.tarn.cuda_kernels() -> bool: whether this build has any.

/// Whether kernels on CUDA serve the call in the present state of this thread.
/// Asks for the device, types, widths and options; what else may be wrong with
/// the call is checked later. Sizes may be symbolic.
bool CudaServes(const GatedCall& call);
bool CudaServes(const Operands& in, const Settings& settings);

/// The kernels on checked calls, in the current stream of the device of `like`.
/// Throw DeviceError for calls that they do not serve.
void CudaGatedForward(GatedKind kind, const at::Tensor& like,
                      const RecurrentOptions& options,
                      const RecurrentInputs& in,
                      const RecurrentOutputs& outputs);
void CudaGatedBackward(GatedKind kind, const at::Tensor& like,
                       const RecurrentOptions& options,
                       const RecurrentInputs& in,
                       const RecurrentGradients& gradients);
void CudaGatedStep(GatedKind kind, const at::Tensor& like,
                   const RecurrentOptions& options, const RecurrentInputs& in,
                   const RecurrentState& state, const TensorView& out);

void CudaLinearForward(const KernelCall& call,
                       const LinearAttentionOutputs& outputs);
void CudaLinearBackward(const KernelCall& call,
                        const LinearAttentionGradients& gradients);
void CudaLinearStep(const KernelCall& call, const LinearAttentionState& state,
                    const TensorView& out);

}  // namespace tarn::ops
