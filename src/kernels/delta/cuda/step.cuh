// Tokens one after the other, all in float32: one block per row, value head and
// 32 columns of its state, which is in registers from the first token to the
// last. Memory sees the state read once and written once, 16 bytes at a time.
//   e = W^T k;  u = beta (v - e);  o = scale (W^T q + (q.k) u);  S = W + k u^T
#pragma once

#include "kernels/delta/cuda/prepare.cuh"
#include "kernels/delta/cuda/state_tile.cuh"

namespace tarn::cuda::delta {

constexpr int kStepThreads = 128;
constexpr int kStepRows = kStepThreads / 8;  // of the state, at a time

struct StepTensors {
  DeviceView out;
  const float* state = nullptr;
  float* next = nullptr;
  const int64_t *read_slots = nullptr, *write_slots = nullptr;
  bool vectors = false;  // states may be read and written 16 bytes at a time
};

// Four columns of a row of a state, those from `width` on zero.
__device__ __forceinline__ float4 LoadColumns(const float* from, int64_t width,
                                              bool vectors) {
  if (vectors && width >= 4) return LoadOnce<float4>(from);
  float4 x = make_float4(0, 0, 0, 0);
  if (width > 0) x.x = from[0];
  if (width > 1) x.y = from[1];
  if (width > 2) x.z = from[2];
  if (width > 3) x.w = from[3];
  return x;
}
__device__ __forceinline__ void StoreColumns(float* to, float4 x, int64_t width,
                                             bool vectors) {
  if (vectors && width >= 4) return StoreOnce(to, x);
  if (width > 0) to[0] = x.x;
  if (width > 1) to[1] = x.y;
  if (width > 2) to[2] = x.z;
  if (width > 3) to[3] = x.w;
}

__device__ __forceinline__ float GateFactor(float gate) {
  constexpr float kLog2EFloat = 1.4426950408889634f;
  return FastExp2((gate < kLeastGate ? kLeastGate : gate) * kLog2EFloat);
}

template <typename T, int kKey>
__global__ void __launch_bounds__(kStepThreads)
    StepTokens(Call call, StepTensors tensors) {
  constexpr int kOwn = kKey / kStepRows;  // rows of the state of each thread
  const auto [tile, head, b] = TileOfBlock(call);
  const int64_t key_head = call.KeyHead(head);
  const int row = threadIdx.x / 8;  // and kStepRows on, ...
  const int64_t column = tile * kValueTile + threadIdx.x % 8 * 4;
  const int64_t width = call.d_value - column;
  const int64_t from = tensors.read_slots ? tensors.read_slots[b] : b;
  const int64_t to = tensors.write_slots ? tensors.write_slots[b] : b;
  const int64_t seq_len = call.sequences.seq_len;
  const bool skips = from < 0 || to < 0;
  const int64_t tokens = skips ? 0 : call.sequences.At(b).tokens;
  const int64_t size = call.d_key * call.d_value;
  const float* old_state =
      tensors.state + (from * call.value_heads + head) * size + column;
  float* state = tensors.next + (to * call.value_heads + head) * size + column;
  float4 s[kOwn];
  if (!skips) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t k = row + i * kStepRows;
      s[i] = LoadColumns(old_state + k * call.d_value,
                         k < call.d_key ? width : 0, tensors.vectors);
    }
  }
  float* sums = SharedAt<float>(0);  // [2, 4 warps, 8, 12]: by turns
  const int warp = WarpIndex(), lane = WarpLane();
  const bool vector_gates = call.gates.width > 1;
  for (int64_t t = 0; t < tokens; ++t) {
    const T* queries = call.queries.Row<T>(b, t, key_head);
    const T* keys = call.keys.Row<T>(b, t, key_head);
    float q[kOwn], k[kOwn], decay = 1;
    if (call.gates.data != nullptr && !vector_gates) {
      decay = GateFactor(call.gates.Number(b, t, head, 0));
    } else if (call.head_gates != nullptr) {
      decay = GateFactor(call.head_gates[head]);
    }
    float e[9] = {};  // W^T k, W^T q of four columns, q.k
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t at = row + i * kStepRows;
      const bool valid = at < call.d_key;
      q[i] = valid ? ToFloat(queries[at]) : 0.0f;
      k[i] = valid ? ToFloat(keys[at]) : 0.0f;
      float factor = decay;
      if (vector_gates && valid) {
        factor = GateFactor(call.gates.Number(b, t, head, at));
      }
      s[i].x *= factor;
      s[i].y *= factor;
      s[i].z *= factor;
      s[i].w *= factor;
      e[0] = FusedMultiplyAdd(s[i].x, k[i], e[0]);
      e[1] = FusedMultiplyAdd(s[i].y, k[i], e[1]);
      e[2] = FusedMultiplyAdd(s[i].z, k[i], e[2]);
      e[3] = FusedMultiplyAdd(s[i].w, k[i], e[3]);
      e[4] = FusedMultiplyAdd(s[i].x, q[i], e[4]);
      e[5] = FusedMultiplyAdd(s[i].y, q[i], e[5]);
      e[6] = FusedMultiplyAdd(s[i].z, q[i], e[6]);
      e[7] = FusedMultiplyAdd(s[i].w, q[i], e[7]);
      e[8] = FusedMultiplyAdd(q[i], k[i], e[8]);
    }
#pragma unroll
    for (int i = 0; i < 9; ++i) {
      e[i] += ShuffleXor(e[i], 8);
      e[i] += ShuffleXor(e[i], 16);
    }
    float* mine = sums + t % 2 * 4 * 8 * 12;
    if (lane < 8) {
#pragma unroll
      for (int i = 0; i < 9; ++i) mine[(warp * 8 + lane) * 12 + i] = e[i];
    }
    SyncBlock();
#pragma unroll
    for (int i = 0; i < 9; ++i) {
      e[i] = 0;
#pragma unroll
      for (int w = 0; w < 4; ++w) e[i] += mine[(w * 8 + lane % 8) * 12 + i];
    }
    const float beta = call.betas.Number(b, t, head, 0);
    const T* values = call.values.Row<T>(b, t, head) + column;
    float u[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      u[i] = beta * ((i < width ? ToFloat(values[i]) : 0.0f) - e[i]);
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      s[i].x = FusedMultiplyAdd(k[i], u[0], s[i].x);
      s[i].y = FusedMultiplyAdd(k[i], u[1], s[i].y);
      s[i].z = FusedMultiplyAdd(k[i], u[2], s[i].z);
      s[i].w = FusedMultiplyAdd(k[i], u[3], s[i].w);
    }
    if (row == 0) {
      T* out = tensors.out.Row<T>(b, t, head) + column;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i < width) {
          out[i] =
              FromFloat<T>(call.scale * FusedMultiplyAdd(e[8], u[i], e[4 + i]));
        }
      }
    }
  }
  if (!skips) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t k = row + i * kStepRows;
      StoreColumns(state + k * call.d_value, s[i], k < call.d_key ? width : 0,
                   tensors.vectors);
    }
  }
  for (int64_t t = tokens + row; t < seq_len; t += kStepRows) {
    T* out = tensors.out.Row<T>(b, t, head) + column;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < width) out[i] = FromFloat<T>(0.0f);
    }
  }
}

}  // namespace tarn::cuda::delta
