// The pass over a sequence's chunks in order, one block per value head and 32
// columns of its state:
//   Z = V - e^G K S;  R = (I + X Diag(beta))^-1 Z;  U = beta R
//   O = scale e^G Q S + P U;  S <- e^{G_C} S + (e^{G_C - G} K)^T U
// With gates per channel the factors are in the rows of Q and K
// (workspace.cuh).
#pragma once

#include "kernels/delta/cuda/state_tile.cuh"

namespace tarn::cuda::delta {

struct ScanOutputs {
  DeviceView out;  // without data: not wanted
  float* final_state = nullptr;
  float* checkpoints = nullptr;
};

template <typename T, int kKey, bool kVector, bool kRebuild>
struct ScanShared {
  // Chunks in shared memory: as many as fit, one of float32.
  static constexpr int kStages = sizeof(T) == 4        ? 1
                                 : kVector || kRebuild ? 2
                                                       : 3;
  SharedParts parts;
  size_t queries, keys, end_keys, scores, solve, values, factors, decays,
      stage_bytes;
  size_t state, residuals, written, decayed;
  __host__ __device__ constexpr ScanShared()
      : parts(),
        queries(),
        keys(),
        end_keys(),
        scores(),
        solve(),
        values(),
        factors(),
        decays(),
        stage_bytes(),
        state(),
        residuals(),
        written(),
        decayed() {
    constexpr int kRows = kChunk * Stride<T>(kKey);
    constexpr int kValues = kChunk * Stride<T>(kValueTile);
    queries = parts.Take<T>(kRebuild ? 0 : kRows);
    keys = parts.Take<T>(kRows);
    end_keys = kVector ? parts.Take<T>(kRows) : keys;
    scores = parts.Take<T>(kRebuild ? 0 : kChunk * Stride<T>(kChunk));
    solve = parts.Take<T>(kChunk * Stride<T>(kChunk));
    values = parts.Take<T>(kValues);
    factors = parts.Take<float>(kFactors);
    decays = parts.Take<float>(kVector ? kKey : 0);
    stage_bytes = parts.bytes;
    parts.bytes *= kStages;
    state = parts.Take<T>(kKey * Stride<T>(kValueTile));
    residuals = parts.Take<T>(kValues);
    written = parts.Take<T>(kValues);
    decayed = kVector ? written : parts.Take<T>(kValues);
  }
};

// Starts the copies of rows of queries or keys with or without their decays.
template <int kKey, bool kVector, typename T>
__device__ __forceinline__ void StartKeys(T* to, const DeviceView& view,
                                          const T* decayed, int64_t at,
                                          const ChunkRows& chunk,
                                          int64_t head) {
  if constexpr (kVector) {
    StartTile<kChunk, kKey>(to, decayed + at * kChunk * kKey);
  } else {
    StartRows<kKey>(to, view, chunk, head, 0);
  }
}
// Of a chunk's factors, and of the state's decays where they are per channel.
template <int kKey, bool kVector, typename T>
__device__ __forceinline__ void StartFactors(float* to, float* decays,
                                             const Workspace<T>& workspace,
                                             int64_t at) {
  const int i = threadIdx.x * 4;
  if (i < kFactors) CopyAsync16(to + i, workspace.factors + at * kFactors + i);
  if (kVector && i < kKey) {
    CopyAsync16(decays + i, workspace.end_decays + at * kKey + i);
  }
}

// kRebuild: of one group of 256 tokens, from its checkpoint; keeps R and the
// copy of S before every chunk, and has no output. There are many groups, and
// two blocks of 16-bit numbers at a time hide each other's waits.
template <typename T, int kKey, bool kVector, bool kRebuild>
__global__ void __launch_bounds__(kThreads, kRebuild && sizeof(T) == 2 ? 2 : 1)
    ScanChunks(Call call, Workspace<T> workspace, ScanOutputs outputs) {
  constexpr ScanShared<T, kKey, kVector, kRebuild> kShared;
  constexpr int kStages = kShared.kStages;
  constexpr int kStride = Stride<T>(kValueTile);
  constexpr int kScores = Stride<T>(kChunk);
  constexpr int kRows = Stride<T>(kKey);
  const auto [tile, head, rest] = TileOfBlock(call);
  const int64_t column = tile * kValueTile;
  const int64_t padded_value = call.ValueTiles() * kValueTile;
  const bool reads = !kRebuild && outputs.out.data != nullptr;
  Span span;
  int64_t begin = 0;
  if constexpr (kRebuild) {
    span = call.sequences.OfSlot(rest, &begin, kGroupTokens);
    begin *= kGroupTokens / kChunk;
  } else {
    span = call.sequences.At(rest);
  }
  int64_t end = span.Chunks();
  if (kRebuild && end > begin + kGroupTokens / kChunk) {
    end = begin + kGroupTokens / kChunk;
  }
  if (kRebuild && begin >= end) return;

  StateTile<T, kKey> state;
  state.Load(
      call,
      begin == 0
          ? StateAt(call, call.initial_state, span.sequence, head)
          : StateAt<const float>(
                call, outputs.checkpoints,
                span.checkpoint + begin / (kGroupTokens / kChunk) - 1, head),
      tile);
  T* copy = SharedAt<T>(kShared.state);
  T* residuals = SharedAt<T>(kShared.residuals);
  T* written = SharedAt<T>(kShared.written);
  T* decayed = SharedAt<T>(kShared.decayed);
  const auto start = [&](int64_t c) {
    if (c >= end) return CommitCopies();
    const size_t stage = c % kStages * kShared.stage_bytes;
    const ChunkRows chunk = ChunkOf(span, c);
    const int64_t at = chunk.slot * call.value_heads + head;
    StartKeys<kKey, kVector>(SharedAt<T>(stage + kShared.keys), call.keys,
                             workspace.start_keys, at, chunk,
                             call.KeyHead(head));
    if constexpr (kVector) {
      StartTile<kChunk, kKey>(SharedAt<T>(stage + kShared.end_keys),
                              workspace.end_keys + at * kChunk * kKey);
    }
    StartTile<kChunk, kChunk>(SharedAt<T>(stage + kShared.solve),
                              workspace.solve + at * kChunk * kChunk);
    StartRows<kValueTile>(SharedAt<T>(stage + kShared.values), call.values,
                          chunk, head, column);
    StartFactors<kKey, kVector>(SharedAt<float>(stage + kShared.factors),
                                SharedAt<float>(stage + kShared.decays),
                                workspace, at);
    if (reads) {
      StartKeys<kKey, kVector>(SharedAt<T>(stage + kShared.queries),
                               call.queries, workspace.start_queries, at, chunk,
                               call.KeyHead(head));
      StartTile<kChunk, kChunk>(SharedAt<T>(stage + kShared.scores),
                                workspace.scores + at * kChunk * kChunk);
    }
    CommitCopies();
  };
  // The rows and columns of this warp in what is [64, 32].
  const int first = WarpIndex() % 4 * 16, left = WarpIndex() / 4 * 16;
  // With one stage a chunk is started when the one before it is done.
  constexpr int kAhead = kStages == 1 ? 1 : kStages - 1;
  for (int i = 0; i < kAhead; ++i) start(begin + i);
  for (int64_t c = begin; c < end; ++c) {
    state.Copy(copy);
    WaitCopies<kAhead - 1>();
    SyncBlock();
    const size_t stage = c % kStages * kShared.stage_bytes;
    const ChunkRows chunk = ChunkOf(span, c);
    const int64_t at = chunk.slot * call.value_heads + head;
    const T* keys = SharedAt<T>(stage + kShared.keys);
    const T* queries = SharedAt<T>(stage + kShared.queries);
    const float* factors = SharedAt<float>(stage + kShared.factors);
    const float* betas = factors + 2 * kChunk;
    if constexpr (kRebuild) {
      StoreTile<kKey, kValueTile>(
          copy, workspace.states + at * kKey * padded_value + column,
          padded_value);
    } else if (c > 0 && c % (kGroupTokens / kChunk) == 0) {
      state.Store(
          call,
          StateAt(call, outputs.checkpoints,
                  span.checkpoint + c / (kGroupTokens / kChunk) - 1, head),
          tile);
    }

    float predicted[2][4], out[2][4];
    Clear(predicted);
    Clear(out);
#pragma unroll(kRebuild || sizeof(T) == 4 ? 2 : 4)
    for (int k = 0; k < kKey; k += 16) {
      FragmentB<T> b[2];
      FragmentA<T> a;
      LoadRight<false>(b, copy, kStride, k, left);
      LoadLeft<false>(a, keys, kRows, first, k);
      MultiplyAdd(predicted[0], a, b[0]);
      MultiplyAdd(predicted[1], a, b[1]);
      if (reads) {
        LoadLeft<false>(a, queries, kRows, first, k);
        MultiplyAdd(out[0], a, b[0]);
        MultiplyAdd(out[1], a, b[1]);
      }
    }
    // The tensor cores are busy meanwhile.
    if (kStages > 1) start(c + kAhead);
    const T* values = SharedAt<T>(stage + kShared.values);
    ForPairs<2>([&](int n, int row, int col, int i) {
      const int at_pair = (first + row) * kStride + left + col;
      const float factor = kVector ? 1.0f : factors[first + row];
      const float2 v = LoadPair(values + at_pair);
      StorePair(residuals + at_pair, v.x - factor * predicted[n][i],
                v.y - factor * predicted[n][i + 1]);
      if (!kVector) {
        out[n][i] *= factor * call.scale;
        out[n][i + 1] *= factor * call.scale;
      }
    });
    SyncBlock();
    float r[2][4];
    Clear(r);
    AddProduct(
        r, Operand<T, false>{SharedAt<T>(stage + kShared.solve), kScores},
        first, Operand<T, false>{residuals, kStride}, left, 0, first + 16);
    ForPairs<2>([&](int n, int row, int col, int i) {
      const int at_pair = (first + row) * kStride + left + col;
      const float beta = betas[first + row];
      const float x = beta * r[n][i], y = beta * r[n][i + 1];
      StorePair(written + at_pair, x, y);
      if constexpr (!kVector) {
        const float to_end = factors[kChunk + first + row];
        StorePair(decayed + at_pair, to_end * x, to_end * y);
      }
      if constexpr (kRebuild) {
        StorePair(workspace.residuals +
                      (at * kChunk + first + row) * padded_value + column +
                      left + col,
                  r[n][i], r[n][i + 1]);
      }
    });
    SyncBlock();
    const float* decays = SharedAt<float>(stage + kShared.decays);
    state.Decay(
        [&](int row) { return kVector ? decays[row] : factors[kChunk - 1]; });
    state.Add(SharedAt<T>(stage + kShared.end_keys), decayed);
    if (reads) {
      AddProduct(
          out, Operand<T, false>{SharedAt<T>(stage + kShared.scores), kScores},
          first, Operand<T, false>{written, kStride}, left, 0, first + 16);
      StoreRows<T>(outputs.out, chunk, first, head, column + left, out);
    }
    if (kStages == 1) {
      SyncBlock();
      start(c + 1);
    }
  }
  if constexpr (!kRebuild) {
    state.Store(call, StateAt(call, outputs.final_state, span.sequence, head),
                tile);
    if (reads) ZeroRows<T>(outputs.out, span, head, column);
  }
}

}  // namespace tarn::cuda::delta
