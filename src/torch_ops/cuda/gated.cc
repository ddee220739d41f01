// The gated recurrences on CUDA.
#include <optional>

#include "core/error.h"
#include "kernels/decay/decay_attention_cuda.h"
#include "kernels/delta/delta_attention_cuda.h"
#include "torch_ops/common/forms.h"
#include "torch_ops/cuda/device.h"
#include "torch_ops/cuda/kernels.h"

namespace tarn::ops {
namespace cuda_gated {
namespace {

// The functions of one operator.
struct Kernels {
  decltype(&DecayAttentionCudaWorkspaceBytes) bytes;
  decltype(&DecayAttentionCudaForward) forward;
  decltype(&DecayAttentionCudaGradientBytes) gradient_bytes;
  decltype(&DecayAttentionCudaBackward) backward;
  decltype(&DecayAttentionCudaStep) step;
};

bool Serves(GatedKind kind, int64_t d_key, int64_t d_value, bool vector_gates,
            bool bonus) {
  switch (kind) {
    case GatedKind::kDecay:
      return DecayAttentionCudaServes(d_key, d_value, vector_gates, bonus);
    case GatedKind::kDelta:
      return DeltaAttentionCudaServes(d_key, d_value, vector_gates);
    case GatedKind::kDplr:
      break;
  }
  return false;
}

// Throws for calls of a gradient that no forward call has prepared.
Kernels KernelsOf(GatedKind kind, const RecurrentInputs& in) {
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  if (!Serves(kind, d_key, d_value, in.VectorGates(), in.bonus != nullptr)) {
    throw DeviceError(GatedName(kind), "a call that CUDA kernels serve",
                      StrCat("d_key ", d_key, ", d_value ", d_value));
  }
  switch (kind) {
    case GatedKind::kDecay:
      return {&DecayAttentionCudaWorkspaceBytes, &DecayAttentionCudaForward,
              &DecayAttentionCudaGradientBytes, &DecayAttentionCudaBackward,
              &DecayAttentionCudaStep};
    case GatedKind::kDelta:
      return {&DeltaAttentionCudaWorkspaceBytes, &DeltaAttentionCudaForward,
              &DeltaAttentionCudaGradientBytes, &DeltaAttentionCudaBackward,
              &DeltaAttentionCudaStep};
    case GatedKind::kDplr:
      break;
  }
  throw DeviceError(GatedName(kind), "kernels on CUDA", "none");
}

}  // namespace
}  // namespace cuda_gated

bool CudaServes(const GatedCall& call) {
  if (!KernelsAllowed() || !CudaKernelTensor(call.queries) ||
      call.queries.dim() != 4 || call.values.dim() != 4) {
    return false;
  }
  const auto d_key = call.queries.sym_size(3).maybe_as_int();
  const auto d_value = call.values.sym_size(3).maybe_as_int();
  if (!d_key.has_value() || !d_value.has_value()) return false;
  const bool vector_gates = call.gates.has_value() && call.gates->dim() == 4;
  // Chunks of the delta rule that are under way take what Hopper has.
  constexpr int kDeltaSharedBytes = 227 * 1024;
  if (call.delta() && !CudaSharedMemory(call.queries, kDeltaSharedBytes)) {
    return false;
  }
  return cuda_gated::Serves(call.kind, *d_key, *d_value, vector_gates,
                            call.bonus.has_value());
}

void CudaGatedForward(GatedKind kind, const at::Tensor& like,
                      const RecurrentOptions& options,
                      const RecurrentInputs& in,
                      const RecurrentOutputs& outputs) {
  const cuda_gated::Kernels kernels = cuda_gated::KernelsOf(kind, in);
  const CudaCall call(like, kernels.bytes(in, outputs.checkpoints != nullptr));
  kernels.forward(options, in, outputs, call.stream(), call.workspace());
}

void CudaGatedBackward(GatedKind kind, const at::Tensor& like,
                       const RecurrentOptions& options,
                       const RecurrentInputs& in,
                       const RecurrentGradients& gradients) {
  const cuda_gated::Kernels kernels = cuda_gated::KernelsOf(kind, in);
  const CudaCall call(
      like, kernels.gradient_bytes(in, gradients.checkpoints != nullptr));
  kernels.backward(options, in, gradients, call.stream(), call.workspace());
}

void CudaGatedStep(GatedKind kind, const at::Tensor& like,
                   const RecurrentOptions& options, const RecurrentInputs& in,
                   const RecurrentState& state, const TensorView& out) {
  const CudaCall call(like, /*workspace_bytes=*/0);
  cuda_gated::KernelsOf(kind, in).step(options, in, state, out, call.stream());
}

}  // namespace tarn::ops
