#include "torch_ops/cuda/device.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <cstdint>

namespace tarn::ops {
namespace {

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("cuda_kernels() -> bool", [] { return true; });
}

}  // namespace

bool CudaKernelTensor(const at::Tensor& x) {
  if (!x.is_cuda()) return false;
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16 &&
      x.scalar_type() != at::kHalf) {
    return false;
  }
  // Tensors that a compiler follows may be of a device that is not here.
  const int device = x.device().index();
  if (device >= c10::cuda::device_count()) return false;
  int major = 0;
  const cudaError_t status = cudaDeviceGetAttribute(
      &major, cudaDevAttrComputeCapabilityMajor, device < 0 ? 0 : device);
  return status == cudaSuccess && major >= 8;
}

bool CudaSharedMemory(const at::Tensor& x, int bytes) {
  const int device = x.device().index();
  int most = 0;
  const cudaError_t status = cudaDeviceGetAttribute(
      &most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device < 0 ? 0 : device);
  return status == cudaSuccess && most >= bytes;
}

CudaCall::CudaCall(const at::Tensor& like, size_t workspace_bytes)
    : guard_(like.device()),
      stream_(c10::cuda::getCurrentCUDAStream(like.device().index()).stream()) {
  if (workspace_bytes == 0) return;
  constexpr int64_t kAlignment = 256;
  bytes_ = at::empty({static_cast<int64_t>(workspace_bytes) + kAlignment},
                     like.options().dtype(at::kByte));
  const auto at = reinterpret_cast<uintptr_t>(bytes_.data_ptr());
  workspace_ =
      reinterpret_cast<void*>((at + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace tarn::ops
