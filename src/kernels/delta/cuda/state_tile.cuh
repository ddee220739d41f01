// The state of one value head while a block passes over its chunks: kKey rows,
// 32 columns, float32 in the registers of 8 warps, and a copy in T in shared
// memory that the products read.
#pragma once

#include "kernels/delta/cuda/workspace.cuh"

namespace tarn::cuda::delta {

template <typename T, int kKey>
struct StateTile {
  static_assert(kKey == 64 || kKey == 128);
  static constexpr int kColumns = kKey == 128 ? 4 : 2;  // of 8
  static constexpr int kStride = Stride<T>(kValueTile);
  float d[kColumns][4];

  __device__ static int Row() {
    return (kKey == 128 ? WarpIndex() : WarpIndex() % 4) * 16;
  }
  __device__ static int Column() {
    return kKey == 128 ? 0 : WarpIndex() / 4 * 16;
  }

  // From, and to, a dense [d_key, d_value] state; null is zeros, and nothing.
  __device__ void Load(const Call& call, const float* from, int64_t tile) {
    Clear(d);
    if (from == nullptr) return;
    ForPairs<kColumns>([&](int n, int r, int c, int i) {
      const int64_t row = Row() + r;
      const int64_t column = tile * kValueTile + Column() + c;
      const float* at = from + row * call.d_value + column;
      if (row >= call.d_key || column >= call.d_value) return;
      d[n][i] = at[0];
      if (column + 1 < call.d_value) d[n][i + 1] = at[1];
    });
  }
  __device__ void Store(const Call& call, float* to, int64_t tile) const {
    if (to == nullptr) return;
    const bool pairs = call.d_value % 2 == 0;
    ForPairs<kColumns>([&](int n, int r, int c, int i) {
      const int64_t row = Row() + r;
      const int64_t column = tile * kValueTile + Column() + c;
      float* at = to + row * call.d_value + column;
      if (row >= call.d_key || column >= call.d_value) return;
      if (pairs) {
        StorePair(at, d[n][i], d[n][i + 1]);
        return;
      }
      at[0] = d[n][i];
      if (column + 1 < call.d_value) at[1] = d[n][i + 1];
    });
  }
  __device__ void Copy(T* shared) const {
    ForPairs<kColumns>([&](int n, int r, int c, int i) {
      StorePair(shared + (Row() + r) * kStride + Column() + c, d[n][i],
                d[n][i + 1]);
    });
  }
  // The rows times factor(row).
  template <typename F>
  __device__ void Decay(const F& factor) {
    const int group = WarpLane() / 4;
    const float low = factor(Row() + group), high = factor(Row() + group + 8);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      d[n][0] *= low;
      d[n][1] *= low;
      d[n][2] *= high;
      d[n][3] *= high;
    }
  }
  // += rows^T values: rows [64, kKey], values [64, 32].
  __device__ void Add(const T* rows, const T* values) {
    AddProduct(d, Operand<T, true>{rows, Stride<T>(kKey)}, Row(),
               Operand<T, false>{values, kStride}, Column(), 0, kChunk);
  }
};

// State n of [n, value_heads, K, V], or null.
template <typename F>
__device__ __forceinline__ F* StateAt(const Call& call, F* states, int64_t n,
                                      int64_t head) {
  return states == nullptr ? nullptr
                           : states + (n * call.value_heads + head) *
                                          call.d_key * call.d_value;
}

// Which columns of which head a block of the passes over chunks has.
struct TileOfHead {
  int64_t tile, head, rest;
};
__device__ __forceinline__ TileOfHead TileOfBlock(const Call& call) {
  const auto tiles = static_cast<unsigned>(call.ValueTiles());
  const auto heads = static_cast<unsigned>(call.value_heads);
  return {blockIdx.x % tiles, blockIdx.x / tiles % heads,
          blockIdx.x / tiles / heads};
}

// Zeros in the rows of the view that follow the sequence's last chunk.
template <typename T>
__device__ inline void ZeroRows(const DeviceView& view, const Span& span,
                                int64_t head, int64_t column) {
  const int row = threadIdx.x / (kValueTile / 2);
  const int at = threadIdx.x % (kValueTile / 2) * 2;
  const int64_t first = span.Chunks() * kChunk;
  ChunkRows none = {span.batch, span.first, 0, 0, kChunk};
  for (int64_t r = first + row; r < span.rows;
       r += kThreads / (kValueTile / 2)) {
    none.first = span.first + r;
    StoreRowPair<T>(view, none, 0, head, column + at, 0.0f, 0.0f);
  }
}

}  // namespace tarn::cuda::delta
