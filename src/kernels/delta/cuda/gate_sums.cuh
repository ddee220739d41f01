// dg of a chunk with a gate per token or head, from what lies on both sides of
// each gate n (recurrence/gate_gradient-inl.h):
//   dg_n = sum_{j < n <= i} M_ij + sum_{i >= n} r_i + sum_{j < n} c_j + s
#pragma once

#include "kernels/delta/cuda/inverse.cuh"

namespace tarn::cuda::delta {

// pairs: M [64, 64], overwritten. rows: two halves of r [2, 64], then of c. By
// the whole block; writes dg [64] to `to` by threads 0 to 63, who may read it.
__device__ inline void GateSums(float* pairs, const float* rows, float through,
                                float* parts, float* to) {
  {
    // Row t / 4: sums before each of a quarter's columns.
    const int row = threadIdx.x / 4, quarter = threadIdx.x % 4;
    float* at = pairs + row * kScoreStride + quarter * 16;
    float total = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) total += at[i];
    float before = 0;
#pragma unroll
    for (int q = 0; q < 3; ++q) {
      const float other = Shuffle(total, WarpLane() / 4 * 4 + q);
      if (q < quarter) before += other;
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float x = at[i];
      at[i] = before;
      before += x;
    }
  }
  SyncBlock();
  {
    const int n = threadIdx.x % kChunk, quarter = threadIdx.x / kChunk;
    float sum = 0;
    for (int i = quarter * 16; i < quarter * 16 + 16; ++i) {
      if (i >= n) sum += pairs[i * kScoreStride + n];
    }
    parts[quarter * kChunk + n] = sum;
  }
  SyncBlock();
  if (threadIdx.x < 32) {
    const int n = 2 * threadIdx.x;
    const auto sum_of = [&](const float* x, int i) {
      return x[i] + x[kChunk + i];
    };
    const float* reads = rows;
    const float* writes = rows + 2 * kChunk;
    const float r0 = sum_of(reads, n), r1 = sum_of(reads, n + 1);
    const float c0 = sum_of(writes, n), c1 = sum_of(writes, n + 1);
    float after = r0 + r1, before = c0 + c1;  // inclusive, of this lane on
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float x = ShuffleDown(after, distance);
      const float y = ShuffleUp(before, distance);
      if (WarpLane() + distance < 32) after += x;
      if (WarpLane() >= distance) before += y;
    }
    float earlier = ShuffleUp(before, 1), later = ShuffleDown(after, 1);
    if (WarpLane() == 0) earlier = 0;
    if (WarpLane() == 31) later = 0;
    const auto across = [&](int i) {
      return parts[i] + parts[kChunk + i] + parts[2 * kChunk + i] +
             parts[3 * kChunk + i];
    };
    to[n] = across(n) + (later + r1 + r0) + earlier + through;
    to[n + 1] = across(n + 1) + (later + r1) + (earlier + c0) + through;
  }
  SyncBlock();
}

}  // namespace tarn::cuda::delta
