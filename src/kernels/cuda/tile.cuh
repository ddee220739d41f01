// Products of small matrices by one warp, and tiles of tokens in shared memory.
// T is bfloat16, half (one tensor core product) or float (three products of
// Tf32 halves: float32 accuracy). Sums are float32 in registers.
//
// A tile X [rows, columns] in shared memory has rows Stride<T>(columns) apart:
// 16 bytes more than the columns, so that rows of a matrix begin in different
// banks. Accumulators of [16, 8 n] are float acc[n][4] as cuda_device.h
// describes them for Mma; the depth of one step is 16 for every type.
#pragma once

#include <cstdint>

#include "cuda_device.h"

namespace tarn::cuda {

/// Tokens of a chunk.
inline constexpr int kChunk = 64;

template <typename T>
constexpr int Stride(int columns) {
  return columns + 16 / static_cast<int>(sizeof(T));
}

/// This thread's place in a fragment.
struct LanePlace {
  int lane, group, pair;
  __device__ __forceinline__ LanePlace()
      : lane(static_cast<int>(threadIdx.x) % 32),
        group(lane / 4),
        pair(lane % 4 * 2) {}
};

// ---- Fragments ------------------------------------------------------------

/// a [16, 16] and b [16, 8].
template <typename T>
struct FragmentA {
  uint32_t x[4];
};
template <typename T>
struct FragmentB {
  uint32_t x[2];
};
// float: the number as the sum of two of Tf32. Tf32 products have depth 8, so a
// step is two of them, and position c of a step's half stands for column 2 c,
// c + 4 for 2 c + 1: then accumulators have the layout of operands, and the two
// numbers of a lane are neighbours in memory.
template <>
struct FragmentA<float> {
  uint32_t big[2][4], small[2][4];
};
template <>
struct FragmentB<float> {
  uint32_t big[2][2], small[2][2];
};

__device__ __forceinline__ void SplitTf32(float x, uint32_t& big,
                                          uint32_t& small) {
  big = ToTf32(x);
  small = ToTf32(x - FloatOf(big));
}
__device__ __forceinline__ void SetA(FragmentA<float>& a, int half, float x0,
                                     float x1, float y0, float y1) {
  SplitTf32(x0, a.big[half][0], a.small[half][0]);
  SplitTf32(y0, a.big[half][1], a.small[half][1]);
  SplitTf32(x1, a.big[half][2], a.small[half][2]);
  SplitTf32(y1, a.big[half][3], a.small[half][3]);
}
__device__ __forceinline__ void SetB(FragmentB<float>& b, int half, float x0,
                                     float x1) {
  SplitTf32(x0, b.big[half][0], b.small[half][0]);
  SplitTf32(x1, b.big[half][1], b.small[half][1]);
}

/// d += a b.
template <typename T>
__device__ __forceinline__ void MultiplyAdd(float (&d)[4],
                                            const FragmentA<T>& a,
                                            const FragmentB<T>& b) {
  if constexpr (sizeof(T) == 4) {
    for (int s = 0; s < 2; ++s) Mma<Tf32>(d, a.small[s], b.big[s]);
    for (int s = 0; s < 2; ++s) Mma<Tf32>(d, a.big[s], b.small[s]);
    for (int s = 0; s < 2; ++s) Mma<Tf32>(d, a.big[s], b.big[s]);
  } else {
    Mma<T>(d, a.x, b.x);
  }
}

/// d + rest += a b of float32, small terms into rest: tensor cores cut sums off
/// instead of rounding them, and the fewer steps a large sum has, the better.
__device__ __forceinline__ void MultiplyAddApart(float (&d)[4],
                                                 float (&rest)[4],
                                                 const FragmentA<float>& a,
                                                 const FragmentB<float>& b) {
  for (int s = 0; s < 2; ++s) {
    Mma<Tf32>(rest, a.small[s], b.big[s]);
    Mma<Tf32>(rest, a.big[s], b.small[s]);
    Mma<Tf32>(d, a.big[s], b.big[s]);
  }
}

/// a[m][k] = X[m0 + m][k0 + k].
template <typename T>
__device__ __forceinline__ void LoadA(FragmentA<T>& a, const T* x, int stride,
                                      int m0, int k0) {
  const LanePlace at;
  if constexpr (sizeof(T) == 4) {
    for (int s = 0; s < 2; ++s) {
      const float* row = x + (m0 + at.group) * stride + k0 + 8 * s + at.pair;
      const float2 top = Load<float2>(row);
      const float2 low = Load<float2>(row + 8 * stride);
      SetA(a, s, top.x, top.y, low.x, low.y);
    }
  } else {
    LoadMatrix4(a.x, x + (m0 + at.lane % 16) * stride + k0 + at.lane / 16 * 8);
  }
}

/// a[m][k] = X[k0 + k][m0 + m].
template <typename T>
__device__ __forceinline__ void LoadATransposed(FragmentA<T>& a, const T* x,
                                                int stride, int m0, int k0) {
  const LanePlace at;
  if constexpr (sizeof(T) == 4) {
    for (int s = 0; s < 2; ++s) {
      const float* row = x + (k0 + 8 * s + at.pair) * stride + m0 + at.group;
      SetA(a, s, row[0], row[stride], row[8], row[stride + 8]);
    }
  } else {
    LoadMatrix4Transposed(
        a.x, x + (k0 + at.lane % 8 + at.lane / 16 * 8) * stride + m0 +
                 at.lane / 8 % 2 * 8);
  }
}

/// Two fragments side by side, b[k][n] = X[n0 + n][k0 + k] for n < 16: X^T.
template <typename T>
__device__ __forceinline__ void LoadBTransposed(FragmentB<T> (&b)[2],
                                                const T* x, int stride, int k0,
                                                int n0) {
  const LanePlace at;
  if constexpr (sizeof(T) == 4) {
    for (int n = 0; n < 2; ++n) {
      for (int s = 0; s < 2; ++s) {
        const float2 two = Load<float2>(x + (n0 + 8 * n + at.group) * stride +
                                        k0 + 8 * s + at.pair);
        SetB(b[n], s, two.x, two.y);
      }
    }
  } else {
    uint32_t four[4];
    LoadMatrix4(four, x + (n0 + at.lane % 8 + at.lane / 16 * 8) * stride + k0 +
                          at.lane / 8 % 2 * 8);
    b[0].x[0] = four[0], b[0].x[1] = four[1];
    b[1].x[0] = four[2], b[1].x[1] = four[3];
  }
}

/// Two fragments side by side, b[k][n] = X[k0 + k][n0 + n] for n < 16.
template <typename T>
__device__ __forceinline__ void LoadB(FragmentB<T> (&b)[2], const T* x,
                                      int stride, int k0, int n0) {
  const LanePlace at;
  if constexpr (sizeof(T) == 4) {
    for (int n = 0; n < 2; ++n) {
      for (int s = 0; s < 2; ++s) {
        const float* row =
            x + (k0 + 8 * s + at.pair) * stride + n0 + 8 * n + at.group;
        SetB(b[n], s, row[0], row[stride]);
      }
    }
  } else {
    uint32_t four[4];
    LoadMatrix4Transposed(
        four, x + (k0 + at.lane % 16) * stride + n0 + at.lane / 16 * 8);
    b[0].x[0] = four[0], b[0].x[1] = four[1];
    b[1].x[0] = four[2], b[1].x[1] = four[3];
  }
}

/// a [16, 16] out of the accumulators of its columns 0 to 7 and 8 to 15.
template <typename T>
__device__ __forceinline__ void AccumulatorsAsA(FragmentA<T>& a,
                                                const float (&left)[4],
                                                const float (&right)[4]) {
  if constexpr (sizeof(T) == 4) {
    SetA(a, 0, left[0], left[1], left[2], left[3]);
    SetA(a, 1, right[0], right[1], right[2], right[3]);
  } else {
    a.x[0] = Pack<T>(left[0], left[1]);
    a.x[1] = Pack<T>(left[2], left[3]);
    a.x[2] = Pack<T>(right[0], right[1]);
    a.x[3] = Pack<T>(right[2], right[3]);
  }
}

/// Two fragments side by side out of the accumulators of their transpose
/// Y [16, 16], columns 0 to 7 and 8 to 15: b[k][n] = Y[n][k].
template <typename T>
__device__ __forceinline__ void AccumulatorsAsB(FragmentB<T> (&b)[2],
                                                const float (&left)[4],
                                                const float (&right)[4]) {
  for (int n = 0; n < 2; ++n) {
    if constexpr (sizeof(T) == 4) {
      SetB(b[n], 0, left[2 * n], left[2 * n + 1]);
      SetB(b[n], 1, right[2 * n], right[2 * n + 1]);
    } else {
      b[n].x[0] = Pack<T>(left[2 * n], left[2 * n + 1]);
      b[n].x[1] = Pack<T>(right[2 * n], right[2 * n + 1]);
    }
  }
}

/// Multiplies a's columns k0 to k0 + 15 by weights[k] of shared memory.
template <typename T>
__device__ __forceinline__ void ScaleColumns(FragmentA<T>& a,
                                             const float* weights, int k0) {
  const LanePlace at;
  for (int s = 0; s < 2; ++s) {
    const float2 w = Load<float2>(weights + k0 + 8 * s + at.pair);
    if constexpr (sizeof(T) == 4) {
      for (int i = 0; i < 4; ++i) {
        const float x = FloatOf(a.big[s][i]) + FloatOf(a.small[s][i]);
        SplitTf32(x * (i < 2 ? w.x : w.y), a.big[s][i], a.small[s][i]);
      }
    } else {
      for (int i = 2 * s; i < 2 * s + 2; ++i) {
        const float2 two = Unpack<T>(a.x[i]);
        a.x[i] = Pack<T>(two.x * w.x, two.y * w.y);
      }
    }
  }
}

// ---- Products of tiles in shared memory -----------------------------------

/// acc [16, 8 kN] += A B over `depth` (a multiple of 16), by one warp. A is
/// X[m0 + m][k], or X[k][m0 + m] if kTransposedA; B is Y[k][n0 + n], or
/// Y[n0 + n][k] if kTransposedB. kN is even.
template <typename T, int kN, bool kTransposedA, bool kTransposedB>
__device__ __forceinline__ void WarpProduct(float (&acc)[kN][4], const T* x,
                                            int x_stride, int m0, const T* y,
                                            int y_stride, int n0, int depth) {
  for (int k = 0; k < depth; k += 16) {
    FragmentA<T> a;
    if constexpr (kTransposedA) {
      LoadATransposed(a, x, x_stride, m0, k);
    } else {
      LoadA(a, x, x_stride, m0, k);
    }
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      FragmentB<T> b[2];
      if constexpr (kTransposedB) {
        LoadBTransposed(b, y, y_stride, k, n0 + 8 * n);
      } else {
        LoadB(b, y, y_stride, k, n0 + 8 * n);
      }
      MultiplyAdd(acc[n], a, b[0]);
      MultiplyAdd(acc[n + 1], a, b[1]);
    }
  }
}

/// The same with A out of accumulators a [16, 8 kDepth].
template <typename T, int kDepth, int kN, bool kTransposedB>
__device__ __forceinline__ void WarpProduct(float (&acc)[kN][4],
                                            const float (&a)[kDepth][4],
                                            const T* y, int y_stride, int n0) {
#pragma unroll
  for (int k = 0; k < kDepth; k += 2) {
    FragmentA<T> left;
    AccumulatorsAsA(left, a[k], a[k + 1]);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      FragmentB<T> b[2];
      if constexpr (kTransposedB) {
        LoadBTransposed(b, y, y_stride, 8 * k, n0 + 8 * n);
      } else {
        LoadB(b, y, y_stride, 8 * k, n0 + 8 * n);
      }
      MultiplyAdd(acc[n], left, b[0]);
      MultiplyAdd(acc[n + 1], left, b[1]);
    }
  }
}

template <int kN>
__device__ __forceinline__ void Clear(float (&acc)[kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    for (int i = 0; i < 4; ++i) acc[n][i] = 0.0f;
  }
}

/// Rounds acc [16, 8 kN] into X[m0 + m][n0 + n].
template <typename T, int kN>
__device__ __forceinline__ void StoreToTile(const float (&acc)[kN][4], T* x,
                                            int stride, int m0, int n0) {
  const LanePlace at;
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    T* row = x + (m0 + at.group) * stride + n0 + 8 * n + at.pair;
    if constexpr (sizeof(T) == 4) {
      Store(row, make_float2(acc[n][0], acc[n][1]));
      Store(row + 8 * stride, make_float2(acc[n][2], acc[n][3]));
    } else {
      Store(row, Pack<T>(acc[n][0], acc[n][1]));
      Store(row + 8 * stride, Pack<T>(acc[n][2], acc[n][3]));
    }
  }
}

// ---- Rows of global memory ------------------------------------------------

/// One head's rows: row t is at data + t stride. aligned: every row begins at a
/// multiple of 16 bytes and has whole pieces of them.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  int width;
  bool aligned;
  __device__ __forceinline__ T* Row(int64_t t) const {
    return data + t * stride;
  }
};

/// f(row, column) for each 16-byte piece of a tile [kRows, kColumns] that is
/// this thread's. The same pieces in every call: a thread may change what it
/// has copied before others see it.
template <typename T, int kRows, int kColumns, int kThreads, int kUnroll = 4,
          typename F>
__device__ __forceinline__ void ForPieces(const F& f) {
  constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
  constexpr int kInRow = kColumns / kPiece;
  static_assert(kRows * kInRow % kThreads == 0);
#pragma unroll kUnroll
  for (int i = 0; i < kRows * kInRow / kThreads; ++i) {
    const int piece = i * kThreads + static_cast<int>(threadIdx.x);
    f(piece / kInRow, piece % kInRow * kPiece);
  }
}

/// The first of ForPieces' pieces; the others are kRowStep rows apart.
template <typename T, int kColumns, int kThreads>
struct WholePieces {
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
  static constexpr int kInRow = kColumns / kPiece;
  static constexpr int kRowStep = kThreads / kInRow;
  static constexpr int kCount = kChunk / kRowStep;
  static_assert(kThreads % kInRow == 0 && kChunk % kRowStep == 0);
  int row, column;
  __device__ __forceinline__ WholePieces()
      : row(static_cast<int>(threadIdx.x) / kInRow),
        column(static_cast<int>(threadIdx.x) % kInRow * kPiece) {}
};

/// Starts copying rows first to first + 63 into tile [64, kColumns], zeros
/// where keep(row) is false and after the rows' width. The caller commits and
/// waits. all: whether keep is true of every row.
template <typename T, int kColumns, int kThreads, typename Keep>
__device__ __forceinline__ void CopyTokens(T* tile, const Rows<T>& rows,
                                           int64_t first, const Keep& keep,
                                           bool all = false) {
  constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
  constexpr int kStride = Stride<T>(kColumns);
  if (all && rows.aligned && rows.width == kColumns) {
    const WholePieces<T, kColumns, kThreads> pieces;
    const T* from = rows.Row(first + pieces.row) + pieces.column;
    T* to = tile + pieces.row * kStride + pieces.column;
    const int64_t step = rows.stride * pieces.kRowStep;
#pragma unroll
    for (int i = 0; i < pieces.kCount; ++i) {
      CopyAsync16(to + i * pieces.kRowStep * kStride, from + i * step);
    }
    return;
  }
  ForPieces<T, kChunk, kColumns, kThreads, 1>([&](int row, int column) {
    T* to = tile + row * kStride + column;
    const bool kept = keep(row);
    if (rows.aligned) {
      const bool inside = kept && column < rows.width;
      CopyAsync16(to, inside ? rows.Row(first + row) + column : rows.data,
                  inside ? 16 : 0);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kPiece; ++i) {
      to[i] = kept && column + i < rows.width
                  ? rows.Row(first + row)[column + i]
                  : FromFloat<T>(0.0f);
    }
  });
}

/// Two neighbours of a row, zeros beyond its width.
template <typename T>
__device__ __forceinline__ float2 LoadPair(const Rows<T>& rows, int64_t row,
                                           int column) {
  if (column >= rows.width) return make_float2(0.0f, 0.0f);
  const T* from = rows.Row(row) + column;
  if (rows.aligned) {
    if constexpr (sizeof(T) == 4) {
      return Load<float2>(from);
    } else {
      return Unpack<T>(Load<uint32_t>(from));
    }
  }
  return make_float2(ToFloat(from[0]),
                     column + 1 < rows.width ? ToFloat(from[1]) : 0.0f);
}

/// Stores two neighbours of a row, of which those within the width exist.
template <typename T>
__device__ __forceinline__ void StorePair(const Rows<T>& rows, int64_t row,
                                          int column, float x, float y) {
  if (column >= rows.width) return;
  T* to = rows.Row(row) + column;
  if (rows.aligned) {
    if constexpr (sizeof(T) == 4) {
      StoreOnce(to, make_float2(x, y));
    } else {
      StoreOnce(to, Pack<T>(x, y));
    }
    return;
  }
  to[0] = FromFloat<T>(x);
  if (column + 1 < rows.width) to[1] = FromFloat<T>(y);
}

}  // namespace tarn::cuda
