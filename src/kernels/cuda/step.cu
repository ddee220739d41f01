// A block has one sequence and value head: its threads share each row of the
// state, four columns to a thread, and rows in turn; sums over rows meet in
// shared memory. The state of one thread stays in registers over all tokens.
#include <cmath>

#include "kernels/cuda/chunk_gates.cuh"
#include "kernels/cuda/features.cuh"
#include "kernels/cuda/step.h"

namespace tarn::cuda {
namespace {

constexpr int kMostWidth = 128;

template <int kColumns>
struct StepMemory {
  float query[kMostWidth], key[kMostWidth], value[kMostWidth];
  float sums[256 / (kColumns / 4)][kColumns];
  float divisor[8];
};

// Threads: kThreads, of which kColumns / 4 side by side have a row.
template <typename T, int kColumns, int kThreads>
__global__ void __launch_bounds__(kThreads) StepKernel(const Step p) {
  constexpr int kAcross = kColumns / 4, kDown = kThreads / kAcross;
  constexpr int kRows = kMostWidth / kDown;  // of a thread
  auto& m = *reinterpret_cast<StepMemory<kColumns>*>(SharedMemory());
  const int thread = static_cast<int>(threadIdx.x);
  const int down = thread / kAcross, column = thread % kAcross * 4;
  const int64_t b = blockIdx.x / static_cast<unsigned>(p.value_heads);
  const int hv =
      static_cast<int>(blockIdx.x % static_cast<unsigned>(p.value_heads));
  const int d_key = p.keys.width, d_value = p.values.width;
  const int64_t from = p.read_slots != nullptr ? p.read_slots[b] : b;
  const int64_t to = p.write_slots != nullptr ? p.write_slots[b] : b;
  int64_t tokens = p.lengths != nullptr ? p.lengths[b] : p.seq_len;
  if (tokens > p.seq_len) tokens = p.seq_len;
  const bool skipped = from < 0 || to < 0;
  const auto row = [&](const DeviceRows& rows, int64_t t) {
    return static_cast<T*>(rows.data) + b * rows.stride[0] +
           t * rows.stride[1] + hv / rows.group * rows.stride[2];
  };
  for (int64_t t = skipped ? 0 : tokens; t < p.seq_len; ++t) {
    if (thread < d_value) row(p.out, t)[thread] = FromFloat<T>(0.0f);
  }
  if (skipped) return;
  const bool whole = d_value % 4 == 0;  // rows of 16-byte pieces
  const auto index = [&](int64_t state, int k) {
    return ((state * p.value_heads + hv) * d_key + k) * d_value + column;
  };
  float s[kRows][4];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int k = down + i * kDown;
    for (int j = 0; j < 4; ++j) s[i][j] = 0.0f;
    if (k >= d_key || column >= d_value) continue;
    const float* at = p.S + index(from, k);
    if (whole) {
      const float4 x = Load<float4>(at);
      s[i][0] = x.x, s[i][1] = x.y, s[i][2] = x.z, s[i][3] = x.w;
    } else {
      for (int j = 0; j < 4 && column + j < d_value; ++j) s[i][j] = at[j];
    }
  }
  const int64_t z_at = (from * p.value_heads + hv) * d_key + thread;
  float z = p.z != nullptr && thread < d_key ? p.z[z_at] : 0.0f;
  for (int64_t t = 0; t < tokens; ++t) {
    float key = 0.0f, query = 0.0f;
    if (thread < kMostWidth) {
      if (thread < d_key) {
        key = Feature<T>(p.map, ToFloat(row(p.keys, t)[thread]));
        query = Feature<T>(p.map, ToFloat(row(p.queries, t)[thread]));
      }
      m.key[thread] = key;
      m.query[thread] = query;
      m.value[thread] =
          thread < d_value ? ToFloat(row(p.values, t)[thread]) : 0.0f;
    }
    if (p.z != nullptr) {  // a.z of this warp's rows
      z += key;
      float d = query * z;
      for (int i = 16; i > 0; i /= 2) d += ShuffleXor(d, i);
      if (thread % 32 == 0) m.divisor[thread / 32] = d;
    }
    SyncBlock();
    float decay = 1.0f;
    if (p.gates.Any()) {
      const float g = GateAt(p.gates, b, t, hv);
      decay = g < kResetGate ? 0.0f : expf(g);
    }
    const float4 v = Load<float4>(m.value + column);
    const float value[4] = {v.x, v.y, v.z, v.w};
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float k = m.key[down + i * kDown], q = m.query[down + i * kDown];
      for (int j = 0; j < 4; ++j) {
        s[i][j] = FusedMultiplyAdd(k, value[j], s[i][j] * decay);
        sum[j] = FusedMultiplyAdd(q, s[i][j], sum[j]);
      }
    }
    Store(&m.sums[down][column], make_float4(sum[0], sum[1], sum[2], sum[3]));
    SyncBlock();
    if (thread < d_value) {
      float out = 0.0f;
      for (int i = 0; i < kDown; ++i) out += m.sums[i][thread];
      float d = 1.0f;
      if (p.denominator != Denominator::kNone) {
        float all = 0.0f;
        for (int i = 0; i < kThreads / 32; ++i) all += m.divisor[i];
        d = p.denominator == Denominator::kExact
                ? ExactDenominator(all)
                : FusedMultiplyAdd(p.scale, all, p.eps);
      }
      row(p.out, t)[thread] =
          FromFloat<T>(d == 0.0f ? 0.0f : out * (p.scale / d));
    }
    SyncBlock();
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int k = down + i * kDown;
    if (k >= d_key || column >= d_value) continue;
    float* at = p.next_S + index(to, k);
    if (whole) {
      Store(at, make_float4(s[i][0], s[i][1], s[i][2], s[i][3]));
    } else {
      for (int j = 0; j < 4 && column + j < d_value; ++j) at[j] = s[i][j];
    }
  }
  if (p.z != nullptr && thread < d_key) {
    p.next_z[(to * p.value_heads + hv) * d_key + thread] = z;
  }
}

template <typename T>
void StartOf(const Step& p, CudaStream stream) {
  const auto blocks = static_cast<unsigned>(p.batch * p.value_heads);
  if (p.values.width <= 64) {
    return Launch(StepKernel<T, 64, 256>, blocks, 256, sizeof(StepMemory<64>),
                  stream, p);
  }
  Launch(StepKernel<T, 128, 256>, blocks, 256, sizeof(StepMemory<128>), stream,
         p);
}

}  // namespace

void Run(const Step& step, DType dtype, CudaStream stream) {
  switch (dtype) {
    case DType::kF32:
      return StartOf<float>(step, stream);
    case DType::kBF16:
      return StartOf<bfloat16>(step, stream);
    case DType::kF16:
      return StartOf<half>(step, stream);
  }
}

}  // namespace tarn::cuda
