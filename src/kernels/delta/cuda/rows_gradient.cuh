// The gradient's last pass, all chunks at once: with S before a chunk, dS after
// it, R and dV known,
//   dP = tril(dO U^T);  dX = -stril(dV U^T)
//   dq_i = scale F_i (S dO_i) + scale sum_j dP_ij E_ij k_j
//   dk_j = E_Cj (dS U_j) - F_j (S dV_j)
//          + sum_i (scale dP_ij E_ij q_i + dX_ij E_ij k_i) + sum_i dX_ji E_ji
//          k_i
// with F_i = e^{G_i}, E_ij = e^{G_i - G_j}, U = beta R.
#pragma once

#include "kernels/delta/cuda/gate_sums.cuh"
#include "kernels/delta/cuda/prepare.cuh"
#include "kernels/delta/cuda/rows_parts.cuh"
#include "kernels/delta/cuda/state_tile.cuh"

namespace tarn::cuda::delta {

// kVector: gates per channel weigh the pairs later (channels_gradient.cuh).
// What they need goes to the workspace: the states' terms, dP and dX.
template <typename T, int kKey, bool kVector>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 2 ? 2 : 1)
    RowGradients(Call call, Workspace<T> workspace, RowsTensors tensors) {
  using Shared = RowsShared<T>;
  constexpr Shared kShared;
  constexpr int kPiece = Shared::kPiece, kParts = kKey / kRowsPart;
  constexpr int kColumns = kRowsPart / 16;  // of 8, half of a row
  constexpr int kRows = Stride<T>(kRowsPart), kValues = Stride<T>(kPiece);
  constexpr int kScores = Stride<T>(kChunk);
  const int64_t head = blockIdx.y, key_head = call.KeyHead(head);
  const bool gated = call.gates.data != nullptr || call.head_gates != nullptr;
  int64_t index;
  const Span span = call.sequences.OfSlot(blockIdx.x / kParts, &index);
  const ChunkRows chunk = ChunkOf(span, index);
  const int64_t part = blockIdx.x % kParts, channel = part * kRowsPart;
  if (chunk.rows == 0) {
    if (part == 0) StoreScalarRow(tensors.grad_betas, chunk, head, 0.0f);
    if (!kVector && call.group == 1) {
      ZeroKeyRows<T, kRowsPart>(tensors.grad_queries, chunk, head, channel);
      ZeroKeyRows<T, kRowsPart>(tensors.grad_keys, chunk, head, channel);
    }
    return;
  }
  const int64_t at = chunk.slot * call.value_heads + head;
  const int64_t tiles = call.ValueTiles(), padded_value = tiles * kValueTile;
  T* queries = SharedAt<T>(kShared.queries);
  T* keys = SharedAt<T>(kShared.keys);
  double* sums = SharedAt<double>(kShared.sums);
  float* factors = SharedAt<float>(kShared.factors);
  float* rows = SharedAt<float>(kShared.rows);
  const int64_t states_at = (at * kKey + channel) * padded_value;
  T* grad_out = SharedAt<T>(kShared.grad_out);
  T* grad_values = SharedAt<T>(kShared.grad_values);
  T* residuals = SharedAt<T>(kShared.residuals);
  T* states = SharedAt<T>(kShared.states);
  T* grad_states = SharedAt<T>(kShared.grad_states);
  const auto start = [&](int64_t column) {
    const int64_t columns = padded_value - column;
    StartRows<kPiece>(grad_out, tensors.grad_out, chunk, head, column);
    StartRows<kPiece>(grad_values, tensors.grad_values, chunk, head, column);
    StartPadded<kChunk, kPiece>(
        residuals, workspace.residuals + at * kChunk * padded_value + column,
        padded_value, columns);
    StartPadded<kRowsPart, kPiece>(
        states, workspace.states + states_at + column, padded_value, columns);
    StartPadded<kRowsPart, kPiece>(grad_states,
                                   workspace.grad_states + states_at + column,
                                   padded_value, columns);
    CommitCopies();
  };
  if constexpr (!kVector) {
    StartRows<kRowsPart>(queries, call.queries, chunk, key_head, channel);
    StartRows<kRowsPart>(keys, call.keys, chunk, key_head, channel);
  }
  start(0);
  const int warp = WarpIndex(), lane = WarpLane();
  if constexpr (kVector) {
    if (threadIdx.x < kFactors) {
      factors[threadIdx.x] = workspace.factors[at * kFactors + threadIdx.x];
    }
  } else {
    if (warp == 0) SumGates(call, chunk, head, sums);
    SyncBlock();
    MakeFactors(call, chunk, head, sums, factors, nullptr);
  }

  // This warp's rows, and its half of the columns of [64, 64].
  const int first = warp % 4 * 16, half_of = warp / 4;
  const int left = half_of * 32;
  float dq[kColumns][4], past[kColumns][4], dk[kColumns][4];
  float dp[4][4], dx[4][4];
  Clear(dq);
  Clear(past);
  Clear(dk);
  Clear(dp);
  Clear(dx);
  float through = 0;  // S . dS
  for (int64_t column = 0; column < padded_value; column += kPiece) {
    WaitCopies<0>();
    SyncBlock();
    const int columns = static_cast<int>(
        padded_value - column < kPiece ? padded_value - column : kPiece);
    if constexpr (Shared::kWide) {
      // One operand after the other: three at once do not fit the registers.
      const auto left_of = [](const T* x) {
        return Operand<T, false>{x, kValues};
      };
      const Operand<T, true> s = {states, kValues}, ds = {grad_states, kValues};
      const Operand<T, true> r = {residuals, kValues};
      AddProduct(dq, left_of(grad_out), first, s, left, 0, columns);
      AddProduct(past, left_of(grad_values), first, s, left, 0, columns);
      AddProduct(dk, left_of(residuals), first, ds, left, 0, columns);
      AddProduct(dp, left_of(grad_out), first, r, left, 0, columns);
      AddProduct(dx, left_of(grad_values), first, r, left, 0, columns);
    } else {
#pragma unroll 1
      for (int k = 0; k < columns; k += 16) {
        FragmentA<T> out, value, written;
        LoadLeft<false>(out, grad_out, kValues, first, k);
        LoadLeft<false>(value, grad_values, kValues, first, k);
        LoadLeft<false>(written, residuals, kValues, first, k);
#pragma unroll
        for (int n = 0; n < kColumns; n += 2) {
          FragmentB<T> b[2];
          LoadRight<true>(b, states, kValues, k, left + 8 * n);
          MultiplyAdd(dq[n], out, b[0]);
          MultiplyAdd(dq[n + 1], out, b[1]);
          MultiplyAdd(past[n], value, b[0]);
          MultiplyAdd(past[n + 1], value, b[1]);
          LoadRight<true>(b, grad_states, kValues, k, left + 8 * n);
          MultiplyAdd(dk[n], written, b[0]);
          MultiplyAdd(dk[n + 1], written, b[1]);
        }
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
          FragmentB<T> b[2];
          LoadRight<true>(b, residuals, kValues, k, left + 8 * n);
          MultiplyAdd(dp[n], out, b[0]);
          MultiplyAdd(dp[n + 1], out, b[1]);
          MultiplyAdd(dx[n], value, b[0]);
          MultiplyAdd(dx[n + 1], value, b[1]);
        }
      }
    }
    if constexpr (kVector) {
      // The threads of a channel are neighbours.
      constexpr int kShare = kThreads / kRowsPart;
      const int offset = static_cast<int>(threadIdx.x) / kShare * kValues +
                         static_cast<int>(threadIdx.x) % kShare * 2;
      for (int i = 0; i < kPiece; i += 2 * kShare) {
        const float2 x = LoadPair(states + offset + i);
        const float2 y = LoadPair(grad_states + offset + i);
        through =
            FusedMultiplyAdd(x.x, y.x, FusedMultiplyAdd(x.y, y.y, through));
      }
    } else if (gated) {
      for (int i = threadIdx.x; i < kRowsPart * kPiece / 2; i += kThreads) {
        const int offset = i / (kPiece / 2) * kValues + i % (kPiece / 2) * 2;
        const float2 x = LoadPair(states + offset);
        const float2 y = LoadPair(grad_states + offset);
        through =
            FusedMultiplyAdd(x.x, y.x, FusedMultiplyAdd(x.y, y.y, through));
      }
    }
    SyncBlock();
    if (column + kPiece < padded_value) start(column + kPiece);
  }

  const auto store_betas = [&] {
    if (threadIdx.x >= kChunk || part != 0) return;
    float sum = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      sum += workspace.grad_betas[(at * tiles + tile) * kChunk + threadIdx.x];
    }
    StoreScalarRow(tensors.grad_betas, chunk, head, sum);
  };
  if constexpr (kVector) {
    StoreStateTerms<kColumns, kKey>(call, workspace, at, factors, first,
                                    static_cast<int>(channel) + left, dq, past,
                                    dk);
    if (part == 0) {
      StorePairWeights(call, workspace, at, factors, first, left, dp, dx);
    }
    constexpr int kShare = kThreads / kRowsPart;
#pragma unroll
    for (int mask = 1; mask < kShare; mask *= 2) {
      through += ShuffleXor(through, mask);
    }
    if (threadIdx.x % kShare == 0) {
      workspace.state_dots[at * kKey + channel + threadIdx.x / kShare] =
          through;
    }
    store_betas();
    return;
  }

  // The weights of pairs: dP E and dX E, and what they give the gates.
  T* query_weights = SharedAt<T>(kShared.query_weights);
  T* key_weights = SharedAt<T>(kShared.key_weights);
  float* pairs = SharedAt<float>(kShared.pairs);
  const float* betas = factors + 2 * kChunk;
#pragma unroll
  for (int m = 0; m < 4; m += 2) {  // few scores at a time: registers
    const int column = left + 8 * m;
    float qk[2][4], kk[2][4];
    Clear(qk);
    Clear(kk);
    if (gated) {
      const Operand<T, true> right = {keys, kRows};
      AddProduct(qk, Operand<T, false>{queries, kRows}, first, right, column, 0,
                 kRowsPart);
      AddProduct(kk, Operand<T, false>{keys, kRows}, first, right, column, 0,
                 kRowsPart);
    }
    ForPairs<2>([&](int n, int row, int col, int i) {
      const int r = first + row, c = column + col;
      float weight[2], past_weight[2], pair[2];
#pragma unroll
      for (int l = 0; l < 2; ++l) {
        const int j = c + l;
        const float e = j <= r ? DecayBetween(sums, r, j) * betas[j] : 0.0f;
        weight[l] = j <= r ? dp[m + n][i + l] * e * call.scale : 0.0f;
        past_weight[l] = j < r ? -dx[m + n][i + l] * e : 0.0f;
        pair[l] = weight[l] * qk[n][i + l] + past_weight[l] * kk[n][i + l];
      }
      StorePair(query_weights + r * kScores + c, weight[0], weight[1]);
      StorePair(key_weights + r * kScores + c, past_weight[0], past_weight[1]);
      if (gated) StorePair(pairs + r * kScoreStride + c, pair[0], pair[1]);
    });
  }

  // The states' terms of dq and dk, and what they give the gates.
  float reads[2] = {0, 0}, writes[2] = {0, 0};
  ForPairs<kColumns>([&](int n, int row, int col, int i) {
    const int r = first + row;
    const float from_start = factors[r];
    const float to_end = factors[kChunk + r] * betas[r];
    const float2 q = LoadPair(queries + r * kRows + left + col);
    const float2 k = LoadPair(keys + r * kRows + left + col);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const float own_q = m == 0 ? q.x : q.y, own_k = m == 0 ? k.x : k.y;
      float* x = &dq[n][i + m];
      float* y = &dk[n][i + m];
      const float before = -from_start * past[n][i + m];
      *x *= from_start * call.scale;
      *y *= to_end;
      reads[i / 2] = FusedMultiplyAdd(
          own_q, *x, FusedMultiplyAdd(own_k, before, reads[i / 2]));
      writes[i / 2] = FusedMultiplyAdd(own_k, *y, writes[i / 2]);
      *y += before;
    }
  });
  if (gated) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      reads[i] += ShuffleXor(reads[i], 1);
      reads[i] += ShuffleXor(reads[i], 2);
      writes[i] += ShuffleXor(writes[i], 1);
      writes[i] += ShuffleXor(writes[i], 2);
      if (lane % 4 == 0) {
        const int row = half_of * kChunk + first + lane / 4 + 8 * i;
        rows[row] = reads[i];
        rows[2 * kChunk + row] = writes[i];
      }
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      through += ShuffleXor(through, mask);
    }
    if (lane == 0) SharedAt<float>(kShared.dots)[warp] = through;
  }
  SyncBlock();

#pragma unroll 1
  for (int k = 0; k < first + 16; k += 16) {
    FragmentA<T> a, b;
    LoadLeft<false>(a, query_weights, kScores, first, k);
    LoadLeft<false>(b, key_weights, kScores, first, k);
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      FragmentB<T> right[2];
      LoadRight<false>(right, keys, kRows, k, left + 8 * n);
      MultiplyAdd(dq[n], a, right[0]);
      MultiplyAdd(dq[n + 1], a, right[1]);
      MultiplyAdd(dk[n], b, right[0]);
      MultiplyAdd(dk[n + 1], b, right[1]);
    }
  }
#pragma unroll 1
  for (int k = first; k < kChunk; k += 16) {
    FragmentA<T> a, b;
    LoadLeft<true>(a, query_weights, kScores, first, k);
    LoadLeft<true>(b, key_weights, kScores, first, k);
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      FragmentB<T> right[2];
      LoadRight<false>(right, queries, kRows, k, left + 8 * n);
      MultiplyAdd(dk[n], a, right[0]);
      MultiplyAdd(dk[n + 1], a, right[1]);
      LoadRight<false>(right, keys, kRows, k, left + 8 * n);
      MultiplyAdd(dk[n], b, right[0]);
      MultiplyAdd(dk[n + 1], b, right[1]);
    }
  }
  if (call.group == 1) {
    const int64_t column = channel + left;
    StoreRows<T>(tensors.grad_queries, chunk, first, head, column, dq);
    StoreRows<T>(tensors.grad_keys, chunk, first, head, column, dk);
  } else {
    ForPairs<kColumns>([&](int n, int row, int col, int i) {
      const int64_t to =
          (at * kChunk + first + row) * kKey + channel + left + col;
      StorePair(workspace.query_parts + to, dq[n][i], dq[n][i + 1]);
      StorePair(workspace.key_parts + to, dk[n][i], dk[n][i + 1]);
    });
  }

  store_betas();
  if (!gated) return;
  float all = 0;
  for (int i = 0; i < kWarps; ++i) all += SharedAt<float>(kShared.dots)[i];
  float* gates = SharedAt<float>(kShared.gates);
  GateSums(pairs, rows, factors[kChunk - 1] * all,
           SharedAt<float>(kShared.pair_parts), gates);
  if (threadIdx.x >= kChunk) return;
  workspace.grad_gates[(at * kParts + part) * kChunk + threadIdx.x] =
      gates[threadIdx.x];
}

}  // namespace tarn::cuda::delta
