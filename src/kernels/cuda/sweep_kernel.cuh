// The kernels of sweep.h and their launches, of one type.
#pragma once

#include <cstdint>

#include "kernels/cuda/sweep.cuh"

namespace tarn::cuda {

// Blocks of one multiprocessor that registers and shared memory have room for.
template <typename T, int D>
inline constexpr int kSweepBlocks = sizeof(T) == 4 ? 1 : (D == 128 ? 2 : 3);

template <typename T, int D, Sums kSums>
__global__ void __launch_bounds__(2 * D, (kSweepBlocks<T, D>))
    SweepKernel(const Sweeps sweeps) {
  const int count = sweeps.count;
  const Sweep& sweep = sweeps.at[blockIdx.x % static_cast<unsigned>(count)];
  const int64_t block = blockIdx.x / static_cast<unsigned>(count);
  auto& memory = *reinterpret_cast<SweepMemory<T, D>*>(SharedMemory());
  if (threadIdx.x == 0) {
    memory.at = SegmentAt(sweep.sequences, block / sweep.value_heads);
  }
  SyncBlock();
  if (!memory.at.exists) return;
  SweepBlock<T, D, kSums>(sweep, memory,
                          static_cast<int>(block % sweep.value_heads))
      .RunSegment();
}

template <typename T, int D, Sums kSums>
void StartSweep(const Sweeps& sweeps, CudaStream stream) {
  const Sweep& first = sweeps.at[0];
  const int64_t blocks =
      first.sequences.slots * first.value_heads * sweeps.count;
  Launch(SweepKernel<T, D, kSums>, static_cast<unsigned>(blocks), 2 * D,
         sizeof(SweepMemory<T, D>), stream, sweeps);
}

template <typename T, int D>
void StartSweeps(const Sweeps& sweeps, Sums sums, CudaStream stream) {
  switch (sums) {
    case Sums::kNone:
      return StartSweep<T, D, Sums::kNone>(sweeps, stream);
    case Sums::kDenominators:
      return StartSweep<T, D, Sums::kDenominators>(sweeps, stream);
    case Sums::kRows:
      return StartSweep<T, D, Sums::kRows>(sweeps, stream);
  }
}

template <typename T>
void StartSweeps(const Sweeps& sweeps, Sums sums, int64_t width,
                 CudaStream stream) {
  if (width <= 64) return StartSweeps<T, 64>(sweeps, sums, stream);
  StartSweeps<T, 128>(sweeps, sums, stream);
}

}  // namespace tarn::cuda
