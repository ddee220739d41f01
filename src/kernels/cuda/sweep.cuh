// The kernel of sweep.h. A block of D / 16 warps has S^T's transpose spread over
// its registers: warp w holds rows 16 w to 16 w + 15 of S [c, b] as accumulators,
// which are, transposed, operands of out = a S^T as they are: no state goes
// through memory.
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
  float parts[kWarps + 2][kChunk];  // of rows: by warps, then halves of scores
};

template <typename T, int D, Sums kSums>
struct SweepBlock {
  static constexpr int kWarps = D / 16, kThreads = 32 * kWarps;
  static constexpr int kTiles = D / 8;   // accumulators over b
  static constexpr int kHalves = kWarps / 4;  // warps that share 16 score rows
  static constexpr int kScoreTiles = 8 / kHalves;
  static constexpr int kStride = Stride<T>(D), kScoreStride = Stride<T>(kChunk);
  static_assert(kWarps == 4 || kWarps == 8);

  const Sweep& p;
  SweepMemory<T, D>& m;
  const Segment at;
  const int hv;
  const int warp;
  const LanePlace lane;
  Rows<T> a, b, c;
  int64_t a_tokens, a_rows, b_tokens;
  bool gated, weighted, plain;
  float s[kTiles][4];
  float z[2][4];

  __device__ __forceinline__ SweepBlock(const Sweep& sweep,
                                        SweepMemory<T, D>& memory,
                                        const Segment& segment, int value_head)
      : p(sweep),
        m(memory),
        at(segment),
        hv(value_head),
        warp(static_cast<int>(threadIdx.x) / 32),
        a(RowsAt<T>(p.a, at, hv)),
        b(RowsAt<T>(p.b, at, hv)),
        c(RowsAt<T>(p.c, at, hv)),
        a_tokens(TokensIn(p.a_side, p.sequences, at)),
        a_rows(RowsIn(p.a_side, p.sequences, at)),
        b_tokens(TokensIn(p.b_side, p.sequences, at)),
        gated(p.gates.Any()),
        weighted(gated ||
                 (!p.of_rows && (p.r != nullptr || p.factor != 1.0f))),
        plain(!gated && p.r == nullptr && p.factor == 1.0f) {}

  __device__ __forceinline__ bool Keeps(const Side& side, int64_t tokens,
                                        int64_t t) const {
    return t < tokens &&
           (side.mask == nullptr ||
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
    Clear(z);
    if (from.S != nullptr) {
      const float* S = from.S + StateIndex(state);
      ForState([&](float& x, int index) { x = S[index]; });
    }
    if (from.z == nullptr) return;
    const float* vector = from.z + (state * p.value_heads + hv) * KeyWidth();
    if (kSums == Sums::kDenominators) {  // b columns 16 warp + 0..15
      for (int n = 0; n < 2; ++n) {
        for (int i = 0; i < 4; ++i) {
          const int column = 16 * warp + 8 * n + lane.pair + i % 2;
          if (column < b.width) z[n][i] = vector[column];
        }
      }
    } else if (kSums == Sums::kRows) {
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * warp + lane.group + i / 2 * 8;
        if (row < c.width) z[0][i] = vector[row];
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
    if (kSums == Sums::kDenominators) {
      for (int n = 0; n < 2 && lane.group == 0; ++n) {
        for (int i = 0; i < 2; ++i) {
          const int column = 16 * warp + 8 * n + lane.pair + i;
          if (column < b.width) vector[column] = z[n][i];
        }
      }
    } else if (kSums == Sums::kRows && lane.pair == 0) {
      for (int i = 0; i < 2; ++i) {
        const int row = 16 * warp + lane.group + 8 * i;
        if (row < c.width) vector[row] = z[0][2 * i];
      }
    }
  }

  // ---- Loads ----

  __device__ __forceinline__ void CopyA(int64_t t0) {
    CopyTokens<T, D, kThreads>(m.a, a, t0, [&](int row) {
      return Keeps(p.a_side, a_tokens, t0 + row);
    });
  }
  __device__ __forceinline__ void CopyBC(int64_t t0, int stage) {
    const auto keep = [&](int row) {
      return Keeps(p.b_side, b_tokens, t0 + row);
    };
    CopyTokens<T, D, kThreads>(m.b[stage], b, t0, keep);
    CopyTokens<T, D, kThreads>(m.c[stage], c, t0, keep);
  }
  __device__ __forceinline__ void MapA(int64_t t0) {
    MapTokens<T, D, kThreads>(p.a_map, m.a, a.width, [&](int row) {
      return Keeps(p.a_side, a_tokens, t0 + row);
    });
  }
  __device__ __forceinline__ void MapBC(int64_t t0, int stage) {
    const auto keep = [&](int row) {
      return Keeps(p.b_side, b_tokens, t0 + row);
    };
    MapTokens<T, D, kThreads>(p.b_map, m.b[stage], b.width, keep);
    MapTokens<T, D, kThreads>(p.c_map, m.c[stage], c.width, keep);
  }

  // Gates and weights of this lane's two tokens of a chunk: warp 0.
  __device__ __forceinline__ TokenWeights LoadWeights(int64_t t0) const {
    TokenWeights w;
    for (int i = 0; i < 2; ++i) {
      const int64_t t = t0 + 2 * lane.lane + i;
      w.gate[i] = 0.0f;
      if (gated && t < b_tokens) {
        w.gate[i] = GateAt(p.gates, at.batch, at.first + t, hv);
      }
      const Side& side = p.of_rows ? p.a_side : p.b_side;
      const bool exists = t < (p.of_rows ? a_tokens : b_tokens);
      w.r[i] = !exists ? 0.0f
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

  // P of 16 rows and all columns, or half of them, into m.scores; row sums into
  // m.parts.
  __device__ __forceinline__ void Scores(int stage) {
    const ChunkVectors& v = m.vectors[stage];
    const int row0 = warp % 4 * 16;
    const int column0 = warp / 4 * 8 * kScoreTiles;
    float sum[2] = {0.0f, 0.0f};
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
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int row = row0 + lane.group + e % 4 / 2 * 8;
        const int column = n0 + e / 4 * 8 + lane.pair + e % 2;
        float& x = acc[e / 4][e % 4];
        if (!plain) x *= v.row_r[row] * v.column_r[column];
        if (kSums == Sums::kRows) {
          x = FusedMultiplyAdd(v.row_x[row], v.column_x[column], x);
        }
        if (p.reverse ? column < row : column > row) {
          x = 0.0f;
        } else if (gated && row != column) {
          x *= p.reverse ? DecayBetween(v, row, column)
                         : DecayBetween(v, column, row);
        }
        if (kSums == Sums::kDenominators) sum[e % 4 / 2] += x;
      }
      StoreToTile<T, 2>(acc, m.scores, kScoreStride, row0, n0);
    }
    for (int i = 0; kSums == Sums::kDenominators && i < 2; ++i) {
      sum[i] += ShuffleXor(sum[i], 1);
      sum[i] += ShuffleXor(sum[i], 2);
      if (lane.pair == 0) {
        m.parts[kWarps + warp / 4][row0 + lane.group + 8 * i] = sum[i];
      }
    }
  }

  // A power of two that brings the state into the range of float16 operands.
  __device__ __forceinline__ float StateFactor() const {
    if constexpr (std::is_same_v<T, half>) {
      float most = 0.0f;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        for (int i = 0; i < 4; ++i) most = fmaxf(most, fabsf(s[n][i]));
      }
      for (int i = 0; kSums == Sums::kDenominators && i < 2; ++i) {
        most = fmaxf(most, fmaxf(fabsf(z[i][0]), fabsf(z[i][1])));
      }
      for (int i = 16; i > 0; i /= 2) most = fmaxf(most, ShuffleXor(most, i));
      if (most < 16384.0f || !(most <= 3e38f)) return 1.0f;
      // 2^(14 - exponent) of it.
      return FloatOf((254u + 14u - (BitsOf(most) >> 23)) << 23 & 0x7f800000u);
    }
    return 1.0f;
  }

  // out [64, this warp's 16 columns] of S, and each row's part of a.z.
  __device__ __forceinline__ void ReadState(float (&out)[4][2][4]) {
    const float factor = StateFactor();
    const float undo = 1.0f / factor;
#pragma unroll
    for (int r = 0; r < 4; ++r) Clear(out[r]);
#pragma unroll
    for (int k = 0; k < kTiles; k += 2) {
      FragmentB<T> state[2], row_sums[2], rest[2];
      float left[4], right[4];
      for (int i = 0; i < 4; ++i) {
        left[i] = s[k][i] * factor, right[i] = s[k + 1][i] * factor;
      }
      AccumulatorsAsB(state, left, right);
      const bool own = kSums == Sums::kDenominators && k == 2 * warp;
      if (kSums == Sums::kDenominators && own) {
        for (int i = 0; i < 4; ++i) {
          left[i] = z[0][i] * factor, right[i] = z[1][i] * factor;
        }
        AccumulatorsAsB(row_sums, left, right);
        for (int i = 0; i < 4 && sizeof(T) == 2; ++i) {
          left[i] -= ToFloat(FromFloat<T>(left[i]));
          right[i] -= ToFloat(FromFloat<T>(right[i]));
        }
        if (sizeof(T) == 2) AccumulatorsAsB(rest, left, right);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        FragmentA<T> rows;
        LoadA(rows, m.a, kStride, 16 * r, 8 * k);
        MultiplyAdd(out[r][0], rows, state[0]);
        MultiplyAdd(out[r][1], rows, state[1]);
        if (kSums == Sums::kDenominators && own) {
          float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          if (sizeof(T) == 2) MultiplyAdd(sum, rows, rest[0]);
          MultiplyAdd(sum, rows, row_sums[0]);
          if (lane.pair == 0) {
            m.parts[warp][16 * r + lane.group] = sum[0] * undo;
            m.parts[warp][16 * r + lane.group + 8] = sum[2] * undo;
          }
        }
      }
    }
    if constexpr (std::is_same_v<T, half>) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        for (int n = 0; n < 2; ++n) {
          for (int i = 0; i < 4; ++i) out[r][n][i] *= undo;
        }
      }
    }
  }

  // Weighs what rows see of the state before the chunk; their dots with
  // `beside` into m.parts.
  __device__ __forceinline__ void WeighRows(float (&out)[4][2][4], int stage,
                                            int64_t t0) {
    const ChunkVectors& v = m.vectors[stage];
    float extra[2][2];
    if (kSums == Sums::kRows) {  // s at columns pair, pair + 1 of both tiles
      for (int i = 0; i < 2; ++i) {
        extra[0][i] = Shuffle(z[0][0], 4 * (lane.pair + i));
        extra[1][i] = Shuffle(z[0][2], 4 * (lane.pair + i));
      }
    }
    if (!plain || kSums == Sums::kRows) {
#pragma unroll
      for (int e = 0; e < 32; ++e) {
        const int r = e / 8, n = e / 4 % 2, i = e % 4;
        const int row = 16 * r + lane.group + i / 2 * 8;
        float& x = out[r][n][i];
        x *= v.row_factor[row] * v.row_r[row];
        if (kSums == Sums::kRows) {
          x = FusedMultiplyAdd(v.row_x[row] * v.row_factor[row],
                               extra[n][i % 2], x);
        }
      }
    }
    if (kSums == Sums::kNone && p.dots != nullptr) DotRows(out, t0);
  }

  __device__ __forceinline__ void DotRows(const float (&out)[4][2][4],
                                          int64_t t0) {
    const Rows<T> beside = RowsAt<T>(p.beside, at, hv);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 2; ++i) {
        const int row = 16 * r + lane.group + 8 * i;
        float dot = 0.0f;
        if (t0 + row < a_tokens) {
          for (int n = 0; n < 2; ++n) {
            const float2 two =
                LoadPair(beside, t0 + row, 16 * warp + 8 * n + lane.pair);
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

  // out += P c.
  __device__ __forceinline__ void AddChunk(float (&out)[4][2][4], int stage) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      FragmentB<T> right[2];
      LoadB(right, m.c[stage], kStride, 16 * k, 16 * warp);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (!Visible(16 * r, 16 * k)) continue;
        FragmentA<T> left;
        LoadA(left, m.scores, kScoreStride, 16 * r, 16 * k);
        MultiplyAdd(out[r][0], left, right[0]);
        MultiplyAdd(out[r][1], left, right[1]);
      }
    }
  }

  // S <- e^{g} S + W c b^T and the sums with it.
  __device__ __forceinline__ void Update(int stage) {
    const ChunkVectors& v = m.vectors[stage];
    if (gated) {
      const float decay = v.decay;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        for (int i = 0; i < 4; ++i) s[n][i] *= decay;
      }
      if (kSums == Sums::kRows) {
        for (int i = 0; i < 4; ++i) z[0][i] *= decay;
      }
    }
    FragmentA<T> ones_a;
    FragmentB<T> ones_b[2];
    const float one[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (kSums == Sums::kDenominators) AccumulatorsAsA(ones_a, one, one);
    if (kSums == Sums::kRows) AccumulatorsAsB(ones_b, one, one);
#pragma unroll 1
    for (int t = 0; t < kChunk; t += 16) {
      FragmentA<T> left;
      LoadATransposed(left, m.c[stage], kStride, 16 * warp, t);
      if (kSums == Sums::kRows) {
        FragmentA<T> extra = left;
        if (weighted) ScaleColumns(extra, v.column_extra, t);
        MultiplyAdd(z[0], extra, ones_b[0]);
      }
      if (weighted) ScaleColumns(left, v.column_weight, t);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        FragmentB<T> right[2];
        LoadB(right, m.b[stage], kStride, t, 8 * n);
        MultiplyAdd(s[n], left, right[0]);
        MultiplyAdd(s[n + 1], left, right[1]);
        if (kSums == Sums::kDenominators && n == 2 * warp) {
          MultiplyAdd(z[0], ones_a, right[0]);
          MultiplyAdd(z[1], ones_a, right[1]);
        }
      }
    }
  }

  // ---- Outputs ----

  // 1 / d of this lane's rows 16 r + group (+ 8), from all parts.
  __device__ __forceinline__ void Divisors(float (&inverse)[4][2], int64_t t0) {
    float own[2];
    for (int i = 0; i < 2; ++i) {
      const int row = lane.lane + 32 * i;
      float sum = 0.0f;
      for (int w = 0; w < kWarps; ++w) sum += m.parts[w][row];
      for (int w = 0; w < kHalves && p.causal; ++w) {
        sum += m.parts[kWarps + w][row];
      }
      float d = 1.0f;
      if (p.denominator == Denominator::kExact) {
        d = sum <= 0.0f ? 0.0f : sum;
      } else if (p.denominator == Denominator::kCompat) {
        d = FusedMultiplyAdd(p.scale, sum, p.eps);
      }
      own[i] = d == 0.0f ? 0.0f : p.scale / d;
      if (warp == 0 && p.denominators != nullptr && t0 + row < a_rows) {
        p.denominators[VectorAt(p.a_side, t0 + row)] = d;
      }
    }
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 2; ++i) {
        const int row = 16 * r + lane.group + 8 * i;
        inverse[r][i] = Shuffle(own[r / 2], row % 32);
      }
    }
  }

  template <typename U>
  __device__ __forceinline__ void StoreRows(const float (&out)[4][2][4],
                                            int64_t t0) {
    const Rows<U> to = RowsAt<U>(p.out, at, hv);
    const bool slope = p.beside_map != FeatureMap::kIdentity;
    const Rows<T> beside = RowsAt<T>(p.beside, at, hv);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t t = t0 + 16 * r + lane.group + 8 * i;
        if (t >= a_rows) continue;
        const bool keep = Keeps(p.a_side, a_tokens, t);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const int column = 16 * warp + 8 * n + lane.pair;
          float x = out[r][n][2 * i], y = out[r][n][2 * i + 1];
          if (slope) {
            const float2 two = LoadPair(beside, t, column);
            x *= FeatureSlope<T>(p.beside_map, two.x);
            y *= FeatureSlope<T>(p.beside_map, two.y);
          }
          StorePair(to, t, column, keep ? x : 0.0f, keep ? y : 0.0f);
        }
      }
    }
  }

  __device__ __forceinline__ void Finish(float (&out)[4][2][4], int64_t t0) {
    if (kSums == Sums::kDenominators) {
      float inverse[4][2];
      Divisors(inverse, t0);
#pragma unroll
      for (int e = 0; e < 32; ++e) {
        const float by = inverse[e / 8][e % 4 / 2];
        float& x = out[e / 8][e / 4 % 2][e % 4];
        x = by == 0.0f ? 0.0f : x * by;
      }
    }
    if (kSums == Sums::kNone && p.dots != nullptr && threadIdx.x < kChunk &&
        t0 + threadIdx.x < a_rows) {
      float sum = 0.0f;
      for (int w = 0; w < kWarps; ++w) sum += m.parts[w][threadIdx.x];
      p.dots[VectorAt(p.a_side, t0 + threadIdx.x)] = sum;
    }
    if (p.float_out) {
      StoreRows<float>(out, t0);
    } else {
      StoreRows<T>(out, t0);
    }
  }

  // ---- The pass ----

  __device__ __forceinline__ void RunSegment() {
    const int64_t chunks = (at.end - at.begin + kChunk - 1) / kChunk;
    const bool starts = p.reverse ? at.IsLast() : at.IsFirst();
    const bool finishes = p.reverse ? at.IsFirst() : at.IsLast();
    const int64_t slot = at.first_slot + at.index;
    if (p.collect) {
      // The segment that a pass takes last leaves a state that nobody reads.
      if (p.causal && finishes) return;
      LoadState({}, 0);
    } else if (starts || !p.causal) {
      LoadState(p.initial, at.sequence);
    } else {
      LoadState(p.slots, slot);
    }
    const bool reads = !p.collect, updates = p.collect || p.causal;
    const auto first_token = [&](int64_t i) {
      return at.begin + (p.reverse ? chunks - 1 - i : i) * kChunk;
    };
    TokenWeights weights;
    if (chunks > 0) {
      if (reads) CopyA(first_token(0));
      if (updates) CopyBC(first_token(0), 0);
      if (warp == 0) weights = LoadWeights(first_token(0));
    }
    CommitCopies();
    float segment_decay = 1.0f;
    for (int64_t i = 0; i < chunks; ++i) {
      const int stage = static_cast<int>(i % 2);
      const int64_t t0 = first_token(i);
      const bool more = i + 1 < chunks;
      if (p.checkpoints != nullptr && t0 % 256 == 0 && t0 > 0) {
        const int64_t before = at.first / 256 + t0 / 256 - 1;
        StoreState({p.checkpoints, nullptr},
                   before + at.batch * (p.sequences.rows / 256));
      }
      WaitCopies<0>();
      if (reads) MapA(t0);
      if (updates) MapBC(t0, stage);
      if (warp == 0) {
        FillVectors(m.vectors[stage], weights, gated, p.reverse, p.of_rows);
      }
      SyncBlock();
      if (more) {
        if (updates) CopyBC(first_token(i + 1), 1 - stage);
        if (warp == 0) weights = LoadWeights(first_token(i + 1));
      }
      if (reads) {
        float out[4][2][4];
        if (p.causal) Scores(stage);
        ReadState(out);
        WeighRows(out, stage, t0);
        SyncBlock();
        if (more) CopyA(first_token(i + 1));
        CommitCopies();
        if (p.causal) AddChunk(out, stage);
        Finish(out, t0);
      } else {
        CommitCopies();
      }
      if (updates) {
        if (gated) segment_decay *= m.vectors[stage].decay;
        Update(stage);
      }
    }
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

// Blocks of one multiprocessor that registers and shared memory have room for.
template <typename T, int D>
inline constexpr int kSweepBlocks = sizeof(T) == 4 || D == 128 ? 1 : 2;

template <typename T, int D, Sums kSums>
__global__ void __launch_bounds__(2 * D, (kSweepBlocks<T, D>))
    SweepKernel(const Sweeps sweeps) {
  const int count = sweeps.count;
  const Sweep& sweep = sweeps.at[blockIdx.x % static_cast<unsigned>(count)];
  const int64_t block = blockIdx.x / static_cast<unsigned>(count);
  const Segment at = SegmentAt(sweep.sequences, block / sweep.value_heads);
  if (!at.exists) return;
  auto& memory = *reinterpret_cast<SweepMemory<T, D>*>(SharedMemory());
  SweepBlock<T, D, kSums>(sweep, memory, at,
                          static_cast<int>(block % sweep.value_heads))
      .RunSegment();
}

}  // namespace tarn::cuda
