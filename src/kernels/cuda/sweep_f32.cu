#include "kernels/cuda/sweep_kernel.cuh"
#include "kernels/cuda/sweep_types.h"

namespace tarn::cuda {

void RunFloat32(const Sweeps& sweeps, Sums sums, int64_t width,
                CudaStream stream) {
  StartSweeps<float>(sweeps, sums, width, stream);
}

}  // namespace tarn::cuda
