// What a block of the kernels of sweep.h does. The D / 16 warps of a block hold
// S [c, b] in their registers: warp w has rows 16 w to 16 w + 15 as
// accumulators, whose transpose is an operand of out = a S^T as it is: inside a
// segment the state never goes through memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/chunk_gates.cuh"
#include "kernels/cuda/features.cuh"
#include "kernels/cuda/segments.cuh"
#include "kernels/cuda/sweep.h"

namespace tarn::cuda {

// Shared memory of a block.
template <typename T, int D>
struct SweepMemory {
  static constexpr int kWarps = D / 16;
  static constexpr int kTile = kChunk * Stride<T>(D);
  static constexpr int kScores = kChunk * Stride<T>(kChunk);
  T a[kTile];
  T b[2][kTile], c[2][kTile];
  T scores[kScores];
  ChunkVectors vectors[2];
  float sums[D];                // z over b
  float parts[kWarps][kChunk];  // of rows: parts of their denominators, or dots
  // What all threads know, here and not in their registers.
  Segment at;
  Rows<T> rows_a, rows_b, rows_c, beside;
  int64_t a_tokens, a_rows, b_tokens;
};

template <typename T, int D, Sums kSums>
struct SweepBlock {
  static constexpr int kWarps = D / 16, kThreads = 32 * kWarps;
  static constexpr int kTiles = D / 8;        // accumulators over b
  static constexpr int kHalves = kWarps / 4;  // warps that share 16 score rows
  static constexpr int kScoreTiles = 8 / kHalves;
  static constexpr int kStride = Stride<T>(D), kScoreStride = Stride<T>(kChunk);
  static_assert(kWarps == 4 || kWarps == 8);

  const Sweep& p;
  SweepMemory<T, D>& m;
  const Segment& at;
  const Rows<T>&a, &b, &c;
  const int hv;
  const int warp;
  const LanePlace lane;
  float s[kTiles][4];
  float z[4];  // sums over c, this warp's 16 rows

  // Called by all threads; the segment is in shared memory.
  __device__ __forceinline__ SweepBlock(const Sweep& sweep,
                                        SweepMemory<T, D>& memory,
                                        int value_head)
      : p(sweep),
        m(memory),
        at(m.at),
        a(m.rows_a),
        b(m.rows_b),
        c(m.rows_c),
        hv(value_head),
        warp(static_cast<int>(threadIdx.x) / 32) {
    if (threadIdx.x == 0) {
      m.rows_a = RowsAt<T>(p.a, at, hv);
      m.rows_b = RowsAt<T>(p.b, at, hv);
      m.rows_c = RowsAt<T>(p.c, at, hv);
      m.beside = RowsAt<T>(p.beside, at, hv);
      m.a_tokens = TokensIn(p.a_side, p.sequences, at);
      m.a_rows = RowsIn(p.a_side, p.sequences, at);
      m.b_tokens = TokensIn(p.b_side, p.sequences, at);
    }
    SyncBlock();
  }

  __device__ __forceinline__ bool Gated() const { return p.gates.Any(); }
  // Whether scores, and whether columns, have weights.
  __device__ __forceinline__ bool Plain() const {
    return !Gated() && p.r == nullptr && p.factor == 1.0f;
  }
  __device__ __forceinline__ bool Weighted() const {
    return Gated() || (!p.of_rows && (p.r != nullptr || p.factor != 1.0f));
  }
  __device__ __forceinline__ bool Keeps(const Side& side, int64_t tokens,
                                        int64_t t) const {
    return t < tokens && (side.mask == nullptr ||
                          side.mask[at.batch * side.rows + at.first + t] != 0);
  }
  // Of the vectors [B, T, HV] that belong to the side with `rows` tokens a row.
  __device__ __forceinline__ int64_t VectorAt(const Side& side,
                                              int64_t t) const {
    return (at.batch * side.rows + at.first + t) * p.value_heads + hv;
  }

  // ---- States ----

  // f(accumulator, index) for all of S that exists, [K, V] in memory.
  template <typename F>
  __device__ __forceinline__ void ForState(const F& f) {
    const int row_stride = p.c_is_value ? 1 : b.width;
    const int column_stride = p.c_is_value ? c.width : 1;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * warp + lane.group + i / 2 * 8;
        const int column = 8 * n + lane.pair + i % 2;
        if (row < c.width && column < b.width) {
          f(s[n][i], row * row_stride + column * column_stride);
        }
      }
    }
  }
  __device__ __forceinline__ int64_t StateIndex(int64_t state) const {
    return (state * p.value_heads + hv) * b.width * c.width;
  }
  __device__ __forceinline__ int KeyWidth() const {
    return kSums == Sums::kDenominators ? b.width : c.width;
  }

  __device__ __forceinline__ void LoadState(const StatePointers& from,
                                            int64_t state) {
    Clear(s);
    for (int i = 0; i < 4; ++i) z[i] = 0.0f;
    if (from.S != nullptr) {
      const float* S = from.S + StateIndex(state);
      ForState([&](float& x, int index) { x = S[index]; });
    }
    const float* vector =
        from.z == nullptr ? nullptr
                          : from.z + (state * p.value_heads + hv) * KeyWidth();
    if (kSums == Sums::kDenominators && lane.lane < 16) {
      const int column = 16 * warp + lane.lane;
      m.sums[column] =
          vector != nullptr && column < b.width ? vector[column] : 0.0f;
    } else if (kSums == Sums::kRows && vector != nullptr) {
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * warp + lane.group + i / 2 * 8;
        if (row < c.width) z[i] = vector[row];
      }
    }
  }

  __device__ __forceinline__ void StoreState(const StatePointers& to,
                                             int64_t state) {
    if (to.S != nullptr) {
      float* S = to.S + StateIndex(state);
      ForState([&](float& x, int index) { S[index] = x; });
    }
    if (to.z == nullptr) return;
    float* vector = to.z + (state * p.value_heads + hv) * KeyWidth();
    if (kSums == Sums::kDenominators && lane.lane < 16) {
      const int column = 16 * warp + lane.lane;
      if (column < b.width) vector[column] = m.sums[column];
    } else if (kSums == Sums::kRows && lane.pair == 0) {
      for (int i = 0; i < 2; ++i) {
        const int row = 16 * warp + lane.group + 8 * i;
        if (row < c.width) vector[row] = z[2 * i];
      }
    }
  }

  // ---- Loads ----

  // Whether all rows of the chunk exist and are kept.
  __device__ __forceinline__ bool All(const Side& side, int64_t tokens,
                                      int64_t t0) const {
    return side.mask == nullptr && t0 + kChunk <= tokens;
  }
  __device__ __forceinline__ void CopyA(int64_t t0) {
    CopyTokens<T, D, kThreads>(
        m.a, a, t0,
        [&](int row) { return Keeps(p.a_side, m.a_tokens, t0 + row); },
        All(p.a_side, m.a_tokens, t0));
  }
  __device__ __forceinline__ void CopyBC(int64_t t0, int stage) {
    const auto keep = [&](int row) {
      return Keeps(p.b_side, m.b_tokens, t0 + row);
    };
    const bool all = All(p.b_side, m.b_tokens, t0);
    CopyTokens<T, D, kThreads>(m.b[stage], b, t0, keep, all);
    CopyTokens<T, D, kThreads>(m.c[stage], c, t0, keep, all);
  }
  __device__ __forceinline__ void MapA(int64_t t0) {
    MapTokens<T, D, kThreads>(
        p.a_map, m.a, a.width,
        [&](int row) { return Keeps(p.a_side, m.a_tokens, t0 + row); },
        All(p.a_side, m.a_tokens, t0));
  }
  __device__ __forceinline__ void MapBC(int64_t t0, int stage) {
    const auto keep = [&](int row) {
      return Keeps(p.b_side, m.b_tokens, t0 + row);
    };
    const bool all = All(p.b_side, m.b_tokens, t0);
    MapTokens<T, D, kThreads>(p.b_map, m.b[stage], b.width, keep, all);
    MapTokens<T, D, kThreads>(p.c_map, m.c[stage], c.width, keep, all);
  }

  // Gates and weights of this lane's two tokens of a chunk: warp 0.
  __device__ __forceinline__ TokenWeights LoadWeights(int64_t t0) const {
    TokenWeights w;
    for (int i = 0; i < 2; ++i) {
      const int64_t t = t0 + 2 * lane.lane + i;
      w.gate[i] = 0.0f;
      if (Gated() && t < m.b_tokens) {
        w.gate[i] = GateAt(p.gates, at.batch, at.first + t, hv);
      }
      const Side& side = p.of_rows ? p.a_side : p.b_side;
      const bool exists = t < (p.of_rows ? m.a_tokens : m.b_tokens);
      w.r[i] = !exists          ? 0.0f
               : p.r == nullptr ? p.factor
                                : p.r[VectorAt(side, t)];
      w.x[i] = kSums != Sums::kRows || !exists || p.x == nullptr
                   ? 0.0f
                   : p.x[VectorAt(side, t)];
    }
    return w;
  }

  // ---- Products ----

  // Whether 16 score rows and 16 columns from these have a visible pair.
  __device__ __forceinline__ bool Visible(int row0, int column0) const {
    return p.reverse ? column0 + 15 >= row0 : column0 <= row0 + 15;
  }

  // a.z of 16 rows: d[0] is of row `group`, d[2] of row group + 8.
  __device__ __forceinline__ void DotSums(int row0, float (&d)[4]) {
    for (int i = 0; i < 4; ++i) d[i] = 0.0f;
    const float factor = SumsFactor();
#pragma unroll 2
    for (int k = 0; k < D; k += 16) {
      FragmentA<T> left;
      FragmentB<T> right[2], rest[2];
      LoadA(left, m.a, kStride, row0, k);
      const float2 low = Load<float2>(m.sums + k + lane.pair);
      const float2 high = Load<float2>(m.sums + k + 8 + lane.pair);
      float x[4] = {low.x * factor, low.y * factor, 0.0f, 0.0f};
      float y[4] = {high.x * factor, high.y * factor, 0.0f, 0.0f};
      AccumulatorsAsB(right, x, y);
      if (sizeof(T) == 2) {  // z keeps float32's digits
        for (int i = 0; i < 2; ++i) {
          x[i] -= ToFloat(FromFloat<T>(x[i]));
          y[i] -= ToFloat(FromFloat<T>(y[i]));
        }
        AccumulatorsAsB(rest, x, y);
        MultiplyAdd(d, left, rest[0]);
      }
      MultiplyAdd(d, left, right[0]);
    }
    for (int i = 0; i < 4; ++i) d[i] *= 1.0f / factor;
  }
  // As StateFactor, of z.
  __device__ __forceinline__ float SumsFactor() const {
    if constexpr (std::is_same_v<T, half>) {
      float most = 0.0f;
      for (int i = lane.lane; i < D; i += 32) {
        most = fmaxf(most, fabsf(m.sums[i]));
      }
      return HalfRange(most);
    }
    return 1.0f;
  }

  // Weights and decays of [16, 16] scores; 0 for those of later tokens. Few
  // branches, each around all numbers.
  __device__ __forceinline__ void WeighScores(float (&acc)[2][4], int stage,
                                              int row0, int n0) const {
    const ChunkVectors& v = m.vectors[stage];
    const int top = row0 + lane.group, left = n0 + lane.pair;
    const auto row = [&](int e) { return top + e % 4 / 2 * 8; };
    const auto column = [&](int e) { return left + e / 4 * 8 + e % 2; };
    if (!Plain()) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        acc[e / 4][e % 4] *= v.row_r[row(e)] * v.column_r[column(e)];
      }
    }
    if (kSums == Sums::kRows) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float& x = acc[e / 4][e % 4];
        x = FusedMultiplyAdd(v.row_x[row(e)], v.column_x[column(e)], x);
      }
    }
    const int sign = p.reverse ? -1 : 1;
    if (Gated()) {
      const float towards = static_cast<float>(sign);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int i = row(e), j = column(e);
        acc[e / 4][e % 4] *= DecayOf(towards * (v.high[i] - v.high[j]),
                                     towards * (v.low[i] - v.low[j]),
                                     v.resets[i] != v.resets[j]);
      }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      float& x = acc[e / 4][e % 4];
      x = sign * (row(e) - column(e)) >= 0 ? x : 0.0f;
    }
  }

  // P of 16 rows and all columns, or half of them, into m.scores; their sums
  // and a.z into m.parts.
  __device__ __forceinline__ void Scores(int stage) {
    const int row0 = warp % 4 * 16;
    const int column0 = warp / 4 * 8 * kScoreTiles;
    float sum[2] = {0.0f, 0.0f};
    // The second half of columns has less to do.
    if (kSums == Sums::kDenominators && warp / 4 == kHalves - 1) {
      float d[4];
      DotSums(row0, d);
      if (lane.pair == 0) sum[0] = d[0], sum[1] = d[2];
    }
    if (!p.causal) {
      StoreParts(sum, row0);
      return;
    }
#pragma unroll 1
    for (int n = 0; n < kScoreTiles; n += 2) {
      const int n0 = column0 + 8 * n;
      if (!Visible(row0, n0)) continue;
      float acc[2][4];
      Clear(acc);
#pragma unroll
      for (int k = 0; k < D; k += 16) {
        FragmentA<T> left;
        FragmentB<T> right[2];
        LoadA(left, m.a, kStride, row0, k);
        LoadBTransposed(right, m.b[stage], kStride, k, n0);
        MultiplyAdd(acc[0], left, right[0]);
        MultiplyAdd(acc[1], left, right[1]);
      }
      WeighScores(acc, stage, row0, n0);
      for (int e = 0; kSums == Sums::kDenominators && e < 8; ++e) {
        sum[e % 4 / 2] += acc[e / 4][e % 4];
      }
      StoreToTile<T, 2>(acc, m.scores, kScoreStride, row0, n0);
    }
    StoreParts(sum, row0);
  }
  __device__ __forceinline__ void StoreParts(float (&sum)[2], int row0) {
    for (int i = 0; kSums == Sums::kDenominators && i < 2; ++i) {
      sum[i] += ShuffleXor(sum[i], 1);
      sum[i] += ShuffleXor(sum[i], 2);
      if (lane.pair == 0) {
        m.parts[warp / 4][row0 + lane.group + 8 * i] = sum[i];
      }
    }
  }

  // A power of two that brings numbers up to this lane's `most`, and those of
  // the warp, into the range of float16.
  __device__ __forceinline__ float HalfRange(float most) const {
    for (int i = 16; i > 0; i /= 2) most = fmaxf(most, ShuffleXor(most, i));
    if (most < 16384.0f || !(most <= 3e38f)) return 1.0f;
    // 2^(14 - exponent) of it.
    return FloatOf((254u + 14u - (BitsOf(most) >> 23)) << 23 & 0x7f800000u);
  }
  __device__ __forceinline__ float StateFactor() const {
    if constexpr (std::is_same_v<T, half>) {
      float most = 0.0f;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        for (int i = 0; i < 4; ++i) most = fmaxf(most, fabsf(s[n][i]));
      }
      return HalfRange(most);
    }
    return 1.0f;
  }

  // Rows that a pass makes at a time: half of a chunk, two blocks of 16.
  static constexpr int kBlocks = 2;
  using Out = float[kBlocks][2][4];

  // out [rows from row0, this warp's 16 columns] of S.
  __device__ __forceinline__ void ReadState(Out& out, int row0) {
    const float factor = StateFactor();
    for (int r = 0; r < kBlocks; ++r) Clear(out[r]);
#pragma unroll
    for (int k = 0; k < kTiles; k += 2) {
      FragmentB<T> state[2];
      if constexpr (std::is_same_v<T, half>) {
        float left[4], right[4];
        for (int i = 0; i < 4; ++i) {
          left[i] = s[k][i] * factor, right[i] = s[k + 1][i] * factor;
        }
        AccumulatorsAsB(state, left, right);
      } else {
        AccumulatorsAsB(state, s[k], s[k + 1]);
      }
#pragma unroll
      for (int r = 0; r < kBlocks; ++r) {
        FragmentA<T> rows;
        LoadA(rows, m.a, kStride, row0 + 16 * r, 8 * k);
        MultiplyAdd(out[r][0], rows, state[0]);
        MultiplyAdd(out[r][1], rows, state[1]);
      }
    }
    if constexpr (std::is_same_v<T, half>) {
      const float undo = 1.0f / factor;
#pragma unroll
      for (int e = 0; e < 8 * kBlocks; ++e) {
        out[e / 8][e / 4 % 2][e % 4] *= undo;
      }
    }
  }

  // Weighs what rows see of the state before the chunk; their dots with
  // `beside` into m.parts.
  __device__ __forceinline__ void WeighRows(Out& out, int row0, int stage,
                                            int64_t t0) {
    const ChunkVectors& v = m.vectors[stage];
    float extra[2][2];
    if (kSums == Sums::kRows) {  // s at columns pair, pair + 1 of both tiles
      for (int i = 0; i < 2; ++i) {
        extra[0][i] = Shuffle(z[0], 4 * (lane.pair + i));
        extra[1][i] = Shuffle(z[2], 4 * (lane.pair + i));
      }
    }
    if (!Plain() || kSums == Sums::kRows) {
#pragma unroll
      for (int r = 0; r < kBlocks; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = row0 + 16 * r + lane.group + 8 * half;
          const float weight = v.row_factor[row] * v.row_r[row];
          const float more = v.row_factor[row] * v.row_x[row];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& x = out[r][e / 2][2 * half + e % 2];
            x *= weight;
            if (kSums == Sums::kRows) {
              x = FusedMultiplyAdd(more, extra[e / 2][e % 2], x);
            }
          }
        }
      }
    }
    if (kSums != Sums::kNone || p.dots == nullptr) return;
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = row0 + 16 * r + lane.group + 8 * i;
        float dot = 0.0f;
        if (t0 + row < m.a_tokens) {
          for (int n = 0; n < 2; ++n) {
            const float2 two =
                LoadPair(m.beside, t0 + row, 16 * warp + 8 * n + lane.pair);
            dot = FusedMultiplyAdd(two.x, out[r][n][2 * i], dot);
            dot = FusedMultiplyAdd(two.y, out[r][n][2 * i + 1], dot);
          }
        }
        dot += ShuffleXor(dot, 1);
        dot += ShuffleXor(dot, 2);
        if (lane.pair == 0) m.parts[warp][row] = dot;
      }
    }
  }
  // The sums of the dots of the chunk at t0, after a barrier.
  __device__ __forceinline__ void StoreDots(int64_t t0) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= kChunk || t0 + row >= m.a_rows) return;
    float sum = 0.0f;
    for (int w = 0; w < kWarps; ++w) sum += m.parts[w][row];
    p.dots[VectorAt(p.a_side, t0 + row)] = sum;
  }

  // out += P c.
  __device__ __forceinline__ void AddChunk(Out& out, int row0, int stage) {
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      if (!Visible(row0, k) && !Visible(row0 + 16, k)) continue;
      FragmentB<T> right[2];
      LoadB(right, m.c[stage], kStride, k, 16 * warp);
#pragma unroll
      for (int r = 0; r < kBlocks; ++r) {
        if (!Visible(row0 + 16 * r, k)) continue;
        FragmentA<T> left;
        LoadA(left, m.scores, kScoreStride, row0 + 16 * r, k);
        MultiplyAdd(out[r][0], left, right[0]);
        MultiplyAdd(out[r][1], left, right[1]);
      }
    }
  }

  // S <- e^{g} S + W c b^T and the sums with it.
  __device__ __forceinline__ void Update(int stage) {
    const ChunkVectors& v = m.vectors[stage];
    if (Gated()) {
      const float decay = v.decay;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        for (int i = 0; i < 4; ++i) s[n][i] *= decay;
      }
      if (kSums == Sums::kRows) {
        for (int i = 0; i < 4; ++i) z[i] *= decay;
      }
    }
    FragmentA<T> ones_a;
    FragmentB<T> ones_b[2];
    const float one[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    float sums[2][4];  // over b, of columns from 16 warp
    Clear(sums);
    if (kSums == Sums::kDenominators) AccumulatorsAsA(ones_a, one, one);
    if (kSums == Sums::kRows) AccumulatorsAsB(ones_b, one, one);
#pragma unroll 1
    for (int t = 0; t < kChunk; t += 16) {
      FragmentA<T> left;
      LoadATransposed(left, m.c[stage], kStride, 16 * warp, t);
      if (kSums == Sums::kRows) {
        FragmentA<T> extra = left;
        if (Gated() || !p.of_rows) ScaleColumns(extra, v.column_extra, t);
        MultiplyAdd(z, extra, ones_b[0]);
      }
      if (Weighted()) ScaleColumns(left, v.column_weight, t);
      if constexpr (sizeof(T) == 4) {
        if (kSums == Sums::kDenominators) {
          FragmentB<T> right[2];
          LoadB(right, m.b[stage], kStride, t, 16 * warp);
          MultiplyAdd(sums[0], ones_a, right[0]);
          MultiplyAdd(sums[1], ones_a, right[1]);
        }
        continue;
      }
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        FragmentB<T> right[2];
        LoadB(right, m.b[stage], kStride, t, 8 * n);
        MultiplyAdd(s[n], left, right[0]);
        MultiplyAdd(s[n + 1], left, right[1]);
        if (kSums == Sums::kDenominators && n == 2 * warp) {
          MultiplyAdd(sums[0], ones_a, right[0]);
          MultiplyAdd(sums[1], ones_a, right[1]);
        }
      }
    }
    if constexpr (sizeof(T) == 4) AddExactly(stage);
    if (kSums == Sums::kDenominators) {
      // A barrier comes before others read them.
      if (lane.group == 0) {
        for (int n = 0; n < 2; ++n) {
          float* to = m.sums + 16 * warp + 8 * n + lane.pair;
          to[0] += sums[n][0];
          to[1] += sums[n][1];
        }
      }
      SyncWarp();
    }
  }

  // S += W c b^T of a float32 chunk, summed up before S sees it.
  __device__ __forceinline__ void AddExactly(int stage) {
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      float sum[2][4], rest[2][4];
      Clear(sum);
      Clear(rest);
#pragma unroll 1
      for (int t = 0; t < kChunk; t += 16) {
        FragmentA<T> left;
        FragmentB<T> right[2];
        LoadATransposed(left, m.c[stage], kStride, 16 * warp, t);
        if (Weighted()) {
          ScaleColumns(left, m.vectors[stage].column_weight, t);
        }
        LoadB(right, m.b[stage], kStride, t, 8 * n);
        MultiplyAddApart(sum[0], rest[0], left, right[0]);
        MultiplyAddApart(sum[1], rest[1], left, right[1]);
      }
      for (int i = 0; i < 4; ++i) {
        s[n][i] += sum[0][i] + rest[0][i];
        s[n + 1][i] += sum[1][i] + rest[1][i];
      }
    }
  }

  // ---- Outputs ----

  // scale / d of a row.
  __device__ __forceinline__ float Divisor(int row, int64_t t0) const {
    float sum = 0.0f;
    for (int w = 0; w < kHalves; ++w) sum += m.parts[w][row];
    float d = 1.0f;
    if (p.denominator == Denominator::kExact) {
      d = ExactDenominator(sum);
    } else if (p.denominator == Denominator::kCompat) {
      d = FusedMultiplyAdd(p.scale, sum, p.eps);
    }
    if (warp == 0 && lane.pair == 0 && p.denominators != nullptr &&
        t0 + row < m.a_rows) {
      p.denominators[VectorAt(p.a_side, t0 + row)] = d;
    }
    return d == 0.0f ? 0.0f : p.scale / d;
  }

  template <typename U>
  __device__ __forceinline__ void StoreRows(const Out& out, int row0,
                                            int64_t t0) {
    const Rows<U> to = RowsAt<U>(p.out, at, hv);
    const bool slope = p.beside_map != FeatureMap::kIdentity;
    const bool all =
        All(p.a_side, m.a_tokens, t0) && to.aligned && to.width == D &&
        (!slope || (m.beside.aligned && p.beside_map == FeatureMap::kElu1));
    const int column = 16 * warp + lane.pair;
    U* place = to.Row(t0 + row0 + lane.group) + column;
    const T* beside = m.beside.Row(t0 + row0 + lane.group) + column;
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int below = 16 * r + 8 * i, row = row0 + below + lane.group;
        float by = 1.0f;
        if (kSums == Sums::kDenominators) by = Divisor(row, t0);
        float y[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          y[e] = out[r][e / 2][2 * i + e % 2] * by;
          if (kSums == Sums::kDenominators && by == 0.0f) y[e] = 0.0f;
        }
        if (all) {
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            float left = y[2 * n], right = y[2 * n + 1];
            if (slope) {
              const T* x = beside + below * m.beside.stride + 8 * n;
              float2 two;
              if constexpr (sizeof(T) == 4) {
                two = Load<float2>(x);
              } else {
                two = Unpack<T>(Load<uint32_t>(x));
              }
              left *= Elu1Slope<T>(two.x);
              right *= Elu1Slope<T>(two.y);
            }
            if constexpr (sizeof(U) == 4) {
              Store(place + below * to.stride + 8 * n,
                    make_float2(left, right));
            } else {
              Store(place + below * to.stride + 8 * n, Pack<U>(left, right));
            }
          }
        } else if (t0 + row < m.a_rows) {
          StoreSome(to, y, t0 + row);
        }
      }
    }
  }
  // The same of rows that may be absent, cut or not aligned.
  template <typename U>
  __device__ __forceinline__ void StoreSome(const Rows<U>& to,
                                            const float (&y)[4], int64_t t) {
    const bool slope = p.beside_map != FeatureMap::kIdentity;
    const bool keep = Keeps(p.a_side, m.a_tokens, t);
#pragma unroll 1
    for (int n = 0; n < 2; ++n) {
      const int column = 16 * warp + 8 * n + lane.pair;
      float left = n == 0 ? y[0] : y[2], right = n == 0 ? y[1] : y[3];
      if (slope) {
        const float2 two = LoadPair(m.beside, t, column);
        left *= FeatureSlope<T>(p.beside_map, two.x);
        right *= FeatureSlope<T>(p.beside_map, two.y);
      }
      StorePair(to, t, column, keep ? left : 0.0f, keep ? right : 0.0f);
    }
  }

  // ---- The pass ----

  __device__ __forceinline__ void RunSegment() {
    const int chunks =
        static_cast<int>((at.end - at.begin + kChunk - 1) / kChunk);
    const bool starts = p.reverse ? at.IsLast() : at.IsFirst();
    const bool finishes = p.reverse ? at.IsFirst() : at.IsLast();
    const int64_t slot = at.first_slot + at.index;
    // The segment that a pass takes last leaves a state that nobody reads.
    if (p.collect && p.causal && finishes) return;
    StatePointers from;
    int64_t state = at.sequence;
    if (!p.collect) {
      from = p.initial;
      if (p.causal && !starts) {
        from = p.slots;
        state = slot;
        if (p.starts != nullptr) {
          from = {const_cast<float*>(p.starts), nullptr};
          state = CheckpointAt(p.sequences, at, at.begin);
        }
      }
    }
    LoadState(from, state);
    const bool reads = !p.collect, updates = p.collect || p.causal;
    const auto first_token = [&](int i) {
      return at.begin + int64_t{p.reverse ? chunks - 1 - i : i} * kChunk;
    };
    // The warp with the fewest visible scores makes the next chunk's vectors.
    const bool prepares = warp == (p.reverse ? 3 : 4 % kWarps);
    const auto prepare = [&](const TokenWeights& weights, int stage) {
      FillVectors(m.vectors[stage], weights, Gated(), p.reverse, p.of_rows);
    };
    if (chunks > 0) {
      if (reads) CopyA(first_token(0));
      if (updates) CopyBC(first_token(0), 0);
      if (prepares) prepare(LoadWeights(first_token(0)), 0);
    }
    CommitCopies();
    float segment_decay = 1.0f;
    const bool dots = kSums == Sums::kNone && reads && p.dots != nullptr;
#pragma unroll 1
    for (int i = 0; i < chunks; ++i) {
      const int stage = i % 2;
      const int64_t t0 = first_token(i);
      const bool more = i + 1 < chunks;
      if (p.checkpoints != nullptr && t0 % 256 == 0 && t0 > 0 &&
          t0 < m.a_tokens) {
        StoreState({p.checkpoints, nullptr}, CheckpointAt(p.sequences, at, t0));
      }
      WaitCopies<0>();
      if (reads) MapA(t0);
      if (updates) MapBC(t0, stage);
      SyncBlock();
      if (dots && i > 0) StoreDots(first_token(i - 1));
      TokenWeights weights;
      if (more && updates) CopyBC(first_token(i + 1), 1 - stage);
      if (more && prepares) weights = LoadWeights(first_token(i + 1));
      if (reads) Scores(stage);
      if (more && prepares) prepare(weights, 1 - stage);
      if (reads) {
        SyncBlock();
#pragma unroll 1
        for (int row0 = 0; row0 < kChunk; row0 += 16 * kBlocks) {
          Out out;
          ReadState(out, row0);
          WeighRows(out, row0, stage, t0);
          if (p.causal) AddChunk(out, row0, stage);
          if (p.float_out) {
            StoreRows<float>(out, row0, t0);
          } else {
            StoreRows<T>(out, row0, t0);
          }
        }
        SyncBlock();
        if (more) CopyA(first_token(i + 1));
      }
      CommitCopies();
      if (updates) {
        if (Gated()) segment_decay *= m.vectors[stage].decay;
        Update(stage);
      }
    }
    if (dots && chunks > 0) StoreDots(first_token(chunks - 1));
    if (p.collect) {
      StoreState(p.slots, slot);
      if (threadIdx.x == 0) {
        p.slot_decay[slot * p.value_heads + hv] = segment_decay;
      }
    } else if (finishes && p.causal) {
      StoreState(p.final, at.sequence);
    }
  }
};

}  // namespace tarn::cuda
