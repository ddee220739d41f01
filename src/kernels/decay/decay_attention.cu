// Decaying attention on CUDA: passes of kernels/cuda/sweep.h.
#include <algorithm>

#include "core/error.h"
#include "kernels/cuda/gate_gradient.h"
#include "kernels/cuda/step.h"
#include "kernels/cuda/sweep.h"
#include "kernels/cuda/tile.cuh"
#include "kernels/decay/decay_attention_cuda.h"
#include "kernels/recurrence/checks.h"

namespace tarn {
namespace {

using cuda::DeviceRows;
using cuda::GateRows;
using cuda::Sequences;
using cuda::Side;
using cuda::Sums;
using cuda::Sweep;
using cuda::Sweeps;

constexpr RecurrentOp kOp = {"decay_attention", false};

GateRows GatesOf(const RecurrentInputs& in) {
  GateRows gates;
  gates.per_head = in.head_gates;
  if (!in.HasGates()) return gates;
  gates.data = in.gates.data;
  gates.dtype = in.gates.dtype;
  std::copy(in.gates.stride, in.gates.stride + 3, gates.stride);
  return gates;
}

// What is the same in all passes of a call.
struct Passes {
  const RecurrentInputs& in;
  int64_t d_key, d_value, value_heads;
  Sequences cut;
  DeviceRows queries, keys, values;

  explicit Passes(const RecurrentInputs& i)
      : in(i),
        d_key(i.keys.size[3]),
        d_value(i.values.size[3]),
        value_heads(i.values.size[2]) {
    const int64_t blocks = int64_t{cuda::MultiprocessorCount()} *
                           cuda::kSweepBlocksPerMultiprocessor;
    cut = cuda::CutSequences(in.cu_seqlens, in.SequenceCount(),
                             in.queries.size[1], value_heads, blocks);
    queries = cuda::RowsOf(in.queries, value_heads);
    keys = cuda::RowsOf(in.keys, value_heads);
    values = cuda::RowsOf(in.values, value_heads);
  }
  int64_t tokens() const { return in.queries.size[0] * in.queries.size[1]; }
  size_t SlotFloats() const {
    return cut.several ? cuda::SlotFloats(cut, value_heads, d_key, d_value) : 0;
  }
  Sweep Common() const {
    Sweep sweep;
    sweep.sequences = cut;
    sweep.value_heads = static_cast<int>(value_heads);
    sweep.a_side.rows = sweep.b_side.rows = in.queries.size[1];
    sweep.a_side.lengths = sweep.b_side.lengths = in.lengths;
    sweep.gates = GatesOf(in);
    return sweep;
  }
  void Start(const Sweep& sweep, CudaStream stream) const {
    Sweeps one;
    one.at[0] = sweep;
    one.count = 1;
    cuda::Run(one, Sums::kNone, in.queries.dtype, std::max(d_key, d_value),
              stream);
  }
  // The states that `pass` begins its segments with, in the workspace at `at`:
  // of rows c (keys) and b (values). The reverse pass weighs them by `factor`.
  void Collect(Sweep& pass, const DeviceRows& c, const DeviceRows& b,
               float factor, float* at, CudaStream stream) const {
    Sweep collect = Common();
    cuda::PlaceSlots(collect, d_key, d_value, at);
    pass.slots = collect.slots;
    pass.slots.z = nullptr;
    if (!cut.several) return;
    collect.slots.z = nullptr;
    collect.collect = true;
    collect.reverse = pass.reverse;
    collect.of_rows = !pass.reverse;
    collect.factor = factor;
    collect.a = collect.b = b;
    collect.c = c;
    collect.initial = pass.initial;
    Start(collect, stream);
    cuda::Chain(collect, d_key, d_value, stream);
  }
};

void CheckServed(const RecurrentInputs& in) {
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  if (!DecayAttentionCudaServes(d_key, d_value, in.VectorGates(),
                                in.bonus != nullptr)) {
    throw ArgumentError("decay_attention on CUDA",
                        StrCat("K and V of at most ", cuda::kMostSweepWidth,
                               ", no gates per channel and no bonus"),
                        StrCat("K = ", d_key, ", V = ", d_value,
                               in.VectorGates() ? ", gates per channel" : "",
                               in.bonus != nullptr ? ", a bonus" : ""));
  }
}

// The gradient's workspace, in floats.
struct GradientPlan {
  size_t slots, query_parts, key_parts, dots, terms, state;
  explicit GradientPlan(const Passes& p) {
    slots = p.SlotFloats();
    const bool grouped = p.in.keys.size[2] != p.value_heads;
    const auto rows = static_cast<size_t>(p.tokens() * p.value_heads);
    query_parts = key_parts = grouped ? rows * static_cast<size_t>(p.d_key) : 0;
    const bool gated = p.in.HasGates() || p.in.head_gates != nullptr;
    dots = gated ? rows : 0;
    terms = gated ? static_cast<size_t>(p.cut.slots * p.value_heads) : 0;
    // The gradient of the initial state, wanted or not, tells that of gates.
    state = gated && p.in.initial_state != nullptr
                ? static_cast<size_t>(p.in.StateCount() * p.d_key * p.d_value)
                : 0;
  }
  size_t floats() const {
    return 2 * slots + query_parts + key_parts + 3 * dots + terms + state;
  }
};

}  // namespace

bool DecayAttentionCudaServes(int64_t d_key, int64_t d_value, bool vector_gates,
                              bool bonus) {
  return std::max(d_key, d_value) <= cuda::kMostSweepWidth && !vector_gates &&
         !bonus;
}

size_t DecayAttentionCudaWorkspaceBytes(const RecurrentInputs& in, bool) {
  return Passes(in).SlotFloats() * sizeof(float);
}

size_t DecayAttentionCudaGradientBytes(const RecurrentInputs& in, bool) {
  return GradientPlan(Passes(in)).floats() * sizeof(float);
}

void DecayAttentionCudaForward(const RecurrentOptions& options,
                               const RecurrentInputs& in,
                               const RecurrentOutputs& outputs,
                               CudaStream stream, void* workspace) {
  CheckRecurrent(kOp, options, in, outputs.out);
  CheckServed(in);
  const Passes p(in);
  Sweep sweep = p.Common();
  sweep.initial.S = const_cast<float*>(in.initial_state);
  sweep.final.S = outputs.final_state;
  sweep.checkpoints = outputs.checkpoints;
  p.Collect(sweep, p.keys, p.values, 1.0f, static_cast<float*>(workspace),
            stream);
  sweep.a = p.queries;
  sweep.b = p.keys;
  sweep.c = p.values;
  sweep.c_is_value = true;
  sweep.out = cuda::RowsOf(outputs.out, p.value_heads);
  sweep.factor = options.scale;
  p.Start(sweep, stream);
}

void DecayAttentionCudaBackward(const RecurrentOptions& options,
                                const RecurrentInputs& in,
                                const RecurrentGradients& gradients,
                                CudaStream stream, void* workspace) {
  CheckRecurrent(kOp, options, in, gradients.grad_out, "grad_out");
  CheckRecurrentGradients(kOp, in, gradients);
  CheckServed(in);
  const Passes p(in);
  const GradientPlan plan(p);
  float* key_slots = static_cast<float*>(workspace);
  float* query_slots = key_slots + plan.slots;
  float* query_parts = query_slots + plan.slots;
  float* key_parts = query_parts + plan.query_parts;
  float* query_dots = key_parts + plan.key_parts;
  float* key_dots = query_dots + plan.dots;
  float* across = key_dots + plan.dots;
  float* terms = across + plan.dots;
  float* grad_initial_state = gradients.grad_initial_state;
  if (grad_initial_state == nullptr && plan.state != 0) {
    grad_initial_state = terms + plan.terms;
  }
  const DeviceRows grad_out = cuda::RowsOf(gradients.grad_out, p.value_heads);
  Sweep dq = p.Common();
  dq.initial.S = const_cast<float*>(in.initial_state);
  if (gradients.checkpoints != nullptr) {
    dq.starts = gradients.checkpoints;
  } else {
    p.Collect(dq, p.keys, p.values, 1.0f, key_slots, stream);
  }
  dq.a = grad_out;
  dq.b = p.values;
  dq.c = p.keys;
  dq.factor = options.scale;
  Sweep dk = p.Common();
  dk.reverse = true;
  dk.of_rows = false;
  dk.factor = options.scale;
  dk.initial.S = const_cast<float*>(gradients.grad_final_state);
  dk.final.S = grad_initial_state;
  p.Collect(dk, p.queries, grad_out, options.scale, query_slots, stream);
  Sweep dv = dk;
  dk.a = p.values;
  dk.b = grad_out;
  dk.c = p.queries;
  dv.a = p.keys;
  dv.b = p.queries;
  dv.c = grad_out;
  dv.c_is_value = true;
  dv.final.S = nullptr;
  dv.out = cuda::RowsOf(gradients.grad_values, p.value_heads);
  const bool grouped = plan.query_parts != 0;
  const auto write = [&](Sweep& sweep, const TensorView& to, float* parts) {
    sweep.float_out = grouped;
    sweep.out =
        cuda::RowsOf(grouped ? TensorView::Dense(parts, to.size[0], to.size[1],
                                                 p.value_heads, to.size[3])
                             : to,
                     p.value_heads);
  };
  write(dq, gradients.grad_queries, query_parts);
  write(dk, gradients.grad_keys, key_parts);
  const bool gated = in.HasGates() || in.head_gates != nullptr;
  if (gated) {
    dq.beside = p.queries;
    dq.dots = query_dots;
    dk.beside = p.keys;
    dk.dots = key_dots;
  }
  Sweeps all;
  all.count = 3;
  // Adjacent blocks take the same tokens: keys' and values' in one direction.
  all.at[0] = dk;
  all.at[1] = dv;
  all.at[2] = dq;
  cuda::Run(all, Sums::kNone, in.queries.dtype, std::max(p.d_key, p.d_value),
            stream);
  if (grouped) {
    cuda::SumGroups(query_parts, in.queries, gradients.grad_queries,
                    p.value_heads, FeatureMap::kIdentity, stream);
    cuda::SumGroups(key_parts, in.keys, gradients.grad_keys, p.value_heads,
                    FeatureMap::kIdentity, stream);
  }
  if (!gated) return;
  cuda::GateGradient gate;
  gate.sweep = p.Common();
  gate.sweep.starts = gradients.checkpoints;
  gate.queries = p.queries;
  gate.keys = p.keys;
  gate.values = p.values;
  gate.grad_out = grad_out;
  gate.scale = options.scale;
  gate.d_key = p.d_key;
  gate.d_value = p.d_value;
  gate.query_dots = query_dots;
  gate.key_dots = key_dots;
  gate.across = across;
  gate.terms = terms;
  gate.key_slots = key_slots;
  gate.query_slots = query_slots;
  gate.initial_state = in.initial_state;
  gate.grad_initial_state = grad_initial_state;
  gate.grad_gates = gradients.grad_gates;
  gate.grad_head_gates = gradients.grad_head_gates;
  cuda::Run(gate, in.queries.dtype, stream);
}

void DecayAttentionCudaStep(const RecurrentOptions& options,
                            const RecurrentInputs& in,
                            const RecurrentState& state, const TensorView& out,
                            CudaStream stream) {
  CheckRecurrent(kOp, options, in, out);
  CheckRecurrentStep(kOp, in, state);
  CheckServed(in);
  const int64_t value_heads = in.values.size[2];
  cuda::Step step;
  step.batch = in.queries.size[0];
  step.seq_len = in.queries.size[1];
  step.value_heads = static_cast<int>(value_heads);
  step.queries = cuda::RowsOf(in.queries, value_heads);
  step.keys = cuda::RowsOf(in.keys, value_heads);
  step.values = cuda::RowsOf(in.values, value_heads);
  step.out = cuda::RowsOf(out, value_heads);
  step.gates = GatesOf(in);
  step.lengths = in.lengths;
  step.S = state.state;
  step.next_S = state.next;
  step.read_slots = state.read_slots;
  step.write_slots = state.write_slots;
  step.scale = options.scale;
  cuda::Run(step, in.queries.dtype, stream);
}

}  // namespace tarn
