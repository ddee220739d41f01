// What the kernel of rows_gradient.cuh keeps in shared memory, and what it
// leaves where: padding, and the terms that gates per channel weigh later.
#pragma once

#include "kernels/delta/cuda/inverse.cuh"
#include "kernels/delta/cuda/state_tile.cuh"

namespace tarn::cuda::delta {

struct RowsTensors {
  DeviceView grad_out, grad_values;  // read
  DeviceView grad_queries, grad_keys, grad_gates, grad_betas;
};

// Channels of a block: half of 128, so that two blocks of 16-bit numbers run at
// a time, one computing while the other loads.
constexpr int kRowsPart = 64;

template <typename T>
struct RowsShared {
  static constexpr bool kWide = std::is_same_v<T, float>;
  static constexpr int kPiece = kWide ? 64 : 128;  // columns of values at once
  SharedParts parts;
  size_t queries, keys, sums, factors, rows, gates, dots;
  size_t grad_out, grad_values, residuals, states, grad_states;
  size_t query_weights, key_weights, pairs, pair_parts;
  __host__ __device__ constexpr RowsShared()
      : parts(),
        queries(),
        keys(),
        sums(),
        factors(),
        rows(),
        gates(),
        dots(),
        grad_out(),
        grad_values(),
        residuals(),
        states(),
        grad_states(),
        query_weights(),
        key_weights(),
        pairs(),
        pair_parts() {
    constexpr int kRows = kChunk * Stride<T>(kRowsPart);
    constexpr int kValues = kChunk * Stride<T>(kPiece);
    constexpr int kState = kRowsPart * Stride<T>(kPiece);
    queries = parts.Take<T>(kRows);
    keys = parts.Take<T>(kRows);
    sums = parts.Take<double>(kChunk);
    factors = parts.Take<float>(kFactors);
    rows = parts.Take<float>(4 * kChunk);
    gates = parts.Take<float>(kChunk);
    dots = parts.Take<float>(kWarps);
    SharedParts after = parts;
    grad_out = parts.Take<T>(kValues);
    grad_values = parts.Take<T>(kValues);
    residuals = parts.Take<T>(kValues);
    states = parts.Take<T>(kState);
    grad_states = parts.Take<T>(kState);
    // What follows the last piece takes its place.
    query_weights = after.Take<T>(kChunk * Stride<T>(kChunk));
    key_weights = after.Take<T>(kChunk * Stride<T>(kChunk));
    pairs = after.Take<float>(kScoreFloats);
    pair_parts = after.Take<float>(4 * kChunk);
    if (after.bytes > parts.bytes) parts.bytes = after.bytes;
  }
};

// Zeros for the rows of a chunk that holds no tokens, and for those after its
// last: gates and betas. (StoreRowPair takes care of rows of T.)
__device__ inline void StoreScalarRow(const DeviceView& view,
                                      const ChunkRows& chunk, int64_t head,
                                      float x) {
  const int row = threadIdx.x;
  if (view.data == nullptr || row >= chunk.rows + chunk.padding) return;
  view.SetNumber(chunk.batch, chunk.first + row, head, 0,
                 row < chunk.rows ? x : 0.0f);
}

// The same for `kWidth` channels of queries or keys.
template <typename T, int kWidth>
__device__ inline void ZeroKeyRows(const DeviceView& view,
                                   const ChunkRows& chunk, int64_t head,
                                   int64_t channel) {
  for (int i = threadIdx.x; i < kChunk * kWidth / 2; i += kThreads) {
    StoreRowPair<T>(view, chunk, i / (kWidth / 2), head,
                    channel + i % (kWidth / 2) * 2, 0.0f, 0.0f);
  }
}

// For gates per channel: scale S dO, -S dV and beta dS R of each row,
// undecayed.
template <int kColumns, int kKey, typename T>
__device__ inline void StoreStateTerms(
    const Call& call, const Workspace<T>& workspace, int64_t at,
    const float* factors, int first, int left, const float (&dq)[kColumns][4],
    const float (&past)[kColumns][4], const float (&dk)[kColumns][4]) {
  ForPairs<kColumns>([&](int n, int row, int col, int i) {
    const int r = first + row;
    const float beta = factors[2 * kChunk + r];
    const int64_t to = (at * kChunk + r) * kKey + left + col;
    StorePair(workspace.state_queries + to, call.scale * dq[n][i],
              call.scale * dq[n][i + 1]);
    StorePair(workspace.state_past + to, -past[n][i], -past[n][i + 1]);
    StorePair(workspace.state_keys + to, beta * dk[n][i], beta * dk[n][i + 1]);
  });
}

// And scale dP and dX [64, 64] each, undecayed, zeros above the diagonal.
template <typename T>
__device__ inline void StorePairWeights(const Call& call,
                                        const Workspace<T>& workspace,
                                        int64_t at, const float* factors,
                                        int first, int left,
                                        const float (&dp)[4][4],
                                        const float (&dx)[4][4]) {
  float* weights = workspace.pair_weights + at * 2 * kChunk * kChunk;
  ForPairs<4>([&](int n, int row, int col, int i) {
    const int r = first + row, c = left + col;
    const float* betas = factors + 2 * kChunk + c;
    const float scale[2] = {call.scale * betas[0], call.scale * betas[1]};
    float* to = weights + r * kChunk + c;
    StorePair(to, c <= r ? dp[n][i] * scale[0] : 0.0f,
              c < r ? dp[n][i + 1] * scale[1] : 0.0f);
    StorePair(to + kChunk * kChunk, c < r ? -dx[n][i] * betas[0] : 0.0f,
              c + 1 < r ? -dx[n][i + 1] * betas[1] : 0.0f);
  });
}

}  // namespace tarn::cuda::delta
