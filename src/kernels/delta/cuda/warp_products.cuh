// Products of tiles in shared memory by one warp, accumulated in float32:
// 16-bit operands as they are, float32 operands as three products of TF32 halves
// (big big + big small + small big), which keeps float32's accuracy.
#pragma once

#include <type_traits>

#include "cuda_device.h"

namespace tarn::cuda::delta {

// Numbers from row to row of a tile: 16 bytes more than its width, so that eight
// rows of a fragment lie in different banks.
template <typename T>
constexpr int TileStride(int width) {
  return width + 16 / static_cast<int>(sizeof(T));
}

// A [16, 16] and B [16, 8] of one warp (the layouts of Mma).
template <typename T>
struct FragmentA {
  uint32_t x[4];
};
template <typename T>
struct FragmentB {
  uint32_t x[2];
};
template <>
struct FragmentA<float> {
  uint32_t big[2][4], small[2][4];  // columns 0 to 7, 8 to 15
};
template <>
struct FragmentB<float> {
  uint32_t big[2][2], small[2][2];
};

__device__ __forceinline__ void SplitTf32(float x, uint32_t& big,
                                          uint32_t& small) {
  big = ToTf32(x);
  // An infinite or NaN x has no rest.
  small = ToTf32(x - FloatOf(big));
}

__device__ __forceinline__ int WarpLane() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ __forceinline__ int WarpIndex() {
  return static_cast<int>(threadIdx.x) / 32;
}

// A[row, row + 16), [k, k + 16) of tile[row][k], or of its transpose where the
// tile holds [k][row].
template <bool kTransposed, typename T>
__device__ __forceinline__ void LoadA(FragmentA<T>& to, const T* tile,
                                      int stride, int row, int k) {
  const int lane = WarpLane();
  if constexpr (std::is_same_v<T, float>) {
    const int group = lane / 4, c = lane % 4;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = row + group + 8 * (i % 2), at = k + 8 * s + c + 4 * (i / 2);
        SplitTf32(kTransposed ? tile[at * stride + r] : tile[r * stride + at],
                  to.big[s][i], to.small[s][i]);
      }
    }
  } else if constexpr (kTransposed) {
    LoadMatrix4Transposed(to.x, tile + (k + lane % 8 + lane / 16 * 8) * stride +
                                    row + lane / 8 % 2 * 8);
  } else {
    LoadMatrix4(to.x, tile + (row + lane % 8 + lane / 8 % 2 * 8) * stride + k +
                          lane / 16 * 8);
  }
}

// B[k, k + 16), [column, column + 16) of tile[k][column], or of its transpose
// where the tile holds [column][k]: two fragments.
template <bool kTransposed, typename T>
__device__ __forceinline__ void LoadB(FragmentB<T> (&to)[2], const T* tile,
                                      int stride, int k, int column) {
  const int lane = WarpLane();
  if constexpr (std::is_same_v<T, float>) {
    const int group = lane / 4, c = lane % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int at = k + 8 * s + c + 4 * i, j = column + 8 * n + group;
          SplitTf32(
              kTransposed ? tile[j * stride + at] : tile[at * stride + j],
              to[n].big[s][i], to[n].small[s][i]);
        }
      }
    }
  } else {
    uint32_t x[4];
    if constexpr (kTransposed) {
      LoadMatrix4(x, tile + (column + lane % 8 + lane / 16 * 8) * stride + k +
                         lane / 8 % 2 * 8);
    } else {
      LoadMatrix4Transposed(x, tile + (k + lane % 8 + lane / 8 % 2 * 8) * stride +
                                   column + lane / 16 * 8);
    }
    to[0].x[0] = x[0];
    to[0].x[1] = x[1];
    to[1].x[0] = x[2];
    to[1].x[1] = x[3];
  }
}

// d [16, 8] += a b.
template <typename T>
__device__ __forceinline__ void MultiplyAdd(float (&d)[4],
                                            const FragmentA<T>& a,
                                            const FragmentB<T>& b) {
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      Mma<Tf32>(d, a.small[s], b.big[s]);
      Mma<Tf32>(d, a.big[s], b.small[s]);
      Mma<Tf32>(d, a.big[s], b.big[s]);
    }
  } else {
    Mma<T>(d, a.x, b.x);
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
#pragma unroll 4
  for (; k < end; k += 16) {
    FragmentA<T> left;
    LoadA<kA>(left, a.tile, a.stride, row, k);
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      FragmentB<T> right[2];
      LoadB<kB>(right, b.tile, b.stride, k, column + 8 * n);
      MultiplyAdd(d[n], left, right[0]);
      MultiplyAdd(d[n + 1], left, right[1]);
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void Clear(float (&d)[kColumns][4]) {
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) d[n][i] = 0.0f;
  }
}

// f(n, row, column, first, second) for the pairs of neighbours of accumulators
// at (row, column), relative to their first: d[n][first], d[n][first + 1].
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
