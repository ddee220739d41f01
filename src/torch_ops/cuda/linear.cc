// Linear attention on CUDA.
#include "core/error.h"
#include "kernels/linear_attention/linear_attention_cuda.h"
#include "torch_ops/common/forms.h"
#include "torch_ops/cuda/device.h"
#include "torch_ops/cuda/kernels.h"

namespace tarn::ops {

bool CudaServes(const Operands& in, const Settings& settings) {
  if (!KernelsAllowed() || !CudaKernelTensor(in.queries) ||
      in.queries.dim() != 4 || in.values.dim() != 4) {
    return false;
  }
  const auto d_key = in.queries.sym_size(3).maybe_as_int();
  const auto d_value = in.values.sym_size(3).maybe_as_int();
  if (!d_key.has_value() || !d_value.has_value() ||
      settings.causal_offset.is_symbolic()) {
    return false;
  }
  try {
    return LinearAttentionCudaServes(KernelOptions(settings), *d_key, *d_value);
  } catch (const ArgumentError&) {
    return false;  // the composed form throws it again, as the caller's error
  }
}

void CudaLinearForward(const KernelCall& call,
                       const LinearAttentionOutputs& outputs) {
  const CudaCall cuda(call.held.queries, LinearAttentionCudaWorkspaceBytes(
                                             call.options, call.inputs));
  LinearAttentionCudaForward(call.options, call.inputs, outputs, cuda.stream(),
                             cuda.workspace());
}

void CudaLinearBackward(const KernelCall& call,
                        const LinearAttentionGradients& gradients) {
  const int64_t d_key = call.inputs.keys.size[3];
  const int64_t d_value = call.inputs.values.size[3];
  if (!LinearAttentionCudaServes(call.options, d_key, d_value)) {
    throw DeviceError("linear_attention_backward",
                      "a call that CUDA kernels serve",
                      StrCat("d_key ", d_key, ", d_value ", d_value));
  }
  const CudaCall cuda(call.held.queries, LinearAttentionCudaGradientBytes(
                                             call.options, call.inputs));
  LinearAttentionCudaBackward(call.options, call.inputs, gradients,
                              cuda.stream(), cuda.workspace());
}

void CudaLinearStep(const KernelCall& call, const LinearAttentionState& state,
                    const TensorView& out) {
  const CudaCall cuda(call.held.queries, /*workspace_bytes=*/0);
  LinearAttentionCudaStep(call.options, call.inputs.queries, call.inputs.keys,
                          call.inputs.values, state, out, cuda.stream());
}

}  // namespace tarn::ops
