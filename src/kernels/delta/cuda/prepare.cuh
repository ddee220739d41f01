// First kernel of a call with a gate per token, per head or none: what a chunk
// needs that no state enters, for all chunks at once.
//   X_ij = k_i.k_j e^{G_i - G_j}, i > j;  P_ij = scale q_i.k_j e^{G_i - G_j}
// Exponents are differences of sums in double: after resets and at any size of
// the gates, neighbours keep their digits.
#pragma once

#include "kernels/delta/cuda/inverse.cuh"
#include "kernels/delta/cuda/workspace.cuh"

namespace tarn::cuda::delta {

// exp(-104) is 0 in float32: it stands for what is below, -inf included.
constexpr float kLeastGate = -104.0f;
constexpr double kLog2E = 1.4426950408889634;

// sums[i] = log2(e) (g_1 + ... + g_i), by one warp.
__device__ inline void SumGates(const Call& call, const ChunkRows& chunk,
                                int64_t head, double* sums) {
  const int lane = WarpLane();
  double g[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * lane + i;
    float x = 0.0f;
    if (row < chunk.rows) {
      if (call.gates.data != nullptr) {
        x = call.gates.Number(chunk.batch, chunk.first + row, head, 0);
      } else if (call.head_gates != nullptr) {
        x = call.head_gates[head];
      }
    }
    g[i] = kLog2E * static_cast<double>(x < kLeastGate ? kLeastGate : x);
  }
  double sum = g[0] + g[1];
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const double before = ShuffleUp(sum, distance);
    if (lane >= distance) sum += before;
  }
  double before = ShuffleUp(sum, 1);
  if (lane == 0) before = 0;
  sums[2 * lane] = before + g[0];
  sums[2 * lane + 1] = before + g[0] + g[1];
}

__device__ __forceinline__ float DecayBetween(const double* sums, int i,
                                              int j) {
  return FastExp2(static_cast<float>(sums[i] - sums[j]));
}

// Factors of the rows into shared memory (and the workspace, if not null), by
// threads 0 to 63.
__device__ inline void MakeFactors(const Call& call, const ChunkRows& chunk,
                                   int64_t head, const double* sums,
                                   float* factors, float* to) {
  const int row = threadIdx.x;
  if (row >= kChunk) return;
  factors[row] = FastExp2(static_cast<float>(sums[row]));
  factors[kChunk + row] = DecayBetween(sums, kChunk - 1, row);
  factors[2 * kChunk + row] =
      row < chunk.rows
          ? call.betas.Number(chunk.batch, chunk.first + row, head, 0)
          : 0.0f;
  if (to == nullptr) return;
  for (int i = 0; i < 3; ++i) to[i * kChunk + row] = factors[i * kChunk + row];
}

// d [16, 64] += A[row, row + 16) B^T, the blocks on and left of the diagonal.
template <typename T, int kWidth>
__device__ __forceinline__ void AddScores(float (&d)[8][4], const T* left,
                                          const T* right, int row) {
  constexpr int kStride = Stride<T>(kWidth);
#pragma unroll 2
  for (int k = 0; k < kWidth; k += 16) {
    FragmentA<T> a;
    LoadLeft<false>(a, left, kStride, row, k);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      if (8 * n > row) break;
      FragmentB<T> b[2];
      LoadRight<true>(b, right, kStride, k, 8 * n);
      MultiplyAdd(d[n], a, b[0]);
      MultiplyAdd(d[n + 1], a, b[1]);
    }
  }
}

// The lower triangle of a float32 tile, in T; zeros above it.
template <typename T>
__device__ __forceinline__ void StoreLower(const float* tile, T* to) {
  for (int i = threadIdx.x; i < kChunk * kChunk / 2; i += kThreads) {
    const int row = i / (kChunk / 2), column = i % (kChunk / 2) * 2;
    const float2 x = LoadPair(tile + row * kScoreStride + column);
    StorePair(to + row * kChunk + column, column <= row ? x.x : 0.0f,
              column + 1 <= row ? x.y : 0.0f);
  }
}

// What follows once `a` holds X Diag(beta) and, for the gradient, x holds X:
// the inverses. `inverse` and `spare` are overwritten.
template <bool kGradient, typename T>
__device__ inline void MakeSolves(const Workspace<T>& workspace, int64_t at,
                                  const float* factors, float* a,
                                  float* inverse, float* spare,
                                  const float* x) {
  InvertUnitLower(a, inverse, spare);
  StoreLower(inverse, workspace.solve + at * kChunk * kChunk);
  if constexpr (kGradient) {
    // (I + Diag(beta) X)^-1 = I - Diag(beta) (I + X Diag(beta))^-1 X.
    for (int i = WarpIndex(); i < 10; i += kWarps) {
      const int row = i < 1 ? 0 : i < 3 ? 1 : i < 6 ? 2 : 3;
      const int column = i - row * (row + 1) / 2;
      MultiplyBlocks(
          Block(spare, row, column), -1.0f, row - column + 1,
          [&](int b) { return Block(inverse, row, column + b); },
          [&](int b) {
            return x + (column + b) * 16 * kScoreStride + column * 16;
          });
    }
    SyncBlock();
    for (int i = threadIdx.x; i < kChunk * kChunk; i += kThreads) {
      const int row = i / kChunk, column = i % kChunk;
      float* entry = spare + row * kScoreStride + column;
      *entry = row == column ? 1.0f : *entry * factors[2 * kChunk + row];
    }
    SyncBlock();
    StoreLower(spare, workspace.solve_left + at * kChunk * kChunk);
  }
}

template <typename T, int kKey, bool kGradient>
struct PrepareShared {
  SharedParts parts;
  size_t sums, factors, a, x, keys, queries, inverse, spare;
  __host__ __device__ constexpr PrepareShared()
      : parts(),
        sums(),
        factors(),
        a(),
        x(),
        keys(),
        queries(),
        inverse(),
        spare() {
    sums = parts.Take<double>(kChunk);
    factors = parts.Take<float>(kFactors);
    a = parts.Take<float>(kScoreFloats);
    x = parts.Take<float>(kGradient ? kScoreFloats : 0);
    SharedParts rows = parts;
    keys = rows.Take<T>(kChunk * Stride<T>(kKey));
    queries = rows.Take<T>(kChunk * Stride<T>(kKey));
    // The rows are not needed any more when an inverse is made.
    inverse = parts.Take<float>(kScoreFloats);
    spare = parts.Take<float>(kScoreFloats);
    if (rows.bytes > parts.bytes) parts.bytes = rows.bytes;
  }
};

template <typename T, int kKey, bool kGradient>
__global__ void __launch_bounds__(kThreads)
    PrepareChunks(Call call, Workspace<T> workspace) {
  constexpr PrepareShared<T, kKey, kGradient> kShared;
  const int64_t head = blockIdx.y;
  int64_t index;
  const Span span = call.sequences.OfSlot(blockIdx.x, &index);
  if (index >= span.Chunks()) return;
  const ChunkRows chunk = ChunkOf(span, index);
  const int64_t at = chunk.slot * call.value_heads + head;
  double* sums = SharedAt<double>(kShared.sums);
  float* factors = SharedAt<float>(kShared.factors);
  float* a = SharedAt<float>(kShared.a);
  float* x = SharedAt<float>(kShared.x);
  T* keys = SharedAt<T>(kShared.keys);
  T* queries = SharedAt<T>(kShared.queries);
  StartRows<kKey>(keys, call.keys, chunk, call.KeyHead(head), 0);
  StartRows<kKey>(queries, call.queries, chunk, call.KeyHead(head), 0);
  CommitCopies();
  const int warp = WarpIndex();
  if (warp == 0) SumGates(call, chunk, head, sums);
  WaitCopies<0>();
  SyncBlock();
  MakeFactors(call, chunk, head, sums, factors,
              workspace.factors + at * kFactors);
  SyncBlock();
  // Warps 0 to 3: keys with keys; 4 to 7: queries with keys.
  const int first = warp % 4 * 16;
  float d[8][4];
  Clear(d);
  AddScores<T, kKey>(d, warp < 4 ? keys : queries, keys, first);
  T* scores = workspace.scores + at * kChunk * kChunk;
  ForPairs<8>([&](int n, int row, int column, int i) {
    const int r = first + row;
    const float e = column <= r ? DecayBetween(sums, r, column) : 0.0f;
    const float f = column < r ? DecayBetween(sums, r, column + 1) : 0.0f;
    if (warp < 4) {
      const float left = column < r ? d[n][i] * e : 0.0f;
      const float right = column + 1 < r ? d[n][i + 1] * f : 0.0f;
      const float* betas = factors + 2 * kChunk + column;
      StorePair(a + r * kScoreStride + column, left * betas[0],
                right * betas[1]);
      if constexpr (kGradient) {
        StorePair(x + r * kScoreStride + column, left, right);
      }
    } else {
      StorePair(scores + r * kChunk + column,
                column <= r ? d[n][i] * e * call.scale : 0.0f,
                column < r ? d[n][i + 1] * f * call.scale : 0.0f);
    }
  });
  SyncBlock();
  MakeSolves<kGradient>(workspace, at, factors, a,
                        SharedAt<float>(kShared.inverse),
                        SharedAt<float>(kShared.spare), x);
}

}  // namespace tarn::cuda::delta
