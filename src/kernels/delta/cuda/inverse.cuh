// The inverse of a unit lower triangular matrix of 64 rows, in float32: the
// four diagonal blocks of 16 by substitution, what is left of them by products,
//   inverse [[A, 0], [B, C]] = [[A', 0], [-C' B A', C']].
#pragma once

#include "kernels/delta/cuda/spans.cuh"

namespace tarn::cuda::delta {

constexpr int kScoreStride = Stride<float>(kChunk);
constexpr int kScoreFloats = kChunk * kScoreStride;

// Row block, column block of 16 of a tile.
__device__ __forceinline__ float* Block(float* tile, int row, int column) {
  return tile + row * 16 * kScoreStride + column * 16;
}

// to [16, 16] = sign * sum over b < blocks of left(b) right(b), by one warp.
template <typename Left, typename Right>
__device__ __forceinline__ void MultiplyBlocks(float* to, float sign,
                                               int blocks, const Left& left,
                                               const Right& right) {
  float sum[2][4];
  Clear(sum);
  for (int b = 0; b < blocks; ++b) {
    AddProduct(sum, Operand<float, false>{left(b), kScoreStride}, 0,
               Operand<float, false>{right(b), kScoreStride}, 0, 0, 16);
  }
  ForPairs<2>([&](int n, int row, int column, int i) {
    StorePair(to + row * kScoreStride + column, sign * sum[n][i],
              sign * sum[n][i + 1]);
  });
}

// inverse = (I + a)^-1, a strictly lower triangular. Only blocks on and below
// the diagonal are read and written; `spare` [64, 64] is overwritten. By the
// whole block, all of whose threads see the result after it.
__device__ inline void InvertUnitLower(float* a, float* inverse, float* spare) {
  const int warp = WarpIndex(), lane = WarpLane();
  if (warp < 4) {
    // Lane j has column j % 16; the upper lanes repeat the lower ones' work.
    const float* rows = Block(a, warp, warp);
    float* to = Block(inverse, warp, warp);
    const int column = lane % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
      for (int k = 0; k < i; ++k) {
        sum = FusedMultiplyAdd(-rows[i * kScoreStride + k], x[k], sum);
      }
      x[i] = sum;
    }
    SyncWarp();
    if (lane < 16) {
#pragma unroll
      for (int i = 0; i < 16; ++i) to[i * kScoreStride + column] = x[i];
    }
  }
  SyncBlock();
  // Blocks (1, 0) and (3, 2).
  if (warp < 2) {
    const int low = 2 * warp + 1, high = 2 * warp;
    MultiplyBlocks(
        Block(spare, low, high), 1.0f, 1,
        [&](int) { return Block(a, low, high); },
        [&](int) { return Block(inverse, high, high); });
    SyncWarp();
    MultiplyBlocks(
        Block(inverse, low, high), -1.0f, 1,
        [&](int) { return Block(inverse, low, low); },
        [&](int) { return Block(spare, low, high); });
  }
  SyncBlock();
  // Blocks (2, 3) x (0, 1): a A' first.
  const int row = 2 + warp / 2, column = warp % 2;
  if (warp < 4) {
    MultiplyBlocks(
        Block(spare, row, column), 1.0f, 2 - column,
        [&](int b) { return Block(a, row, column + b); },
        [&](int b) { return Block(inverse, column + b, column); });
  }
  SyncBlock();
  if (warp < 4) {
    MultiplyBlocks(
        Block(inverse, row, column), -1.0f, row - 1,
        [&](int b) { return Block(inverse, row, 2 + b); },
        [&](int b) { return Block(spare, 2 + b, column); });
  }
  SyncBlock();
}

}  // namespace tarn::cuda::delta
