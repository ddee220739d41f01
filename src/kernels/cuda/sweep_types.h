// Passes of one type, each in its own file: they compile side by side.
#pragma once

#include "kernels/cuda/sweep.h"

namespace tarn::cuda {

void RunFloat32(const Sweeps& sweeps, Sums sums, int64_t width,
                CudaStream stream);
void RunBFloat16(const Sweeps& sweeps, Sums sums, int64_t width,
                 CudaStream stream);
void RunFloat16(const Sweeps& sweeps, Sums sums, int64_t width,
                CudaStream stream);

}  // namespace tarn::cuda
