// First kernel of a call with gates per channel, for all chunks at once:
//   X_ij = sum_c k_ic k_jc e^{G_ic - G_jc}, i > j;  P_ij likewise with q_i
// and the rows of q and k with their decays from the chunk's start or to its
// end. Exponents are sums of gates between two tokens, never differences of
// longer sums, so that none is positive and neighbours keep their digits.
// Pairs within 16 tokens multiply the gates between them one by one; those of
// the two halves of 32 and of 64 tokens meet at an anchor between the halves
// and are products of matrices.
#pragma once

#include "kernels/delta/cuda/prepare.cuh"

namespace tarn::cuda::delta {

template <typename T, int kKey>
struct PrepareChannelsShared {
  SharedParts parts;
  size_t factors, totals, scores, x, diagonal;
  size_t queries, keys, decays;          // decays: until the anchored rows
  size_t query_rows, key_rows, columns;  // until the solves
  size_t inverse, spare;
  __host__ __device__ constexpr PrepareChannelsShared()
      : parts(),
        factors(),
        totals(),
        scores(),
        x(),
        diagonal(),
        queries(),
        keys(),
        decays(),
        query_rows(),
        key_rows(),
        columns(),
        inverse(),
        spare() {
    factors = parts.Take<float>(kFactors);
    totals = parts.Take<float>(2 * kKey);
    scores = parts.Take<float>(kScoreFloats);
    x = parts.Take<float>(kScoreFloats);
    diagonal = parts.Take<float>(2 * 4 * 256);
    constexpr int kRows = kChunk * Stride<T>(kKey);
    SharedParts rows = parts;
    queries = rows.Take<T>(kRows);
    keys = rows.Take<T>(kRows);
    SharedParts anchored = rows;
    decays = rows.Take<float>(kChunk * Stride<float>(kKey));
    // In float32: a second rounding of every number would show in the scores.
    query_rows = anchored.Take<float>(kChunk * Stride<float>(kKey));
    key_rows = anchored.Take<float>(kChunk * Stride<float>(kKey));
    columns = anchored.Take<float>(kChunk * Stride<float>(kKey));
    inverse = parts.Take<float>(kScoreFloats);
    spare = parts.Take<float>(kScoreFloats);
    if (rows.bytes > parts.bytes) parts.bytes = rows.bytes;
    if (anchored.bytes > parts.bytes) parts.bytes = anchored.bytes;
  }
};

// log2(e) g of a channel, 0 beyond the chunk's rows and the keys' width.
__device__ __forceinline__ float GateOf(const Call& call,
                                        const ChunkRows& chunk, int64_t head,
                                        int row, int channel) {
  if (row >= chunk.rows || channel >= call.d_key) return 0.0f;
  const float g =
      call.gates.Number(chunk.batch, chunk.first + row, head, channel);
  return (g < kLeastGate ? kLeastGate : g) * static_cast<float>(kLog2E);
}

// The scores of pairs within 16 tokens. Two warps for each of four blocks, half
// of the channels each: the first writes scores and x, the second `diagonal`.
template <typename T, int kKey>
__device__ inline void DiagonalScores(const T* queries, const T* keys,
                                      const float* decays, float* scores,
                                      float* x, float* diagonal) {
  constexpr int kRows = Stride<T>(kKey), kDecays = Stride<float>(kKey);
  constexpr int kOwn = kKey / 4;  // channels of a lane
  const int block = WarpIndex() / 2, second = WarpIndex() % 2;
  const int lane = WarpLane(), j = lane % 16;
  const int channel = second * (kKey / 2) + lane / 16 * kOwn;
  float decayed[kOwn];
#pragma unroll
  for (int c = 0; c < kOwn; c += 2) {
    const float2 k = LoadPair(keys + (block * 16 + j) * kRows + channel + c);
    decayed[c] = k.x;
    decayed[c + 1] = k.y;
  }
#pragma unroll 1
  for (int i = 0; i < 16; ++i) {
    const int row = block * 16 + i;
    float p = 0, q = 0;
#pragma unroll
    for (int c = 0; c < kOwn; c += 4) {
      const float4 a = cuda::Load<float4>(decays + row * kDecays + channel + c);
      const float factor[4] = {a.x, a.y, a.z, a.w};
      const float2 q0 = LoadPair(queries + row * kRows + channel + c);
      const float2 q1 = LoadPair(queries + row * kRows + channel + c + 2);
      const float2 k0 = LoadPair(keys + row * kRows + channel + c);
      const float2 k1 = LoadPair(keys + row * kRows + channel + c + 2);
      const float own_q[4] = {q0.x, q0.y, q1.x, q1.y};
      const float own_k[4] = {k0.x, k0.y, k1.x, k1.y};
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        if (i > j) decayed[c + m] *= factor[m];
        q = FusedMultiplyAdd(own_q[m], decayed[c + m], q);
        p = FusedMultiplyAdd(own_k[m], decayed[c + m], p);
      }
    }
    q += ShuffleXor(q, 16);
    p += ShuffleXor(p, 16);
    if (lane >= 16) continue;
    if (second == 0) {
      scores[row * kScoreStride + block * 16 + j] = q;
      x[row * kScoreStride + block * 16 + j] = p;
    } else {
      diagonal[block * 256 + i * 16 + j] = q;
      diagonal[1024 + block * 256 + i * 16 + j] = p;
    }
  }
}

// Where the rows of pairs of blocks of 16 are in the tiles of anchored rows:
// first those of blocks (1, 0) and (3, 2), then of (2..3, 0..1).
struct AnchoredPair {
  int row, column;              // blocks of the scores
  int row_place, column_place;  // blocks of the tiles
};
__device__ __forceinline__ AnchoredPair PairAt(int i) {
  if (i < 2) return {2 * i + 1, 2 * i, i, i};
  const int u = (i - 2) / 2, v = (i - 2) % 2;
  return {2 + u, v, 2 + u, 2 + v};
}

// The rows of q and k with decays: to the workspace from the chunk's start and
// to its end, to the tiles from and to the anchors.
template <typename T, int kKey>
__device__ inline void DecayRows(const Call& call, const ChunkRows& chunk,
                                 int64_t head, const Workspace<T>& workspace,
                                 int64_t at, const T* queries, const T* keys,
                                 float* totals, float* query_rows,
                                 float* key_rows, float* columns) {
  constexpr int kRows = Stride<T>(kKey), kAnchored = Stride<float>(kKey);
  const int channel = threadIdx.x % kKey, half_of = threadIdx.x / kKey;
  const int first = half_of * 32;
  const bool active = half_of < 2;
  float gates[32], total = 0;
  if (active) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      gates[i] = GateOf(call, chunk, head, first + i, channel);
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) total += gates[i];
    totals[threadIdx.x] = total;
  }
  SyncBlock();
  if (!active) return;
  const float other = totals[(1 - half_of) * kKey + channel];
  const int64_t to = at * kChunk * kKey + channel;
  if (half_of == 0) {
    workspace.end_decays[at * kKey + channel] = FastExp2(total + other);
  }
  // From the start of 16 and of 32 tokens, and of the chunk.
  float near = 0, far = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (i == 16) near = 0;
    near += gates[i];
    far += gates[i];
    const int row = first + i;
    const float q = ToFloat(queries[row * kRows + channel]);
    const float k = ToFloat(keys[row * kRows + channel]);
    const float decay = FastExp2(half_of == 0 ? far : other + far);
    workspace.start_queries[to + row * kKey] =
        FromFloat<T>(q * decay * call.scale);
    workspace.start_keys[to + row * kKey] = FromFloat<T>(k * decay);
    if (i >= 16) {
      const float e = FastExp2(near);
      const int place = (half_of * 16 + i - 16) * kAnchored + channel;
      query_rows[place] = q * e;
      key_rows[place] = k * e;
    }
    if (half_of == 1) {
      const float e = FastExp2(far);
      const int place = (32 + i) * kAnchored + channel;
      query_rows[place] = q * e;
      key_rows[place] = k * e;
    }
  }
  // After a token, to the end of 16 and of 32 tokens, and of the chunk.
  near = far = 0;
#pragma unroll
  for (int i = 31; i >= 0; --i) {
    if (i == 15) near = 0;
    const int row = first + i;
    const float k = ToFloat(keys[row * kRows + channel]);
    workspace.end_keys[to + row * kKey] =
        FromFloat<T>(k * FastExp2(half_of == 1 ? far : far + other));
    if (i < 16) {
      columns[(half_of * 16 + i) * kAnchored + channel] = k * FastExp2(near);
    }
    if (half_of == 0) {
      columns[(32 + i) * kAnchored + channel] = k * FastExp2(far);
    }
    near += gates[i];
    far += gates[i];
  }
}

template <typename T, int kKey, bool kGradient>
__global__ void __launch_bounds__(kThreads)
    PrepareChannels(Call call, Workspace<T> workspace) {
  constexpr PrepareChannelsShared<T, kKey> kShared;
  constexpr int kDecays = Stride<float>(kKey);
  const int64_t head = blockIdx.y;
  int64_t index;
  const Span span = call.sequences.OfSlot(blockIdx.x, &index);
  if (index >= span.Chunks()) return;
  const ChunkRows chunk = ChunkOf(span, index);
  const int64_t at = chunk.slot * call.value_heads + head;
  T* queries = SharedAt<T>(kShared.queries);
  T* keys = SharedAt<T>(kShared.keys);
  float* factors = SharedAt<float>(kShared.factors);
  float* decays = SharedAt<float>(kShared.decays);
  float* scores = SharedAt<float>(kShared.scores);
  float* x = SharedAt<float>(kShared.x);
  float* diagonal = SharedAt<float>(kShared.diagonal);
  StartRows<kKey>(queries, call.queries, chunk, call.KeyHead(head), 0);
  StartRows<kKey>(keys, call.keys, chunk, call.KeyHead(head), 0);
  CommitCopies();
#pragma unroll 8
  for (int i = threadIdx.x; i < kChunk * kKey; i += kThreads) {
    const int row = i / kKey, channel = i % kKey;
    decays[row * kDecays + channel] =
        FastExp2(GateOf(call, chunk, head, row, channel));
  }
  if (threadIdx.x < kChunk) {
    const int row = threadIdx.x;
    const float beta =
        row < chunk.rows
            ? call.betas.Number(chunk.batch, chunk.first + row, head, 0)
            : 0.0f;
    factors[2 * kChunk + row] = beta;
    float* to = workspace.factors + at * kFactors;
    to[row] = to[kChunk + row] = 1.0f;  // the decays are in the rows
    to[2 * kChunk + row] = beta;
  }
  WaitCopies<0>();
  SyncBlock();
  DiagonalScores<T, kKey>(queries, keys, decays, scores, x, diagonal);
  SyncBlock();
  float* query_rows = SharedAt<float>(kShared.query_rows);
  float* key_rows = SharedAt<float>(kShared.key_rows);
  float* columns = SharedAt<float>(kShared.columns);
  DecayRows<T, kKey>(call, chunk, head, workspace, at, queries, keys,
                     SharedAt<float>(kShared.totals), query_rows, key_rows,
                     columns);
  SyncBlock();
  for (int i = WarpIndex(); i < 12; i += kWarps) {
    const AnchoredPair pair = PairAt(i / 2);
    float d[2][4];
    Clear(d);
    AddProduct(
        d, Operand<float, false>{i % 2 == 0 ? query_rows : key_rows, kDecays},
        pair.row_place * 16, Operand<float, true>{columns, kDecays},
        pair.column_place * 16, 0, kKey);
    float* to = Block(i % 2 == 0 ? scores : x, pair.row, pair.column);
    ForPairs<2>([&](int n, int row, int column, int m) {
      StorePair(to + row * kScoreStride + column, d[n][m], d[n][m + 1]);
    });
  }
  SyncBlock();
  // Scores go out, and what the solves invert takes their place.
  T* to = workspace.scores + at * kChunk * kChunk;
  for (int i = threadIdx.x; i < kChunk * kChunk; i += kThreads) {
    const int row = i / kChunk, column = i % kChunk;
    const int entry = row * kScoreStride + column;
    float p = column <= row ? scores[entry] : 0.0f;
    float past = column < row ? x[entry] : 0.0f;
    if (row / 16 == column / 16) {
      const int part = row / 16 * 256 + row % 16 * 16 + column % 16;
      if (column <= row) p += diagonal[part];
      if (column < row) past += diagonal[1024 + part];
    }
    to[row * kChunk + column] = FromFloat<T>(p * call.scale);
    scores[entry] = past * factors[2 * kChunk + column];
    x[entry] = past;
  }
  SyncBlock();
  MakeSolves<kGradient>(workspace, at, factors, scores,
                        SharedAt<float>(kShared.inverse),
                        SharedAt<float>(kShared.spare), x);
}

}  // namespace tarn::cuda::delta
