#include <torch/library.h>

#include "core/error.h"
#include "torch_ops/cuda/kernels.h"

namespace tarn::ops {
namespace {

[[noreturn]] void None(const char* op) {
  throw DeviceError(op, "a device with kernels",
                    "CUDA, which this build was made without");
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("cuda_kernels() -> bool", [] { return false; });
}

}  // namespace

bool CudaServes(const GatedCall&) { return false; }
bool CudaServes(const Operands&, const Settings&) { return false; }

void CudaGatedForward(GatedKind kind, const at::Tensor&,
                      const RecurrentOptions&, const RecurrentInputs&,
                      const RecurrentOutputs&) {
  None(GatedName(kind));
}
void CudaGatedBackward(GatedKind kind, const at::Tensor&,
                       const RecurrentOptions&, const RecurrentInputs&,
                       const RecurrentGradients&) {
  None(GatedName(kind));
}
void CudaGatedStep(GatedKind kind, const at::Tensor&, const RecurrentOptions&,
                   const RecurrentInputs&, const RecurrentState&,
                   const TensorView&) {
  None(GatedName(kind));
}

void CudaLinearForward(const KernelCall&, const LinearAttentionOutputs&) {
  None("linear_attention");
}
void CudaLinearBackward(const KernelCall&, const LinearAttentionGradients&) {
  None("linear_attention");
}
void CudaLinearStep(const KernelCall&, const LinearAttentionState&,
                    const TensorView&) {
  None("linear_attention");
}

}  // namespace tarn::ops
