// Products of tiles in shared memory by one warp (kernels/cuda/tile.cuh), as
// the passes over chunks need them: either operand transposed, any part of the
// depth.
#pragma once

#include <type_traits>

#include "cuda_device.h"
#include "kernels/cuda/tile.cuh"

namespace tarn::cuda::delta {

__device__ __forceinline__ int WarpLane() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ __forceinline__ int WarpIndex() {
  return static_cast<int>(threadIdx.x) / 32;
}

// A[row, row + 16), [k, k + 16) of tile[row][k], or of its transpose where the
// tile holds [k][row].
template <bool kTransposed, typename T>
__device__ __forceinline__ void LoadLeft(FragmentA<T>& to, const T* tile,
                                         int stride, int row, int k) {
  if constexpr (kTransposed) {
    LoadATransposed(to, tile, stride, row, k);
  } else {
    LoadA(to, tile, stride, row, k);
  }
}
// B[k, k + 16), [column, column + 16) of tile[k][column], or of its transpose
// where the tile holds [column][k]: two fragments.
template <bool kTransposed, typename T>
__device__ __forceinline__ void LoadRight(FragmentB<T> (&to)[2], const T* tile,
                                          int stride, int k, int column) {
  if constexpr (kTransposed) {
    LoadBTransposed(to, tile, stride, k, column);
  } else {
    LoadB(to, tile, stride, k, column);
  }
}

// An operand: a tile in shared memory, and whether it holds the transpose.
template <typename T, bool kIsTransposed>
struct Operand {
  static constexpr bool kTransposed = kIsTransposed;
  const T* tile;
  int stride;
};

// d [16, 8 kColumns] += A[row, row + 16), [k, end) B[k, end), [column, ...).
template <int kColumns, typename T, bool kA, bool kB>
__device__ __forceinline__ void AddProduct(float (&d)[kColumns][4],
                                           const Operand<T, kA>& a, int row,
                                           const Operand<T, kB>& b, int column,
                                           int k, int end) {
  static_assert(kColumns % 2 == 0);
#pragma unroll(sizeof(T) == 4 ? 1 : 4)
  for (; k < end; k += 16) {
    FragmentA<T> left;
    LoadLeft<kA>(left, a.tile, a.stride, row, k);
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      FragmentB<T> right[2];
      LoadRight<kB>(right, b.tile, b.stride, k, column + 8 * n);
      MultiplyAdd(d[n], left, right[0]);
      MultiplyAdd(d[n + 1], left, right[1]);
    }
  }
}

// f(n, row, column, i) for the pairs of neighbours d[n][i], d[n][i + 1] of
// accumulators [16, 8 kColumns], which are at (row, column).
template <int kColumns, typename F>
__device__ __forceinline__ void ForPairs(const F& f) {
  const int group = WarpLane() / 4, pair = WarpLane() % 4 * 2;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    f(n, group, 8 * n + pair, 0);
    f(n, group + 8, 8 * n + pair, 2);
  }
}

// Two neighbours to shared memory, at an even column.
template <typename T>
__device__ __forceinline__ void StorePair(T* to, float first, float second) {
  if constexpr (std::is_same_v<T, float>) {
    Store(to, make_float2(first, second));
  } else {
    Store(to, Pack<T>(first, second));
  }
}
template <typename T>
__device__ __forceinline__ float2 LoadPair(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return Load<float2>(from);
  } else {
    return Unpack<T>(Load<uint32_t>(from));
  }
}

}  // namespace tarn::cuda::delta
