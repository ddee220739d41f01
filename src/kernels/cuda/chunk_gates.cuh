// What a chunk of 64 tokens needs of its gates and of its tokens' weights, in
// shared memory, and the decay between two of its tokens.
//
// Sums of gates are exact: integers of 2^-40, in units of log2. Differences of
// them are taken of a high and a low part, so that strong gates cost weak ones
// after them no digit; resets (gates below -104, whose factor is 0) are counted
// instead of added.
#pragma once

#include <cstdint>

#include "kernels/cuda/chunk_gates.h"
#include "kernels/cuda/tile.cuh"

namespace tarn::cuda {

__device__ inline float GateAt(const GateRows& gates, int64_t b, int64_t t,
                               int64_t hv) {
  if (gates.per_head != nullptr) return gates.per_head[hv];
  const int64_t at =
      b * gates.stride[0] + t * gates.stride[1] + hv * gates.stride[2];
  switch (gates.dtype) {
    case DType::kBF16:
      return ToFloat(static_cast<const bfloat16*>(gates.data)[at]);
    case DType::kF16:
      return ToFloat(static_cast<const half*>(gates.data)[at]);
    default:
      return static_cast<const float*>(gates.data)[at];
  }
}

/// Below this a gate is a reset: exp of it is 0.
inline constexpr float kResetGate = -104.0f;

struct __align__(16) ChunkVectors {
  float high[kChunk], low[kChunk];  // of the sum of gates to the token
  int resets[kChunk];               // up to it
  float
      row_factor[kChunk];  // of the state before the pass, as the token sees it
  float column_weight[kChunk];  // of the token in the state after the pass
  float column_extra[kChunk];   // the same for sums of rows
  float row_r[kChunk], row_x[kChunk], column_r[kChunk], column_x[kChunk];
  float decay;  // of the whole chunk
};

__device__ __forceinline__ float DecayOf(float high, float low, bool reset) {
  return reset ? 0.0f : FastExp2(high + low);
}

/// Decay from token j to token i > j.
__device__ __forceinline__ float DecayBetween(const ChunkVectors& v, int j,
                                              int i) {
  return DecayOf(v.high[i] - v.high[j], v.low[i] - v.low[j],
                 v.resets[i] != v.resets[j]);
}

/// What one lane brings for tokens 2 lane and 2 lane + 1: gates (0 where there
/// is no token), weights r and x.
struct TokenWeights {
  float gate[2], r[2], x[2];
};

/// Fills the vectors, by one warp. of_rows: whether r and x are of rows; else
/// they are of columns, and those of the other kind are 1.
__device__ inline void FillVectors(ChunkVectors& v, const TokenWeights& w,
                                   bool gated, bool reverse, bool of_rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    v.row_r[t] = of_rows ? w.r[i] : 1.0f;
    v.row_x[t] = of_rows ? w.x[i] : 1.0f;
    v.column_r[t] = of_rows ? 1.0f : w.r[i];
    v.column_x[t] = of_rows ? 1.0f : w.x[i];
  }
  if (!gated) {
    for (int i = 0; i < 2; ++i) {
      const int t = 2 * lane + i;
      v.row_factor[t] = 1.0f;
      v.column_weight[t] = v.column_r[t];
      v.column_extra[t] = v.column_x[t];
    }
    if (lane == 0) v.decay = 1.0f;
    return;
  }
  // Gates above 104 are as good as 104 where exp is infinite.
  constexpr double kUnits = 1.4426950408889634 * 1099511627776.0;
  int64_t sum[2];
  int resets[2];
  for (int i = 0; i < 2; ++i) {
    const float g = w.gate[i];
    const bool nan = g != g, reset = !nan && g < kResetGate;
    const float bounded = nan || reset ? 0.0f : (g > 104.0f ? 104.0f : g);
    sum[i] = static_cast<int64_t>(static_cast<double>(bounded) * kUnits);
    resets[i] = (reset ? 1 : 0) + (nan ? 1 << 16 : 0);
  }
  sum[1] += sum[0], resets[1] += resets[0];
  int64_t all = sum[1];
  int all_resets = resets[1];
  for (int distance = 1; distance < 32; distance *= 2) {
    const int64_t other = ShuffleUp(all, distance);
    const int other_resets = ShuffleUp(all_resets, distance);
    if (lane >= distance) all += other, all_resets += other_resets;
  }
  const int64_t before = all - sum[1];
  const int resets_before = all_resets - resets[1];
  const int64_t total = Shuffle(all, 31);
  const int total_resets = Shuffle(all_resets, 31);
  constexpr float kUnit = 1.0f / 1099511627776.0f;
  const auto factor_of = [](int64_t units, bool reset) {
    const float high = static_cast<float>(units) * kUnit;
    return DecayOf(high, 0.0f, reset);
  };
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const int64_t units = before + sum[i];
    const int count = resets_before + resets[i];
    const float high = static_cast<float>(units) * kUnit;
    v.low[t] = static_cast<float>(
                   units - static_cast<int64_t>(static_cast<double>(high) *
                                                1099511627776.0)) *
               kUnit;
    // A NaN reaches everything after it.
    const float bad = count >> 16 != 0 ? FloatOf(0x7fc00000u) : 0.0f;
    v.high[t] = high + bad;
    v.resets[t] = count & 0xffff;
    const float from_start = factor_of(units, (count & 0xffff) != 0) + bad;
    const float all_bad = total_resets >> 16 != 0 ? FloatOf(0x7fc00000u) : 0.0f;
    const float to_end =
        factor_of(total - units, ((total_resets - count) & 0xffff) != 0) +
        all_bad;
    v.row_factor[t] = reverse ? to_end : from_start;
    const float out = reverse ? from_start : to_end;
    v.column_weight[t] = out * v.column_r[t];
    v.column_extra[t] = out * v.column_x[t];
  }
  if (lane == 31) {
    v.decay = factor_of(total, (total_resets & 0xffff) != 0) +
              (total_resets >> 16 != 0 ? FloatOf(0x7fc00000u) : 0.0f);
  }
}

}  // namespace tarn::cuda
