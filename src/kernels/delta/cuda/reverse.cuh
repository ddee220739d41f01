// The gradient's pass over a sequence's chunks in reverse, one block per value
// head and 32 columns; dS is the gradient of the state after a chunk:
//   dU = P^T dO + e^{G_C - G} K dS;  dR = (I + Diag(beta) X)^-T dU
//   dV = beta dR;  dbeta_i = dR_i . R_i
//   dS <- e^{G_C} dS + (scale e^G Q)^T dO - (e^G K)^T dV
#pragma once

#include "kernels/delta/cuda/scan.cuh"

namespace tarn::cuda::delta {

struct ReverseTensors {
  DeviceView grad_out, grad_values;
  const float* grad_final_state = nullptr;
  float* grad_initial_state = nullptr;
};

template <typename T, int kKey, bool kVector>
struct ReverseShared {
  // Chunks in shared memory: as many as fit, one of float32.
  static constexpr int kStages = sizeof(T) == 4 ? 1 : kVector ? 2 : 3;
  SharedParts parts;
  size_t queries, keys, end_keys, scores, solve, grad_out, residuals, factors,
      decays, stage_bytes;
  size_t state, grad_written, start_out, grad_values, sums;
  __host__ __device__ constexpr ReverseShared()
      : parts(),
        queries(),
        keys(),
        end_keys(),
        scores(),
        solve(),
        grad_out(),
        residuals(),
        factors(),
        decays(),
        stage_bytes(),
        state(),
        grad_written(),
        start_out(),
        grad_values(),
        sums() {
    constexpr int kRows = kChunk * Stride<T>(kKey);
    constexpr int kValues = kChunk * Stride<T>(kValueTile);
    queries = parts.Take<T>(kRows);
    keys = parts.Take<T>(kRows);
    end_keys = kVector ? parts.Take<T>(kRows) : keys;
    scores = parts.Take<T>(kChunk * Stride<T>(kChunk));
    solve = parts.Take<T>(kChunk * Stride<T>(kChunk));
    grad_out = parts.Take<T>(kValues);
    residuals = parts.Take<T>(kValues);
    factors = parts.Take<float>(kFactors);
    decays = parts.Take<float>(kVector ? kKey : 0);
    stage_bytes = parts.bytes;
    parts.bytes *= kStages;
    state = parts.Take<T>(kKey * Stride<T>(kValueTile));
    grad_written = parts.Take<T>(kValues);
    start_out = parts.Take<T>(kVector ? 0 : kValues);
    grad_values = parts.Take<T>(kValues);
    sums = parts.Take<float>(2 * kChunk);
  }
};

template <typename T, int kKey, bool kVector>
__global__ void __launch_bounds__(kThreads)
    ReverseChunks(Call call, Workspace<T> workspace, ReverseTensors tensors) {
  constexpr ReverseShared<T, kKey, kVector> kShared;
  constexpr int kStages = kShared.kStages;
  constexpr int kStride = Stride<T>(kValueTile);
  constexpr int kScores = Stride<T>(kChunk);
  constexpr int kRows = Stride<T>(kKey);
  const auto [tile, head, sequence] = TileOfBlock(call);
  const int64_t column = tile * kValueTile;
  const int64_t padded_value = call.ValueTiles() * kValueTile;
  const Span span = call.sequences.At(sequence);
  StateTile<T, kKey> state;
  state.Load(call, StateAt(call, tensors.grad_final_state, sequence, head),
             tile);
  T* copy = SharedAt<T>(kShared.state);
  T* grad_written = SharedAt<T>(kShared.grad_written);
  T* grad_values = SharedAt<T>(kShared.grad_values);
  float* sums = SharedAt<float>(kShared.sums);
  const auto start = [&](int64_t c) {
    if (c < 0) return CommitCopies();
    const size_t stage = c % kStages * kShared.stage_bytes;
    const ChunkRows chunk = ChunkOf(span, c);
    const int64_t at = chunk.slot * call.value_heads + head;
    StartKeys<kKey, kVector>(SharedAt<T>(stage + kShared.keys), call.keys,
                             workspace.start_keys, at, chunk,
                             call.KeyHead(head));
    StartKeys<kKey, kVector>(SharedAt<T>(stage + kShared.queries), call.queries,
                             workspace.start_queries, at, chunk,
                             call.KeyHead(head));
    if constexpr (kVector) {
      StartTile<kChunk, kKey>(SharedAt<T>(stage + kShared.end_keys),
                              workspace.end_keys + at * kChunk * kKey);
    }
    StartTile<kChunk, kChunk>(SharedAt<T>(stage + kShared.scores),
                              workspace.scores + at * kChunk * kChunk);
    StartTile<kChunk, kChunk>(SharedAt<T>(stage + kShared.solve),
                              workspace.solve_left + at * kChunk * kChunk);
    StartRows<kValueTile>(SharedAt<T>(stage + kShared.grad_out),
                          tensors.grad_out, chunk, head, column);
    StartTile<kChunk, kValueTile>(
        SharedAt<T>(stage + kShared.residuals),
        workspace.residuals + at * kChunk * padded_value + column,
        padded_value);
    StartFactors<kKey, kVector>(SharedAt<float>(stage + kShared.factors),
                                SharedAt<float>(stage + kShared.decays),
                                workspace, at);
    CommitCopies();
  };
  const int first = WarpIndex() % 4 * 16, left = WarpIndex() / 4 * 16;
  const int64_t last = span.Chunks() - 1;
  // With one stage a chunk is started when the one after it is done.
  constexpr int kAhead = kStages == 1 ? 1 : kStages - 1;
  for (int i = 0; i < kAhead; ++i) start(last - i);
  for (int64_t c = last; c >= 0; --c) {
    state.Copy(copy);
    WaitCopies<kAhead - 1>();
    SyncBlock();
    const size_t stage = c % kStages * kShared.stage_bytes;
    const ChunkRows chunk = ChunkOf(span, c);
    const int64_t at = chunk.slot * call.value_heads + head;
    const float* factors = SharedAt<float>(stage + kShared.factors);
    const float* betas = factors + 2 * kChunk;
    StoreTile<kKey, kValueTile>(
        copy, workspace.grad_states + at * kKey * padded_value + column,
        padded_value);

    float d[2][4];
    Clear(d);
    AddProduct(d,
               Operand<T, false>{SharedAt<T>(stage + kShared.end_keys), kRows},
               first, Operand<T, false>{copy, kStride}, left, 0, kKey);
    // The tensor cores are busy meanwhile.
    if (kStages > 1) start(c - kAhead);
    const T* grad_out = SharedAt<T>(stage + kShared.grad_out);
    const T* start_out = grad_out;
    if constexpr (!kVector) {
      T* to = SharedAt<T>(kShared.start_out);
      start_out = to;
      ForPairs<2>([&](int n, int row, int col, int i) {
        const int at_pair = (first + row) * kStride + left + col;
        const float to_end = factors[kChunk + first + row];
        d[n][i] *= to_end;
        d[n][i + 1] *= to_end;
        const float from_start = factors[first + row] * call.scale;
        const float2 x = LoadPair(grad_out + at_pair);
        StorePair(to + at_pair, from_start * x.x, from_start * x.y);
      });
    }
    AddProduct(
        d, Operand<T, true>{SharedAt<T>(stage + kShared.scores), kScores},
        first, Operand<T, false>{grad_out, kStride}, left, first, kChunk);
    ForPairs<2>([&](int n, int row, int col, int i) {
      StorePair(grad_written + (first + row) * kStride + left + col, d[n][i],
                d[n][i + 1]);
    });
    SyncBlock();
    Clear(d);
    AddProduct(d, Operand<T, true>{SharedAt<T>(stage + kShared.solve), kScores},
               first, Operand<T, false>{grad_written, kStride}, left, first,
               kChunk);
    const T* residuals = SharedAt<T>(stage + kShared.residuals);
    float dot[2] = {0, 0};  // of rows `group` and `group` + 8
    ForPairs<2>([&](int n, int row, int col, int i) {
      const int at_pair = (first + row) * kStride + left + col;
      const float2 x = LoadPair(residuals + at_pair);
      dot[i / 2] = FusedMultiplyAdd(d[n][i + 1], x.y,
                                    FusedMultiplyAdd(d[n][i], x.x, dot[i / 2]));
      const float beta = betas[first + row];
      const float a = beta * d[n][i], b = beta * d[n][i + 1];
      const float from_start = kVector ? 1.0f : factors[first + row];
      StorePair(grad_values + at_pair, -from_start * a, -from_start * b);
      d[n][i] = a;
      d[n][i + 1] = b;
    });
    StoreRows<T>(tensors.grad_values, chunk, first, head, column + left, d);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      dot[i] += ShuffleXor(dot[i], 1);
      dot[i] += ShuffleXor(dot[i], 2);
      if (WarpLane() % 4 == 0) {
        sums[left * 4 + first + WarpLane() / 4 + 8 * i] = dot[i];
      }
    }
    SyncBlock();
    if (threadIdx.x < kChunk) {
      workspace
          .grad_betas[(at * call.ValueTiles() + tile) * kChunk + threadIdx.x] =
          sums[threadIdx.x] + sums[kChunk + threadIdx.x];
    }
    const float* decays = SharedAt<float>(stage + kShared.decays);
    state.Decay(
        [&](int row) { return kVector ? decays[row] : factors[kChunk - 1]; });
    state.Add(SharedAt<T>(stage + kShared.queries), start_out);
    state.Add(SharedAt<T>(stage + kShared.keys), grad_values);
    if (kStages == 1) {
      SyncBlock();
      start(c - 1);
    }
  }
  state.Store(call, StateAt(call, tensors.grad_initial_state, sequence, head),
              tile);
  ZeroRows<T>(tensors.grad_values, span, head, column);
}

}  // namespace tarn::cuda::delta
