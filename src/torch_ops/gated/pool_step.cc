// torch.ops.tarn.decay_attention_step_ and delta_attention_step_: tokens of
// many sequences on states that are in a pool, in place, as servers keep them.
// Which slot is whose is read where the tensors are, so that a captured CUDA
// graph serves other sequences with the next values of `slots`.
#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <string>

#include "core/error.h"
#include "torch_ops/common/sequences.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/cuda/kernels.h"
#include "torch_ops/gated/call.h"

namespace tarn::ops {
namespace pool_step {
namespace {

using T = at::Tensor;
using Maybe = OptionalTensor;

std::string NameOf(const GatedCall& call) {
  return std::string(call.name()) + "_step_";
}

void Check(const GatedCall& call, const T& states, const Maybe& slots) {
  CheckGated(call);
  const std::string name = NameOf(call);
  const Wants want(name.c_str(), call.queries);
  const c10::SymInt batch = call.queries.sym_size(0);
  want.Device("states", states);
  want.DType("states", states, ComputeType(call.queries));
  if (states.dim() != 4 || !states.is_contiguous()) {
    throw ShapeError(want.Argument("states"),
                     "4 axes [slots, heads, d_key, d_value], contiguous",
                     SizesText(states.sym_sizes()));
  }
  const c10::SymInt count = slots.has_value() ? states.sym_size(0) : batch;
  want.Sizes("states", states,
             {count, call.values.sym_size(2), call.queries.sym_size(3),
              call.values.sym_size(3)});
  if (!slots.has_value()) return;
  want.Lengths("slots", *slots);
  want.Sizes("slots", *slots, {batch});
  if (!HoldsData(*slots)) return;
  const T rows = HostLongs(*slots);
  const int64_t* at = rows.const_data_ptr<int64_t>();
  for (int64_t b = 0; b < rows.size(0); ++b) {
    if (at[b] < states.size(0)) continue;
    throw ArgumentError(StrCat(name, ": slots[", b, "]"),
                        StrCat("below ", states.size(0)), StrCat(at[b]));
  }
}

// By copies of the states: any device and float64.
T Composed(GatedCall call, T& states, const Maybe& slots) {
  call.return_state = true;
  if (!slots.has_value()) {
    call.initial_state = states;
    const auto [out, next, _] = ComposedGated(call);
    states.copy_(next);
    return out;
  }
  const T used = slots->to(at::kLong).clamp_min(0);
  call.initial_state = states.index_select(0, used);
  const auto [out, next, _] = ComposedGated(call);
  const T kept = (*slots >= 0);
  const T rows = kept.nonzero().flatten();
  states.index_copy_(0, used.index_select(0, rows), next.index_select(0, rows));
  return at::where(kept.view({-1, 1, 1, 1}), out, Zero(out));
}

T Run(const GatedCall& call, T& states, const Maybe& slots) {
  return WithTorchErrors([&] {
    Check(call, states, slots);
    if (KernelServesAttention(call.queries) || CudaServes(call)) {
      return ComputeGatedSteps(call, states, slots);
    }
    return Composed(call, states, slots);
  });
}

GatedCall CallOf(GatedKind kind, const T& queries, const T& keys,
                 const T& values, const Maybe& gates, double scale) {
  GatedCall call;
  call.kind = kind;
  call.queries = queries;
  call.keys = keys;
  call.values = values;
  call.gates = gates;
  call.scale = scale;
  return call;
}

T Decay(T& states, const T& queries, const T& keys, const T& values,
        const Maybe& gates, const Maybe& bonus, const Maybe& slots,
        double scale) {
  GatedCall call =
      CallOf(GatedKind::kDecay, queries, keys, values, gates, scale);
  call.bonus = bonus;
  return Run(call, states, slots);
}

T Delta(T& states, const T& queries, const T& keys, const T& values,
        const Maybe& gates, const T& betas, const Maybe& slots, double scale) {
  GatedCall call =
      CallOf(GatedKind::kDelta, queries, keys, values, gates, scale);
  call.betas = betas;
  return Run(call, states, slots);
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "decay_attention_step_(Tensor(a!) states, Tensor queries, Tensor keys, "
      "Tensor values, Tensor? gates=None, Tensor? bonus=None, "
      "Tensor? slots=None, float scale=1.0) -> Tensor");
  m.def(
      "delta_attention_step_(Tensor(a!) states, Tensor queries, Tensor keys, "
      "Tensor values, Tensor? gates, Tensor betas, Tensor? slots=None, "
      "float scale=1.0) -> Tensor");
}
// One registration serves every device: Run decides by the tensors.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("decay_attention_step_", TORCH_FN(Decay));
  m.impl("delta_attention_step_", TORCH_FN(Delta));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  for (const char* op : {"decay_attention_step_", "delta_attention_step_"}) {
    m.impl(op, torch::autograd::autogradNotImplementedFallback());
  }
}

}  // namespace
}  // namespace pool_step
}  // namespace tarn::ops
