#include "kernels/cuda/sweep_kernel.cuh"
#include "kernels/cuda/sweep_types.h"

namespace tarn::cuda {

void RunBFloat16(const Sweeps& sweeps, Sums sums, int64_t width,
                 CudaStream stream) {
  StartSweeps<bfloat16>(sweeps, sums, width, stream);
}

}  // namespace tarn::cuda
