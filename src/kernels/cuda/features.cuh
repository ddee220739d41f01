// The feature maps of single entries, as kernels/rows-inl.h has them for the
// CPU: phi(x) and phi'(x) of what a tensor of T holds, in float32.
#pragma once

#include <cmath>

#include "core/feature_map.h"
#include "kernels/cuda/tile.cuh"

namespace tarn::cuda {

/// exp(x); for a 16-bit T within 2^-16 at |x| <= 100, more than T resolves.
template <typename T>
__device__ __forceinline__ float ExpFor(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  return FastExp2(x * 1.44269504f);
}

/// max(x, 0); NaN stays NaN.
__device__ __forceinline__ float PositivePart(float x) {
  return x <= 0.0f ? 0.0f : x;
}

// Both sides are computed and one is taken: no branch splits the work of the
// numbers of a thread.
template <typename T>
__device__ __forceinline__ float Elu1(float x) {
  const float small = ExpFor<T>(x), large = x + 1.0f;
  return x > 0.0f ? large : small;
}
template <typename T>
__device__ __forceinline__ float Elu1Slope(float x) {
  const float small = ExpFor<T>(x);
  return x > 0.0f ? 1.0f : small;
}

// Maps other than elu + 1: one copy of their code, not one for each number that
// a thread maps.
template <typename T>
__device__ __attribute__((noinline)) float OtherFeature(FeatureMap map,
                                                        float x) {
  switch (map) {
    case FeatureMap::kRelu:
      return PositivePart(x);
    case FeatureMap::kRelu2:
      return PositivePart(x) * PositivePart(x);
    case FeatureMap::kSoftplus:
      return PositivePart(x) + log1pf(ExpFor<T>(-fabsf(x)));
    default:
      return x;
  }
}
template <typename T>
__device__ __forceinline__ float Feature(FeatureMap map, float x) {
  if (map != FeatureMap::kElu1) return OtherFeature<T>(map, x);
  return Elu1<T>(x);
}

template <typename T>
__device__ __attribute__((noinline)) float OtherSlope(FeatureMap map, float x) {
  switch (map) {
    case FeatureMap::kRelu:
      return x <= 0.0f ? 0.0f : 1.0f;
    case FeatureMap::kRelu2:
      return 2.0f * PositivePart(x);
    case FeatureMap::kSoftplus:
      return 1.0f / (1.0f + ExpFor<T>(-x));
    default:
      return 1.0f;
  }
}
template <typename T>
__device__ __forceinline__ float FeatureSlope(FeatureMap map, float x) {
  if (map != FeatureMap::kElu1) return OtherSlope<T>(map, x);
  return Elu1Slope<T>(x);
}

// f(number, index) of the numbers of 16 bytes.
template <typename T, typename F>
__device__ __forceinline__ void MapPiece(T* at, const F& f) {
  const uint4 raw = Load<uint4>(at);
  uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      words[i] = BitsOf(f(FloatOf(words[i]), i));
    } else {
      const float2 two = Unpack<T>(words[i]);
      words[i] = Pack<T>(f(two.x, 2 * i), f(two.y, 2 * i + 1));
    }
  }
  Store(at, make_uint4(words[0], words[1], words[2], words[3]));
}

/// phi of this thread's pieces of a tile [64, kColumns], where keep(row) and
/// column < width: what is zero there stays zero. all: as in CopyTokens.
template <typename T, int kColumns, int kThreads, typename Keep>
__device__ __forceinline__ void MapTokens(FeatureMap map, T* tile, int width,
                                          const Keep& keep, bool all) {
  if (map == FeatureMap::kIdentity) return;
  constexpr int kStride = Stride<T>(kColumns);
  if (all && width == kColumns && map == FeatureMap::kElu1) {
    const WholePieces<T, kColumns, kThreads> pieces;
    T* at = tile + pieces.row * kStride + pieces.column;
#pragma unroll 2
    for (int i = 0; i < pieces.kCount; ++i) {
      MapPiece(at + i * pieces.kRowStep * kStride,
               [](float x, int) { return Elu1<T>(x); });
    }
    return;
  }
  ForPieces<T, kChunk, kColumns, kThreads, 1>([&](int row, int column) {
    if (column >= width || !keep(row)) return;
    MapPiece(tile + row * kStride + column, [&](float x, int i) {
      return column + i < width ? Feature<T>(map, x) : 0.0f;
    });
  });
}

}  // namespace tarn::cuda
