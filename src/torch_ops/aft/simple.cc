// torch.ops.tarn.aft_simple: schema, checks, shapes and autograd. What it
// computes is in simple_compute.cc.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/aft/aft.h"
#include "torch_ops/aft/simple_compute.h"
#include "torch_ops/sparse/call.h"

namespace tarn::ops {
namespace aft_simple {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Call = AftSimpleCall;
using Results = AftSimpleResults;
using Gradients = AftSimpleGradientResults;
using StateGradients = AftSimpleResultGradients;
using Signature = Results(const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&, bool,
                          c10::SymInt);
using BackwardSignature = Gradients(
    const at::Tensor&, const at::Tensor&, const at::Tensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, bool,
    c10::SymInt);

constexpr char kOp[] = "aft_simple";

void Check(const Call& in) {
  CheckOperands(kOp, in.queries, in.keys, in.values);
  if (in.queries.sym_size(3) != in.values.sym_size(3)) {
    throw ShapeError(
        StrCat(kOp, ": values"),
        StrCat("the width of queries and keys, ", in.queries.sym_size(3)),
        StrCat(in.values.sym_size(3)));
  }
  AttentionMasks masks;
  masks.key_mask = in.key_mask;
  masks.key_lengths = in.key_lengths;
  CheckAttentionMasks(kOp, masks, in.queries, in.keys);
  if (in.m.has_value() != in.a.has_value() ||
      in.m.has_value() != in.b.has_value()) {
    throw ArgumentError(StrCat(kOp, ": initial_m, initial_a, initial_b"),
                        "all three or none", "some");
  }
  if (!in.m.has_value()) return;
  const std::pair<const char*, const at::Tensor*> parts[] = {
      {"initial_m", &*in.m}, {"initial_a", &*in.a}, {"initial_b", &*in.b}};
  for (const auto& [name, part] : parts) {
    if (part->scalar_type() != ComputeType(in.queries)) {
      throw DTypeError(StrCat(kOp, ": ", name),
                       c10::toString(ComputeType(in.queries)),
                       c10::toString(part->scalar_type()));
    }
    WantLike(kOp, name, *part, *in.m,
             {in.queries.sym_size(0), in.queries.sym_size(2),
              in.queries.sym_size(3)});
    if (part->device() != in.queries.device()) {
      throw DeviceError(StrCat(kOp, ": ", name), in.queries.device().str(),
                        part->device().str());
    }
  }
}

Results ForwardComposed(const Call& in) {
  return WithTorchErrors([&]() -> Results {
    Check(in);
    return ComposedAftSimple(in);
  });
}

// float64 has a separate scan on the CPU.
Results ForwardCpu(const Call& in) {
  if (!OnKernelDevice(in.queries)) return ForwardComposed(in);
  return WithTorchErrors([&]() -> Results {
    Check(in);
    return ComputeAftSimple(in);
  });
}

Gradients BackwardCpu(const Call& in, const StateGradients& grad) {
  return WithTorchErrors([&]() -> Gradients {
    Check(in);
    return ComputeAftSimpleGradients(in, grad);
  });
}

at::Tensor EmptyState(const Call& in) {
  const at::Tensor& q = in.queries;
  return at::empty_symint({q.sym_size(0), q.sym_size(2), q.sym_size(3)},
                          q.options().dtype(ComputeType(q)));
}

Results ForwardMeta(const Call& in) {
  return WithTorchErrors([&]() -> Results {
    Check(in);
    return {at::empty_symint(in.queries.sym_sizes(), in.queries.options()),
            EmptyState(in), EmptyState(in), EmptyState(in)};
  });
}

Gradients BackwardMeta(const Call& in, const StateGradients&) {
  const auto like = [](const at::Tensor& x) {
    return at::empty_symint(x.sym_sizes(), x.options());
  };
  return {like(in.queries), like(in.keys),  like(in.values),
          EmptyState(in),   EmptyState(in), EmptyState(in)};
}

Results Dispatch(const Call& in) {
  static const auto handle = FindOp<Signature>("tarn::aft_simple");
  return handle.call(in.queries, in.keys, in.values, in.key_mask,
                     in.key_lengths, in.m, in.a, in.b, in.causal,
                     in.causal_offset);
}

// Arguments that may need a gradient are passed separately, as apply() sees
// only those; `in` holds them again with the rest.
struct AftSimpleFunction : public torch::autograd::Function<AftSimpleFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               const OptionalTensor&, const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({in.queries, in.keys, in.values,
                            UndefinedOr(in.key_mask),
                            UndefinedOr(in.key_lengths), UndefinedOr(in.m),
                            UndefinedOr(in.a), UndefinedOr(in.b)});
    ctx->saved_data["causal"] = in.causal;
    ctx->saved_data["causal_offset"] = in.causal_offset;
    ctx->set_materialize_grads(false);
    const auto [out, m, a, b] = Dispatch(in);
    return {out, m, a, b};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found = ComposedGradients(
          {saved[0], saved[1], saved[2], saved[5], saved[6], saved[7]}, grads,
          [&](const variable_list& x) {
            const auto [out, m, a, b] = ComposedAftSimple(
                {x[0], x[1], x[2], NoneOr(saved[3]), NoneOr(saved[4]),
                 NoneOr(x[3]), NoneOr(x[4]), NoneOr(x[5]),
                 ctx->saved_data["causal"].toBool(),
                 ctx->saved_data["causal_offset"].toSymInt()});
            return variable_list{out, m, a, b};
          });
      found.resize(7);
      return found;
    }
    static const auto handle =
        FindGradientOp<BackwardSignature>("tarn::aft_simple_backward");
    const auto [q, k, v, m, a, b] = handle.call(
        saved[0], saved[1], saved[2], NoneOr(saved[3]), NoneOr(saved[4]),
        NoneOr(saved[5]), NoneOr(saved[6]), NoneOr(saved[7]), NoneOr(grads[0]),
        NoneOr(grads[1]), NoneOr(grads[2]), NoneOr(grads[3]),
        ctx->saved_data["causal"].toBool(),
        ctx->saved_data["causal_offset"].toSymInt());
    const at::Tensor none;
    const bool state = saved[5].defined();
    return {q,   k, v, state ? m : none, state ? a : none, state ? b : none,
            none};
  }
};

Results ForwardAutograd(const Call& in) {
  if (!OnKernelDevice(in.queries, in.keys, in.values, in.m, in.a, in.b))
    return ForwardComposed(in);
  WithTorchErrors([&] { Check(in); });
  if (!WantsGradient(in.queries, in.keys, in.values, in.m, in.a, in.b)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  const variable_list r = AftSimpleFunction::apply(
      in.queries, in.keys, in.values, in.m, in.a, in.b, in);
  return {r[0], r[1], r[2], r[3]};
}

template <Results (*kForward)(const Call&)>
Results Flat(const at::Tensor& queries, const at::Tensor& keys,
             const at::Tensor& values, const OptionalTensor& key_mask,
             const OptionalTensor& key_lengths, const OptionalTensor& m,
             const OptionalTensor& a, const OptionalTensor& b, bool causal,
             c10::SymInt causal_offset) {
  return kForward({queries, keys, values, key_mask, key_lengths, m, a, b,
                   causal, std::move(causal_offset)});
}

template <Gradients (*kBackward)(const Call&, const StateGradients&)>
Gradients FlatBackward(const at::Tensor& queries, const at::Tensor& keys,
                       const at::Tensor& values, const OptionalTensor& key_mask,
                       const OptionalTensor& key_lengths,
                       const OptionalTensor& m, const OptionalTensor& a,
                       const OptionalTensor& b, const OptionalTensor& grad_out,
                       const OptionalTensor& grad_m,
                       const OptionalTensor& grad_a,
                       const OptionalTensor& grad_b, bool causal,
                       c10::SymInt causal_offset) {
  return kBackward({queries, keys, values, key_mask, key_lengths, m, a, b,
                    causal, std::move(causal_offset)},
                   {UndefinedOr(grad_out), UndefinedOr(grad_m),
                    UndefinedOr(grad_a), UndefinedOr(grad_b)});
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "aft_simple(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? key_mask=None, Tensor? key_lengths=None, "
      "Tensor? initial_m=None, Tensor? initial_a=None, "
      "Tensor? initial_b=None, bool causal=False, SymInt causal_offset=0) -> "
      "(Tensor out, Tensor m, Tensor a, Tensor b)");
  m.def(
      "aft_simple_backward(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? key_mask, Tensor? key_lengths, Tensor? initial_m, "
      "Tensor? initial_a, Tensor? initial_b, Tensor? grad_out, "
      "Tensor? grad_m, Tensor? grad_a, Tensor? grad_b, bool causal, "
      "SymInt causal_offset) -> (Tensor grad_queries, Tensor grad_keys, "
      "Tensor grad_values, Tensor grad_initial_m, Tensor grad_initial_a, "
      "Tensor grad_initial_b)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("aft_simple", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("aft_simple_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("aft_simple", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("aft_simple_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("aft_simple", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("aft_simple", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("aft_simple", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("aft_simple_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace aft_simple

AftSimpleResult AftSimple(const at::Tensor& queries, const at::Tensor& keys,
                          const at::Tensor& values,
                          const AftSimpleOptions& options) {
  aft_simple::Call in{
      queries, keys, values, options.key_mask, options.key_lengths,
      {},      {},   {},     options.causal,   options.causal_offset};
  if (options.initial_state.has_value()) {
    in.m = options.initial_state->m;
    in.a = options.initial_state->a;
    in.b = options.initial_state->b;
  }
  const auto [out, m, a, b] = aft_simple::Dispatch(in);
  return {out, {m, a, b}};
}

}  // namespace tarn::ops
