#include "kernels/cuda/chunk_gates.cuh"
#include "kernels/cuda/gate_gradient.h"
#include "kernels/cuda/segments.cuh"

namespace tarn::cuda {
namespace {

// ---- Sums over pairs of tokens, one block per chunk -----------------------

template <typename T, int D>
struct AcrossMemory {
  static constexpr int kTile = kChunk * Stride<T>(D);
  T queries[kTile], keys[kTile], values[kTile], grad_out[kTile];
  float pairs[kChunk][kChunk + 1];  // dP_ij P_ij, then sums over j
  ChunkVectors vectors;
};

template <typename T, int D>
__global__ void __launch_bounds__(256) AcrossKernel(const GateGradient p) {
  constexpr int kThreads = 256, kStride = Stride<T>(D);
  auto& m = *reinterpret_cast<AcrossMemory<T, D>*>(SharedMemory());
  const Sweep& sweep = p.sweep;
  const int64_t hv = blockIdx.x % static_cast<unsigned>(sweep.value_heads);
  const int64_t chunk = blockIdx.x / static_cast<unsigned>(sweep.value_heads);
  const int64_t per_slot = sweep.sequences.segment / kChunk;
  const Segment at = SegmentAt(sweep.sequences, chunk / per_slot);
  if (!at.exists) return;
  const int64_t t0 = at.begin + chunk % per_slot * kChunk;
  if (t0 >= at.end) return;
  const int64_t tokens = TokensIn(sweep.a_side, sweep.sequences, at);
  const auto keep = [&](int row) { return t0 + row < tokens; };
  const auto copy = [&](T* to, const DeviceRows& rows) {
    CopyTokens<T, D, kThreads>(to, RowsAt<T>(rows, at, static_cast<int>(hv)),
                               t0, keep);
  };
  copy(m.queries, p.queries);
  copy(m.keys, p.keys);
  copy(m.values, p.values);
  copy(m.grad_out, p.grad_out);
  CommitCopies();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const LanePlace lane;
  if (warp == 0) {
    TokenWeights w;
    for (int i = 0; i < 2; ++i) {
      const int64_t t = t0 + 2 * lane.lane + i;
      w.gate[i] =
          t < tokens ? GateAt(sweep.gates, at.batch, at.first + t, hv) : 0.0f;
      w.r[i] = w.x[i] = 0.0f;
    }
    FillVectors(m.vectors, w, true, false, true);
  }
  WaitCopies<0>();
  SyncBlock();
  const int row0 = warp % 4 * 16;
#pragma unroll 1
  for (int n0 = warp / 4 * 32; n0 < warp / 4 * 32 + 32; n0 += 16) {
    if (n0 > row0 + 15) continue;  // keys after the queries
    float scores[2][4], grad[2][4];
    Clear(scores);
    Clear(grad);
    WarpProduct<T, 2, false, true>(scores, m.queries, kStride, row0, m.keys,
                                   kStride, n0, D);
    WarpProduct<T, 2, false, true>(grad, m.grad_out, kStride, row0, m.values,
                                   kStride, n0, D);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int row = row0 + lane.group + e % 4 / 2 * 8;
      const int column = n0 + e / 4 * 8 + lane.pair + e % 2;
      m.pairs[row][column] =
          column < row ? scores[e / 4][e % 4] * grad[e / 4][e % 4] * p.scale *
                             DecayBetween(m.vectors, column, row)
                       : 0.0f;
    }
  }
  SyncBlock();
  const int n = static_cast<int>(threadIdx.x);
  if (n < kChunk) {  // of query n, the keys before each gate
    float sum = 0.0f;
    for (int j = 0; j <= n; ++j) {
      const float pair = m.pairs[n][j];
      m.pairs[n][j] = sum;
      sum += pair;
    }
  }
  SyncBlock();
  if (n < kChunk && t0 + n < at.rows) {
    float sum = 0.0f;
    for (int i = n; i < kChunk; ++i) sum += m.pairs[i][n];
    p.across[(at.batch * sweep.a_side.rows + at.first + t0 + n) *
                 sweep.value_heads +
             hv] = sum;
  }
}

// ---- Sums along time, one block per segment -------------------------------

__device__ void StoreGate(const TensorView& to, int64_t b, int64_t t,
                          int64_t hv, float x) {
  const int64_t at = b * to.stride[0] + t * to.stride[1] + hv * to.stride[2];
  switch (to.dtype) {
    case DType::kBF16:
      static_cast<bfloat16*>(to.data)[at] = FromFloat<bfloat16>(x);
      return;
    case DType::kF16:
      static_cast<half*>(to.data)[at] = FromFloat<half>(x);
      return;
    default:
      static_cast<float*>(to.data)[at] = x;
  }
}

constexpr int kAlongThreads = 256;

__global__ void AlongKernel(const GateGradient p) {
  auto* sums = reinterpret_cast<float*>(SharedMemory());
  const Sweep& sweep = p.sweep;
  const int64_t heads = sweep.value_heads;
  const int64_t hv = blockIdx.x % static_cast<unsigned>(heads);
  const int64_t slot = blockIdx.x / static_cast<unsigned>(heads);
  const Segment at = SegmentAt(sweep.sequences, slot);
  if (!at.exists) {
    if (threadIdx.x == 0) p.terms[slot * heads + hv] = 0.0f;
    return;
  }
  // <S, dS> at the segment's start.
  const float *state = p.key_slots, *grad = p.query_slots;
  int64_t state_at = slot, grad_at = slot - 1;
  if (sweep.starts != nullptr) {
    state = sweep.starts;
    state_at = CheckpointAt(sweep.sequences, at, at.begin);
  }
  if (at.IsFirst()) {
    state = p.initial_state, grad = p.grad_initial_state;
    state_at = grad_at = at.sequence;
  }
  float dot = 0.0f;
  if (state != nullptr && grad != nullptr) {
    const int64_t size = p.d_key * p.d_value;
    const float* x = state + (state_at * heads + hv) * size;
    const float* y = grad + (grad_at * heads + hv) * size;
    for (int64_t i = threadIdx.x; i < size; i += kAlongThreads) {
      dot = FusedMultiplyAdd(x[i], y[i], dot);
    }
  }
  for (int i = 16; i > 0; i /= 2) dot += ShuffleXor(dot, i);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = dot;
  SyncBlock();
  if (threadIdx.x >= 32) return;
  float flow = 0.0f;  // <S, dS> where the next chunk begins
  for (int i = 0; i < kAlongThreads / 32; ++i) flow += sums[i];
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t tokens = TokensIn(sweep.a_side, sweep.sequences, at);
  float all = 0.0f;
  for (int64_t t0 = at.begin; t0 < at.end; t0 += kChunk) {
    float query[2], key[2], gate[2], across[2];
    for (int i = 0; i < 2; ++i) {
      const int64_t t = t0 + 2 * lane + i;
      const bool exists = t < tokens;
      const int64_t index =
          (at.batch * sweep.a_side.rows + at.first + t) * heads + hv;
      query[i] = exists ? p.query_dots[index] : 0.0f;
      key[i] = exists ? p.key_dots[index] : 0.0f;
      across[i] = exists ? p.across[index] : 0.0f;
      gate[i] = exists ? GateAt(sweep.gates, at.batch, at.first + t, hv) : 0.0f;
    }
    float from = query[0] + query[1], before = key[0] + key[1];
    for (int distance = 1; distance < 32; distance *= 2) {
      const float x = ShuffleDown(from, distance);
      const float y = ShuffleUp(before, distance);
      if (lane + distance < 32) from += x;
      if (lane >= distance) before += y;
    }
    const float all_queries = Shuffle(from, 0);
    const float all_keys = Shuffle(before, 31);
    const bool reset =
        Ballot(gate[0] < kResetGate || gate[1] < kResetGate) != 0;
    const float through = reset ? 0.0f : flow - all_queries;
    before -= key[1];  // of keys to 2 lane
    float dg[2] = {across[0] + from + (before - key[0]) + through,
                   across[1] + (from - query[0]) + before + through};
    for (int i = 0; i < 2; ++i) {
      const int64_t t = t0 + 2 * lane + i;
      if (gate[i] < kResetGate || t >= tokens) dg[i] = 0.0f;
      all += dg[i];
      if (p.grad_gates.data != nullptr && t < at.rows) {
        StoreGate(p.grad_gates, at.batch, at.first + t, hv, dg[i]);
      }
    }
    flow = through + all_keys;
  }
  for (int i = 16; i > 0; i /= 2) all += ShuffleXor(all, i);
  if (lane == 0) p.terms[slot * heads + hv] = all;
}

__global__ void HeadKernel(const GateGradient p) {
  const int hv = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (hv >= p.sweep.value_heads) return;
  double sum = 0.0;
  for (int64_t slot = 0; slot < p.sweep.sequences.slots; ++slot) {
    sum += static_cast<double>(p.terms[slot * p.sweep.value_heads + hv]);
  }
  p.grad_head_gates[hv] = static_cast<float>(sum);
}

template <typename T, int D>
void StartAcross(const GateGradient& gate, CudaStream stream) {
  const Sequences& cut = gate.sweep.sequences;
  const int64_t blocks =
      cut.slots * (cut.segment / kChunk) * gate.sweep.value_heads;
  Launch(AcrossKernel<T, D>, static_cast<unsigned>(blocks), 256,
         sizeof(AcrossMemory<T, D>), stream, gate);
}

template <typename T>
void StartAcross(const GateGradient& gate, CudaStream stream) {
  if (gate.d_key <= 64 && gate.d_value <= 64) {
    return StartAcross<T, 64>(gate, stream);
  }
  StartAcross<T, 128>(gate, stream);
}

}  // namespace

void Run(const GateGradient& gate, DType dtype, CudaStream stream) {
  switch (dtype) {
    case DType::kF32:
      StartAcross<float>(gate, stream);
      break;
    case DType::kBF16:
      StartAcross<bfloat16>(gate, stream);
      break;
    case DType::kF16:
      StartAcross<half>(gate, stream);
      break;
  }
  const auto heads = static_cast<unsigned>(gate.sweep.value_heads);
  const auto slots = static_cast<unsigned>(gate.sweep.sequences.slots);
  Launch(AlongKernel, slots * heads, kAlongThreads, 256, stream, gate);
  if (gate.grad_head_gates == nullptr) return;
  Launch(HeadKernel, (heads + 63) / 64, 64, 0, stream, gate);
}

}  // namespace tarn::cuda
