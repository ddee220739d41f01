// Sums over heads and tokens of what the gradient's blocks left, in a fixed
// order.
#pragma once

#include "kernels/delta/cuda/rows_parts.cuh"

namespace tarn::cuda::delta {

// dq and dk of a query/key head: its value heads' parts in order.
template <typename T, int kKey>
__global__ void __launch_bounds__(kThreads)
    SumHeads(Call call, Workspace<T> workspace, RowsTensors tensors) {
  int64_t index;
  const Span span = call.sequences.OfSlot(blockIdx.x, &index);
  const ChunkRows chunk = ChunkOf(span, index);
  const int64_t head = blockIdx.y;
  if (chunk.rows == 0) {
    ZeroKeyRows<T, kKey>(tensors.grad_queries, chunk, head, 0);
    ZeroKeyRows<T, kKey>(tensors.grad_keys, chunk, head, 0);
    return;
  }
  const int64_t at =
      (chunk.slot * call.value_heads + head * call.group) * kChunk * kKey;
  for (int i = threadIdx.x; i < kChunk * kKey / 2; i += kThreads) {
    float2 q = {0, 0}, k = {0, 0};
    for (int64_t g = 0; g < call.group; ++g) {
      const int64_t from = at + g * kChunk * kKey + 2 * i;
      const float2 x = LoadPair(workspace.query_parts + from);
      const float2 y = LoadPair(workspace.key_parts + from);
      q.x += x.x;
      q.y += x.y;
      k.x += y.x;
      k.y += y.y;
    }
    const int row = i / (kKey / 2), column = i % (kKey / 2) * 2;
    StoreRowPair<T>(tensors.grad_queries, chunk, row, head, column, q.x, q.y);
    StoreRowPair<T>(tensors.grad_keys, chunk, row, head, column, k.x, k.y);
  }
}

// dg of a gate at row `row` of the chunk: the parts of all channels.
template <typename T, int kKey>
__device__ __forceinline__ float GateGradient(const Workspace<T>& workspace,
                                              int64_t at, int row) {
  constexpr int kParts = kKey / kRowsPart;
  float sum = 0;
  for (int part = 0; part < kParts; ++part) {
    sum += workspace.grad_gates[(at * kParts + part) * kChunk + row];
  }
  return sum;
}

// Of a gate per token: one thread for each row of a chunk.
template <typename T, int kKey>
__global__ void __launch_bounds__(kChunk)
    StoreGateGradients(Call call, Workspace<T> workspace, DeviceView to) {
  int64_t index;
  const Span span = call.sequences.OfSlot(blockIdx.x, &index);
  const ChunkRows chunk = ChunkOf(span, index);
  const int64_t head = blockIdx.y;
  const int row = threadIdx.x;
  const float x =
      row < chunk.rows
          ? GateGradient<T, kKey>(workspace,
                                  chunk.slot * call.value_heads + head, row)
          : 0.0f;
  StoreScalarRow(to, chunk, head, x);
}

// Of a constant gate: the sum over all tokens, one block per value head.
template <typename T, int kKey>
__global__ void __launch_bounds__(kThreads)
    SumGateGradients(Call call, Workspace<T> workspace, float* to) {
  const int64_t head = blockIdx.x;
  double sum = 0;
  for (int64_t slot = threadIdx.x; slot < call.sequences.Slots();
       slot += kThreads) {
    int64_t index;
    const Span span = call.sequences.OfSlot(slot, &index);
    const ChunkRows chunk = ChunkOf(span, index);
    for (int i = 0; i < chunk.rows; ++i) {
      sum +=
          GateGradient<T, kKey>(workspace, slot * call.value_heads + head, i);
    }
  }
  double* sums = SharedAt<double>(0);
  sums[threadIdx.x] = sum;
  SyncBlock();
  for (int n = kThreads / 2; n > 0; n /= 2) {
    if (static_cast<int>(threadIdx.x) < n) {
      sums[threadIdx.x] += sums[threadIdx.x + n];
    }
    SyncBlock();
  }
  if (threadIdx.x == 0) to[head] = static_cast<float>(sums[0]);
}

}  // namespace tarn::cuda::delta
