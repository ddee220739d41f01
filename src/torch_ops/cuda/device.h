// What calls of kernels on CUDA share.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

#include <cstddef>

#include "kernels/cuda/stream.h"

namespace tarn::ops {

/// Whether x is of a type and on a device that the kernels are compiled for:
/// float32, bfloat16 or float16; compute capability 8.0 or newer.
bool CudaKernelTensor(const at::Tensor& x);
/// Whether a block on the device of such a tensor may have so much shared
/// memory.
bool CudaSharedMemory(const at::Tensor& x, int bytes);

/// The device of a tensor made the current one, its current stream, and scratch
/// from torch's allocator. The scratch may be freed with the call under way:
/// the allocator hands it out again in the order of the stream, and keeps it in
/// the pool of a graph that is being captured.
class CudaCall {
 public:
  CudaCall(const at::Tensor& like, size_t workspace_bytes);
  CudaStream stream() const { return stream_; }
  void* workspace() const { return workspace_; }

 private:
  c10::cuda::CUDAGuard guard_;
  CudaStream stream_;
  at::Tensor bytes_;
  void* workspace_ = nullptr;
};

}  // namespace tarn::ops
