// What runs between passes, and the choice of a pass's kernel.
#include "kernels/cuda/features.cuh"
#include "kernels/cuda/segments.cuh"
#include "kernels/cuda/sweep.h"
#include "kernels/cuda/sweep_types.h"

namespace tarn::cuda {
namespace {

// Entry `index` of S or z of one sequence and head, slot after slot.
__global__ void ChainKernel(const Sweep sweep, const int64_t d_key,
                            const int64_t state_size, const int64_t per_state) {
  const int64_t block = blockIdx.x / per_state;
  const int64_t hv = block % sweep.value_heads;
  const Segment at = SequenceAt(sweep.sequences, block / sweep.value_heads);
  const int64_t index = blockIdx.x % per_state * blockDim.x + threadIdx.x;
  const bool is_S = index < state_size;
  const int64_t entry = is_S ? index : index - state_size;
  if (entry >= (is_S ? state_size : d_key)) return;
  const int64_t size = is_S ? state_size : d_key;
  float* slots = is_S ? sweep.slots.S : sweep.slots.z;
  if (slots == nullptr) return;
  const float* initial = is_S ? sweep.initial.S : sweep.initial.z;
  const auto place = [&](int64_t state) {
    return (state * sweep.value_heads + hv) * size + entry;
  };
  float x = initial != nullptr ? initial[place(at.sequence)] : 0.0f;
  // The last segment of a causal pass has no state after it. Loads of several
  // slots are under way together.
  constexpr int kAhead = 8;
  const auto slot_of = [&](int64_t i) {
    return at.first_slot + (sweep.reverse ? at.count - 1 - i : i);
  };
  for (int64_t i = 0; i < at.count; i += kAhead) {
    float own[kAhead], decay[kAhead];
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      own[n] = 0.0f, decay[n] = 1.0f;
      if (i + n < at.count - (sweep.causal ? 1 : 0)) {
        own[n] = slots[place(slot_of(i + n))];
        decay[n] = sweep.slot_decay[slot_of(i + n) * sweep.value_heads + hv];
      }
    }
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      if (i + n >= at.count) continue;
      if (sweep.causal) slots[place(slot_of(i + n))] = x;
      x = FusedMultiplyAdd(decay[n], x, own[n]);
    }
  }
  float* final = is_S ? sweep.final.S : sweep.final.z;
  if (!sweep.causal && final != nullptr) final[place(at.sequence)] = x;
}

template <typename T>
__global__ void SumGroupsKernel(const float* parts, const DeviceRows x,
                                const DeviceRows out, const int64_t seq_len,
                                const int64_t heads, const int64_t numbers,
                                const int group, const FeatureMap map) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= numbers) return;
  const int64_t k = index % out.width, row = index / out.width;
  const int64_t h = row % heads, t = row / heads % seq_len;
  const int64_t b = row / heads / seq_len;
  float sum = 0.0f;
  for (int g = 0; g < group; ++g) {
    sum += parts[(row * group + g) * out.width + k];
  }
  const auto place = [&](const DeviceRows& rows) {
    return b * rows.stride[0] + t * rows.stride[1] + h * rows.stride[2] + k;
  };
  if (map != FeatureMap::kIdentity) {
    // Rows of padding, whatever they hold, have a sum of 0.
    const float value = ToFloat(static_cast<const T*>(x.data)[place(x)]);
    sum = sum == 0.0f ? 0.0f : sum * FeatureSlope<T>(map, value);
  }
  static_cast<T*>(out.data)[place(out)] = FromFloat<T>(sum);
}

template <typename T>
void StartSumGroups(const float* parts, const TensorView& x,
                    const TensorView& out, int64_t value_heads, FeatureMap map,
                    CudaStream stream) {
  constexpr int64_t kThreads = 256;
  const int64_t heads = out.size[2];
  const int64_t numbers = out.size[0] * out.size[1] * heads * out.size[3];
  Launch(SumGroupsKernel<T>,
         static_cast<unsigned>((numbers + kThreads - 1) / kThreads), kThreads,
         0, stream, parts, RowsOf(x, heads), RowsOf(out, heads), out.size[1],
         heads, numbers, value_heads / heads, map);
}

}  // namespace

void SumGroups(const float* parts, const TensorView& x, const TensorView& out,
               int64_t value_heads, FeatureMap map, CudaStream stream) {
  switch (out.dtype) {
    case DType::kF32:
      return StartSumGroups<float>(parts, x, out, value_heads, map, stream);
    case DType::kBF16:
      return StartSumGroups<bfloat16>(parts, x, out, value_heads, map, stream);
    case DType::kF16:
      return StartSumGroups<half>(parts, x, out, value_heads, map, stream);
  }
}

void Run(const Sweeps& sweeps, Sums sums, DType dtype, int64_t width,
         CudaStream stream) {
  if (sweeps.at[0].sequences.slots == 0) return;
  switch (dtype) {
    case DType::kF32:
      return RunFloat32(sweeps, sums, width, stream);
    case DType::kBF16:
      return RunBFloat16(sweeps, sums, width, stream);
    case DType::kF16:
      return RunFloat16(sweeps, sums, width, stream);
  }
}

void Chain(const Sweep& sweep, int64_t d_key, int64_t d_value,
           CudaStream stream) {
  constexpr int64_t kThreads = 256;
  const int64_t entries = d_key * d_value + d_key;
  const int64_t per_state = (entries + kThreads - 1) / kThreads;
  const int64_t blocks = sweep.sequences.count * sweep.value_heads * per_state;
  Launch(ChainKernel, static_cast<unsigned>(blocks), kThreads, 0, stream, sweep,
         d_key, d_key * d_value, per_state);
}

}  // namespace tarn::cuda
