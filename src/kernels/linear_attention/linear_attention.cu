// Linear attention on CUDA: passes of kernels/cuda/sweep.h.
#include <algorithm>

#include "core/error.h"
#include "kernels/cuda/step.h"
#include "kernels/cuda/sweep.h"
#include "kernels/cuda/tile.cuh"
#include "kernels/linear_attention/linear_attention_cuda.h"

namespace tarn {
namespace {

using cuda::DeviceRows;
using cuda::Sequences;
using cuda::Side;
using cuda::StatePointers;
using cuda::Sums;
using cuda::Sweep;
using cuda::Sweeps;

struct Shape {
  int64_t batch, queries, keys, heads, value_heads, d_key, d_value, sequences;
  int64_t width;
  explicit Shape(const LinearAttentionInputs& in)
      : batch(in.queries.size[0]),
        queries(in.queries.size[1]),
        keys(in.keys.size[1]),
        heads(in.queries.size[2]),
        value_heads(in.values.size[2]),
        d_key(in.queries.size[3]),
        d_value(in.values.size[3]),
        sequences(in.cu_seqlens != nullptr ? in.sequences : batch),
        width(std::max(d_key, d_value)) {}
  size_t StateFloats() const {
    return static_cast<size_t>(sequences * value_heads *
                               (d_key * d_value + d_key));
  }
};

Sequences Cut(const LinearAttentionInputs& in, int64_t rows) {
  const Shape shape(in);
  const int64_t blocks = int64_t{cuda::MultiprocessorCount()} *
                         cuda::kSweepBlocksPerMultiprocessor;
  return cuda::CutSequences(in.cu_seqlens, shape.sequences, rows,
                            shape.value_heads, blocks);
}

// What is the same in all passes of a call.
struct Passes {
  const LinearAttentionOptions& options;
  const LinearAttentionInputs& in;
  Shape shape;
  Sequences key_cut, query_cut;  // one and the same if causal
  DeviceRows queries, keys, values;
  Side query_side, key_side;

  Passes(const LinearAttentionOptions& o, const LinearAttentionInputs& i)
      : options(o), in(i), shape(i) {
    if (o.causal) {
      key_cut = query_cut = Cut(i, std::max(shape.queries, shape.keys));
    } else {
      key_cut = Cut(i, shape.keys);
      query_cut = Cut(i, shape.queries);
    }
    queries = cuda::RowsOf(in.queries, shape.value_heads);
    keys = cuda::RowsOf(in.keys, shape.value_heads);
    values = cuda::RowsOf(in.values, shape.value_heads);
    query_side.rows = shape.queries;
    key_side.rows = shape.keys;
    key_side.lengths = in.key_lengths;
    key_side.mask = in.key_mask;
  }

  bool normalised() const { return options.denominator != Denominator::kNone; }
  // Whether a pass over these needs the states of slots first.
  bool Collects(const Sequences& cut) const {
    return !options.causal || cut.several;
  }
  Sweep Common(const Sequences& cut) const {
    Sweep sweep;
    sweep.sequences = cut;
    sweep.value_heads = static_cast<int>(shape.value_heads);
    sweep.causal = options.causal;
    return sweep;
  }
  // The states before the segments of a pass over keys and values.
  Sweep CollectKeys() const {
    Sweep sweep = Common(key_cut);
    sweep.collect = true;
    sweep.b = values;
    sweep.c = keys;
    sweep.c_map = options.feature_map;
    sweep.a = values;  // not read
    sweep.b_side = key_side;
    sweep.initial = {const_cast<float*>(in.initial_S),
                     const_cast<float*>(in.initial_z)};
    return sweep;
  }
  void Start(const Sweep& sweep, Sums sums, CudaStream stream) const {
    Sweeps one;
    one.at[0] = sweep;
    one.count = 1;
    cuda::Run(one, sums, in.queries.dtype, shape.width, stream);
  }
  // Collects, chains; returns where passes begin. total: the state after all,
  // without causality.
  void RunCollect(const Sweep& sweep, CudaStream stream) const {
    Start(sweep, Sums::kRows, stream);
    cuda::Chain(sweep, shape.d_key, shape.d_value, stream);
  }
  StatePointers PlaceStates(float* at) const {
    return {at, at + shape.sequences * shape.value_heads * shape.d_key *
                         shape.d_value};
  }
};

size_t SlotFloats(const Passes& p, const Sequences& cut) {
  if (!p.Collects(cut)) return 0;
  return cuda::SlotFloats(cut, p.shape.value_heads, p.shape.d_key,
                          p.shape.d_value) +
         (p.options.causal ? 0 : p.shape.StateFloats());
}

// The gradient's workspace, in floats.
struct GradientPlan {
  size_t weights, key_slots, query_slots, query_parts, key_parts;
  explicit GradientPlan(const Passes& p) {
    const Shape& s = p.shape;
    weights = p.normalised()
                  ? static_cast<size_t>(s.batch * s.queries * s.value_heads)
                  : 0;
    key_slots = SlotFloats(p, p.key_cut);
    query_slots = SlotFloats(p, p.query_cut);
    const bool grouped = s.heads != s.value_heads;
    const int64_t row = s.batch * s.value_heads * s.d_key;
    query_parts = grouped ? static_cast<size_t>(row * s.queries) : 0;
    key_parts = grouped ? static_cast<size_t>(row * s.keys) : 0;
  }
  size_t floats() const {
    return 2 * weights + key_slots + query_slots + query_parts + key_parts;
  }
};

void CheckCuda(const LinearAttentionOptions& options,
               const LinearAttentionInputs& in) {
  if (!LinearAttentionCudaServes(options, in.queries.size[3],
                                 in.values.size[3])) {
    throw ArgumentError(
        "linear_attention on CUDA",
        StrCat("K and V of at most ", cuda::kMostSweepWidth,
               " and, if causal, a causal_offset of 0"),
        StrCat("K = ", in.queries.size[3], ", V = ", in.values.size[3],
               ", causal_offset = ", options.causal_offset));
  }
}

// Weights of the gradient's rows: r = scale / d, and x = -(dO . out) r.
struct RowWeights {
  cuda::DeviceRows out, grad_out;
  const float* denominators;
  float* r;
  float* x;
  int64_t seq_len, value_heads, rows;
  float scale;
  Denominator denominator;
};

constexpr int kRowsOfBlock = 16;

// Half a warp for a row.
template <typename T>
__global__ void RowWeightsKernel(const RowWeights p) {
  using namespace cuda;
  constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
  const int lane = static_cast<int>(threadIdx.x) % 16;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock +
                        static_cast<int>(threadIdx.x) / 16;
  const bool exists = index < p.rows;
  const int64_t hv = index % p.value_heads;
  const int64_t t = index / p.value_heads % p.seq_len;
  const int64_t b = index / p.value_heads / p.seq_len;
  const auto row = [&](const DeviceRows& rows) {
    return static_cast<const T*>(rows.data) + b * rows.stride[0] +
           t * rows.stride[1] + hv * rows.stride[2];
  };
  float dot = 0.0f;
  if (exists && p.out.aligned && p.grad_out.aligned) {
    const T *out = row(p.out), *grad = row(p.grad_out);
    for (int i = kPiece * lane; i < p.out.width; i += 16 * kPiece) {
      const uint4 x = LoadOnce<uint4>(out + i), y = Load<uint4>(grad + i);
      const uint32_t left[4] = {x.x, x.y, x.z, x.w};
      const uint32_t right[4] = {y.x, y.y, y.z, y.w};
      for (int j = 0; j < 4; ++j) {
        if constexpr (sizeof(T) == 4) {
          dot = FusedMultiplyAdd(FloatOf(left[j]), FloatOf(right[j]), dot);
        } else {
          const float2 l = Unpack<T>(left[j]), r = Unpack<T>(right[j]);
          dot = FusedMultiplyAdd(l.x, r.x, dot);
          dot = FusedMultiplyAdd(l.y, r.y, dot);
        }
      }
    }
  } else if (exists) {
    const T *out = row(p.out), *grad = row(p.grad_out);
    for (int i = lane; i < p.out.width; i += 16) {
      dot = FusedMultiplyAdd(ToFloat(out[i]), ToFloat(grad[i]), dot);
    }
  }
  for (int i = 8; i > 0; i /= 2) dot += ShuffleXor(dot, i);
  if (lane != 0 || !exists) return;
  const float d = p.denominators[index];
  const float r =
      d == 0.0f ? 0.0f : p.scale / GradientDivisor(p.denominator, d);
  p.r[index] = r;
  p.x[index] = r == 0.0f ? 0.0f : -dot * r;
}

template <typename T>
void StartRowWeights(const RowWeights& p, CudaStream stream) {
  const int64_t blocks = (p.rows + kRowsOfBlock - 1) / kRowsOfBlock;
  cuda::Launch(RowWeightsKernel<T>, static_cast<unsigned>(blocks),
               16 * kRowsOfBlock, 0, stream, p);
}

void RunRowWeights(const RowWeights& p, DType dtype, CudaStream stream) {
  switch (dtype) {
    case DType::kF32:
      return StartRowWeights<float>(p, stream);
    case DType::kBF16:
      return StartRowWeights<cuda::bfloat16>(p, stream);
    case DType::kF16:
      return StartRowWeights<cuda::half>(p, stream);
  }
}

float Factor(const LinearAttentionOptions& options) {
  return options.denominator == Denominator::kNone ? options.scale : 1.0f;
}
// What numerators are multiplied by before the division.
float DividedScale(const LinearAttentionOptions& options) {
  return options.denominator == Denominator::kCompat ? options.scale : 1.0f;
}

}  // namespace

bool LinearAttentionCudaServes(const LinearAttentionOptions& options,
                               int64_t d_key, int64_t d_value) {
  return IsElementwise(options.feature_map) &&
         options.denominator != Denominator::kSigned &&
         (!options.causal || options.causal_offset == 0) &&
         std::max(d_key, d_value) <= cuda::kMostSweepWidth;
}

size_t LinearAttentionCudaWorkspaceBytes(const LinearAttentionOptions& options,
                                         const LinearAttentionInputs& inputs) {
  const Passes p(options, inputs);
  return SlotFloats(p, p.key_cut) * sizeof(float);
}

size_t LinearAttentionCudaGradientBytes(const LinearAttentionOptions& options,
                                        const LinearAttentionInputs& inputs) {
  return GradientPlan(Passes(options, inputs)).floats() * sizeof(float);
}

void LinearAttentionCudaForward(const LinearAttentionOptions& options,
                                const LinearAttentionInputs& inputs,
                                const LinearAttentionOutputs& outputs,
                                CudaStream stream, void* workspace) {
  CheckLinearAttention(options, inputs, outputs);
  CheckCuda(options, inputs);
  const Passes p(options, inputs);
  const Shape& shape = p.shape;
  Sweep sweep = p.Common(p.query_cut);
  sweep.initial = {const_cast<float*>(inputs.initial_S),
                   const_cast<float*>(inputs.initial_z)};
  sweep.final = {outputs.final_S, outputs.final_z};
  if (p.Collects(p.key_cut)) {
    Sweep collect = p.CollectKeys();
    float* rest = cuda::PlaceSlots(collect, shape.d_key, shape.d_value,
                                   static_cast<float*>(workspace));
    if (!options.causal) {
      collect.final = p.PlaceStates(rest);
      if (outputs.final_S != nullptr) collect.final.S = outputs.final_S;
      if (outputs.final_z != nullptr) collect.final.z = outputs.final_z;
      sweep.initial = collect.final;
    }
    p.RunCollect(collect, stream);
    sweep.slots = collect.slots;
  }
  sweep.a = p.queries;
  sweep.b = p.keys;
  sweep.c = p.values;
  sweep.c_is_value = true;
  sweep.a_map = sweep.b_map = options.feature_map;
  sweep.out = cuda::RowsOf(outputs.out, shape.value_heads);
  sweep.a_side = p.query_side;
  sweep.b_side = p.key_side;
  sweep.denominator = options.denominator;
  sweep.scale =
      options.denominator == Denominator::kExact ? 1.0f : options.scale;
  sweep.eps = options.eps;
  sweep.denominators = outputs.denominators;
  p.Start(sweep, Sums::kDenominators, stream);
}

void LinearAttentionCudaBackward(const LinearAttentionOptions& options,
                                 const LinearAttentionInputs& inputs,
                                 const LinearAttentionGradients& gradients,
                                 CudaStream stream, void* workspace) {
  CheckLinearAttention(options, inputs, {gradients.grad_out});
  CheckCuda(options, inputs);
  const Passes p(options, inputs);
  const Shape& shape = p.shape;
  const GradientPlan plan(p);
  float* r = static_cast<float*>(workspace);
  float* x = r + plan.weights;
  float* key_slots = x + plan.weights;
  float* query_slots = key_slots + plan.key_slots;
  float* query_parts = query_slots + plan.query_slots;
  float* key_parts = query_parts + plan.query_parts;
  const DeviceRows grad_out =
      cuda::RowsOf(gradients.grad_out, shape.value_heads);
  const DType dtype = inputs.queries.dtype;
  if (p.normalised()) {
    RunRowWeights(
        {cuda::RowsOf(gradients.out, shape.value_heads), grad_out,
         gradients.denominators, r, x, shape.queries, shape.value_heads,
         shape.batch * shape.queries * shape.value_heads, DividedScale(options),
         options.denominator},
        dtype, stream);
  } else {
    r = x = nullptr;
  }
  const auto weigh = [&](Sweep& sweep, bool of_rows, bool extra) {
    sweep.r = r;
    sweep.x = extra ? x : nullptr;
    sweep.factor = Factor(options);
    sweep.of_rows = of_rows;
  };
  Sweep dq = p.Common(p.query_cut);
  dq.initial = {const_cast<float*>(inputs.initial_S),
                const_cast<float*>(inputs.initial_z)};
  if (p.Collects(p.key_cut)) {
    Sweep collect = p.CollectKeys();
    float* rest =
        cuda::PlaceSlots(collect, shape.d_key, shape.d_value, key_slots);
    if (!options.causal) dq.initial = collect.final = p.PlaceStates(rest);
    p.RunCollect(collect, stream);
    dq.slots = collect.slots;
  }
  dq.a = grad_out;
  dq.b = p.values;
  dq.c = p.keys;
  dq.c_map = options.feature_map;
  dq.a_side = p.query_side;
  dq.b_side = p.key_side;
  weigh(dq, /*of_rows=*/true, /*extra=*/true);

  Sweep dk = p.Common(p.key_cut);
  dk.reverse = true;
  dk.initial = {const_cast<float*>(gradients.grad_final_S),
                const_cast<float*>(gradients.grad_final_z)};
  dk.final = {gradients.grad_initial_S, gradients.grad_initial_z};
  if (p.Collects(p.query_cut)) {
    Sweep collect = p.Common(p.query_cut);
    collect.collect = collect.reverse = true;
    collect.b = collect.a = grad_out;
    collect.c = p.queries;
    collect.c_map = options.feature_map;
    collect.b_side = p.query_side;
    collect.initial = dk.initial;
    weigh(collect, /*of_rows=*/false, /*extra=*/true);
    float* rest =
        cuda::PlaceSlots(collect, shape.d_key, shape.d_value, query_slots);
    if (!options.causal) {
      collect.final = p.PlaceStates(rest);
      if (dk.final.S != nullptr) collect.final.S = dk.final.S;
      if (dk.final.z != nullptr) collect.final.z = dk.final.z;
      dk.initial = collect.final;
    }
    p.RunCollect(collect, stream);
    dk.slots = collect.slots;
  }
  Sweep dv = dk;
  dk.a = p.values;
  dk.b = grad_out;
  dk.c = p.queries;
  dk.c_map = options.feature_map;
  dk.a_side = p.key_side;
  dk.b_side = p.query_side;
  weigh(dk, /*of_rows=*/false, /*extra=*/true);
  dv.a = p.keys;
  dv.b = p.queries;
  dv.c = grad_out;
  dv.a_map = dv.b_map = options.feature_map;
  dv.c_is_value = true;
  dv.a_side = p.key_side;
  dv.b_side = p.query_side;
  dv.initial.z = nullptr;
  dv.slots.z = nullptr;
  dv.final = {};
  dv.out = cuda::RowsOf(gradients.grad_values, shape.value_heads);
  weigh(dv, /*of_rows=*/false, /*extra=*/false);

  const auto write = [&](Sweep& sweep, const TensorView& to,
                         const TensorView& from, float* parts) {
    if (parts != nullptr) {
      sweep.float_out = true;
      sweep.out = cuda::RowsOf(TensorView::Dense(parts, to.size[0], to.size[1],
                                                 shape.value_heads, to.size[3]),
                               shape.value_heads);
      return;
    }
    sweep.out = cuda::RowsOf(to, shape.value_heads);
    sweep.beside = cuda::RowsOf(from, shape.value_heads);
    sweep.beside_map = options.feature_map;
  };
  const bool grouped = shape.heads != shape.value_heads;
  write(dq, gradients.grad_queries, inputs.queries,
        grouped ? query_parts : nullptr);
  write(dk, gradients.grad_keys, inputs.keys, grouped ? key_parts : nullptr);
  Sweeps all;
  all.count = 3;
  // Adjacent blocks take the same tokens: keys' and values' in one direction.
  all.at[0] = dk;
  all.at[1] = dv;
  all.at[2] = dq;
  constexpr Sums kSums = Sums::kRows;
  if (p.key_cut.slots == p.query_cut.slots &&
      p.key_cut.segment == p.query_cut.segment) {
    cuda::Run(all, kSums, dtype, shape.width, stream);
  } else {
    p.Start(dk, kSums, stream);
    p.Start(dv, kSums, stream);
    p.Start(dq, kSums, stream);
  }
  if (!grouped) return;
  cuda::SumGroups(query_parts, inputs.queries, gradients.grad_queries,
                  shape.value_heads, options.feature_map, stream);
  cuda::SumGroups(key_parts, inputs.keys, gradients.grad_keys,
                  shape.value_heads, options.feature_map, stream);
}

void LinearAttentionCudaStep(const LinearAttentionOptions& options,
                             const TensorView& queries, const TensorView& keys,
                             const TensorView& values,
                             const LinearAttentionState& state,
                             const TensorView& out, CudaStream stream) {
  LinearAttentionInputs in;
  in.queries = queries;
  in.keys = keys;
  in.values = values;
  in.on_device = true;
  CheckLinearAttention(options, in, {out});
  CheckCuda(options, in);
  const int64_t value_heads = values.size[2];
  cuda::Step step;
  step.batch = queries.size[0];
  step.seq_len = queries.size[1];
  step.value_heads = static_cast<int>(value_heads);
  step.queries = cuda::RowsOf(queries, value_heads);
  step.keys = cuda::RowsOf(keys, value_heads);
  step.values = cuda::RowsOf(values, value_heads);
  step.out = cuda::RowsOf(out, value_heads);
  step.map = options.feature_map;
  step.S = state.S;
  step.z = state.z;
  step.next_S = state.next_S;
  step.next_z = state.next_z;
  step.denominator = options.denominator;
  step.scale =
      options.denominator == Denominator::kExact ? 1.0f : options.scale;
  step.eps = options.eps;
  cuda::Run(step, queries.dtype, stream);
}

}  // namespace tarn
