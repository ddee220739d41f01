// The place of CUDA kernels: a build that finds the CUDA toolkit compiles them
// in place of kernels_stub.cc, which says that there are none.
#pragma once

#include <c10/core/Device.h>

namespace tarn::ops {

/// Whether this build has kernels for tensors on `device`. Without them the
/// operators' composed forms serve it.
bool HasCudaKernels(const c10::Device& device);

}  // namespace tarn::ops
