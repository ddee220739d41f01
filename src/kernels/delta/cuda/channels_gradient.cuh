// dq, dk and dg of a chunk with gates per channel, from what rows_gradient.cuh
// leaves, in float32: one thread per channel and one block of 16 rows after the
// other, the last one first. With E_ij = e^{G_i - G_j} of this channel,
//   dq_i = F_i sq_i + sum_{j <= i} w_ij E_ij k_j     sq: scale S dO
//   dp_i = F_i sp_i + sum_{j < i} x_ij E_ij k_j      sp: -S dV
//   dk_j = E_Cj sk_j + dp_j + sum_{i >= j} w_ij E_ij q_i + sum_{i > j} x_ij
//   E_ij k_i dg_n = sum_{i >= n} (q_i dq_i + k_i dp_i - k_i dk'_i) + sum_{j <
//   n} k_j E_Cj sk_j
//          + e^{G_C} S . dS
// where dk' is of pairs alone, and pairs i = j, which pass no gate, are left
// out of dg. Pairs within a block multiply its gates one by one, other pairs
// meet at the later block's start, so that no exponent is a difference.
#pragma once

#include "kernels/delta/cuda/prepare_channels.cuh"
#include "kernels/delta/cuda/rows_parts.cuh"

namespace tarn::cuda::delta {

constexpr int kBlockRows = 16;
constexpr int kBlocks = kChunk / kBlockRows;

template <int kKey>
struct ChannelsShared {
  SharedParts parts;
  size_t query_weights, key_weights, later;
  __host__ __device__ constexpr ChannelsShared()
      : parts(), query_weights(), key_weights(), later() {
    // Transposed: [j][i].
    query_weights = parts.Take<float>(kScoreFloats);
    key_weights = parts.Take<float>(kScoreFloats);
    // What later blocks give dk', a column per thread.
    later = parts.Take<float>(kChunk * kKey);
  }
};

template <typename T, int kKey>
__global__ void __launch_bounds__(kKey)
    ChannelGradients(Call call, Workspace<T> workspace, RowsTensors tensors) {
  constexpr ChannelsShared<kKey> kShared;
  constexpr int kRows = kBlockRows;
  const int64_t head = blockIdx.y, key_head = call.KeyHead(head);
  const int channel = threadIdx.x;
  const bool exists = channel < call.d_key;
  int64_t index;
  const Span span = call.sequences.OfSlot(blockIdx.x, &index);
  const ChunkRows chunk = ChunkOf(span, index);
  const int64_t at = chunk.slot * call.value_heads + head;
  const auto store = [&](int row, float dq, float dk, float dg) {
    if (!exists || row >= chunk.rows + chunk.padding) return;
    const int64_t t = chunk.first + row;
    tensors.grad_gates.SetNumber(chunk.batch, t, head, channel, dg);
    if (call.group == 1) {
      tensors.grad_queries.Row<T>(chunk.batch, t, head)[channel] =
          FromFloat<T>(dq);
      tensors.grad_keys.Row<T>(chunk.batch, t, head)[channel] =
          FromFloat<T>(dk);
    }
  };
  if (chunk.rows == 0) {
    for (int row = 0; row < chunk.padding; ++row) store(row, 0, 0, 0);
    return;
  }
  float* query_weights = SharedAt<float>(kShared.query_weights);
  float* key_weights = SharedAt<float>(kShared.key_weights);
  float* later = SharedAt<float>(kShared.later) + channel;
  const float* weights = workspace.pair_weights + at * 2 * kChunk * kChunk;
#pragma unroll 8
  for (int i = threadIdx.x; i < kChunk * kChunk; i += kKey) {
    const int to = i % kChunk * kScoreStride + i / kChunk;
    query_weights[to] = weights[i];
    key_weights[to] = weights[kChunk * kChunk + i];
  }
  for (int i = 0; i < kChunk; ++i) later[i * kKey] = 0;
  SyncBlock();

  const auto query = [&](int row) {
    return exists && row < chunk.rows
               ? ToFloat(call.queries.Row<T>(chunk.batch, chunk.first + row,
                                             key_head)[channel])
               : 0.0f;
  };
  const auto key = [&](int row) {
    return exists && row < chunk.rows
               ? ToFloat(call.keys.Row<T>(chunk.batch, chunk.first + row,
                                          key_head)[channel])
               : 0.0f;
  };
  const auto gate = [&](int row) {
    return GateOf(call, chunk, head, row, channel);
  };
  const int64_t rows_at = at * kChunk * kKey + channel;

  // The gates of whole blocks, and what their keys give the state's end.
  float totals[kBlocks], ends[kBlocks], through = 0;
  {
    float to_end = 0;
#pragma unroll
    for (int b = kBlocks - 1; b >= 0; --b) {
      totals[b] = ends[b] = 0;
#pragma unroll 8
      for (int i = kRows - 1; i >= 0; --i) {
        const int row = b * kRows + i;
        ends[b] = FusedMultiplyAdd(key(row) * FastExp2(to_end),
                                   workspace.state_keys[rows_at + row * kKey],
                                   ends[b]);
        const float g = gate(row);
        totals[b] += g;
        to_end += g;
      }
    }
    through = FastExp2(to_end) * workspace.state_dots[at * kKey + channel];
  }

  float sum = 0;  // of rows from the last on
#pragma unroll 1
  for (int b = kBlocks - 1; b >= 0; --b) {
    float dq[kRows], dp[kRows];
    float before = 0, after = 0, ended = 0;  // gates, and keys' ends, before b
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      if (n < b) before += totals[n];
      if (n < b) ended += ends[n];
      if (n > b) after += totals[n];
    }
    {
      float qd[kRows], kd[kRows], from_start[kRows];
      float far = 0;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        far += gate(b * kRows + i);
        from_start[i] = FastExp2(far);
        qd[i] = query(b * kRows + i) * from_start[i];
        kd[i] = key(b * kRows + i) * from_start[i];
        dq[i] = dp[i] = 0;
      }
      float to_start = 0;  // gates from a key to the block's start
#pragma unroll 4
      for (int j = b * kRows - 1; j >= 0; --j) {
        const float decay = FastExp2(to_start);
        const float k = key(j) * decay;
        float dk = 0;
        const float* w = query_weights + j * kScoreStride + b * kRows;
        const float* x = key_weights + j * kScoreStride + b * kRows;
#pragma unroll
        for (int i = 0; i < kRows; i += 4) {
          const float4 w4 = cuda::Load<float4>(w + i);
          const float4 x4 = cuda::Load<float4>(x + i);
          const float wi[4] = {w4.x, w4.y, w4.z, w4.w};
          const float xi[4] = {x4.x, x4.y, x4.z, x4.w};
#pragma unroll
          for (int m = 0; m < 4; ++m) {
            dq[i + m] = FusedMultiplyAdd(wi[m], k, dq[i + m]);
            dp[i + m] = FusedMultiplyAdd(xi[m], k, dp[i + m]);
            dk = FusedMultiplyAdd(wi[m], qd[i + m],
                                  FusedMultiplyAdd(xi[m], kd[i + m], dk));
          }
        }
        later[j * kKey] = FusedMultiplyAdd(dk, decay, later[j * kKey]);
        to_start += gate(j);
      }
      const float start = FastExp2(before);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int64_t row = rows_at + (b * kRows + i) * kKey;
        // F_i is the product of both factors.
        dq[i] = from_start[i] *
                FusedMultiplyAdd(start, workspace.state_queries[row], dq[i]);
        dp[i] = from_start[i] *
                FusedMultiplyAdd(start, workspace.state_past[row], dp[i]);
      }
    }
    float q[kRows], k[kRows], factor[kRows], dk[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      q[i] = query(b * kRows + i);
      k[i] = key(b * kRows + i);
      factor[i] = FastExp2(gate(b * kRows + i));
    }
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const float* w =
          query_weights + (b * kRows + j) * kScoreStride + b * kRows;
      const float* x = key_weights + (b * kRows + j) * kScoreStride + b * kRows;
      float e = 1, pair_sum = 0;
#pragma unroll
      for (int i = j + 1; i < kRows; ++i) {
        e *= factor[i];
        const float decayed = e * k[j];
        dq[i] = FusedMultiplyAdd(w[i], decayed, dq[i]);
        dp[i] = FusedMultiplyAdd(x[i], decayed, dp[i]);
        pair_sum = FusedMultiplyAdd(
            e, FusedMultiplyAdd(w[i], q[i], x[i] * k[i]), pair_sum);
      }
      dk[j] = later[(b * kRows + j) * kKey] + pair_sum;
    }
    // Ends of keys, added up from the block's first on.
    float ends_before[kRows], end_term[kRows];
    {
      float to_end = after;
#pragma unroll
      for (int i = kRows - 1; i >= 0; --i) {
        end_term[i] = FastExp2(to_end) *
                      workspace.state_keys[rows_at + (b * kRows + i) * kKey];
        to_end += gate(b * kRows + i);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        ends_before[i] = ended;
        ended = FusedMultiplyAdd(k[i], end_term[i], ended);
      }
    }
#pragma unroll
    for (int i = kRows - 1; i >= 0; --i) {
      const int row = b * kRows + i;
      sum += FusedMultiplyAdd(q[i], dq[i], k[i] * (dp[i] - dk[i]));
      const float dg =
          factor[i] == 0.0f ? 0.0f : sum + ends_before[i] + through;
      const float own = query_weights[row * kScoreStride + row];
      const float to_q = FusedMultiplyAdd(own, k[i], dq[i]);
      const float to_k =
          FusedMultiplyAdd(own, q[i], dk[i] + dp[i] + end_term[i]);
      const bool valid = row < chunk.rows;
      store(row, valid ? to_q : 0.0f, valid ? to_k : 0.0f, valid ? dg : 0.0f);
      if (call.group > 1) {
        workspace.query_parts[rows_at + row * kKey] = to_q;
        workspace.key_parts[rows_at + row * kKey] = to_k;
      }
    }
  }
}

}  // namespace tarn::cuda::delta
