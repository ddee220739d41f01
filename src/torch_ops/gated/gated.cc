// torch.ops.tarn.decay_attention and delta_attention: schemas, shapes,
// autograd. Both are one call with betas or with a bonus in the same place.
#include "torch_ops/gated/gated.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/decay/walk.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/gated/call.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace gated {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Signature = GatedResults(const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, const OptionalTensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               double, bool, bool);
using BackwardSignature = GatedGradients(
    const at::Tensor&, const at::Tensor&, const at::Tensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor&, const OptionalTensor&, const at::Tensor&,
    const OptionalTensor&, const OptionalTensor&, double);

template <bool kDelta>
const char* Name() {
  return kDelta ? "tarn::delta_attention" : "tarn::decay_attention";
}

// `extra`: betas of one operator, the bonus of the other.
template <bool kDelta>
GatedCall Call(const at::Tensor& queries, const at::Tensor& keys,
               const at::Tensor& values, const OptionalTensor& gates,
               const OptionalTensor& extra, const OptionalTensor& lengths,
               const OptionalTensor& cu_seqlens,
               const OptionalTensor& initial_state, double scale,
               bool return_state) {
  GatedCall call;
  call.delta = kDelta;
  call.queries = queries;
  call.keys = keys;
  call.values = values;
  call.gates = gates;
  (kDelta ? call.betas : call.bonus) = extra;
  call.lengths = lengths;
  call.cu_seqlens = cu_seqlens;
  call.initial_state = initial_state;
  call.scale = scale;
  call.return_state = return_state;
  return call;
}

const OptionalTensor& Extra(const GatedCall& in) {
  return in.delta ? in.betas : in.bonus;
}

GatedResults Dispatch(const GatedCall& in, bool checkpoints) {
  static const auto decay = FindOp<Signature>(Name<false>());
  static const auto delta = FindOp<Signature>(Name<true>());
  return (in.delta ? delta : decay)
      .call(in.queries, in.keys, in.values, in.gates, Extra(in), in.lengths,
            in.cu_seqlens, in.initial_state, in.scale, in.return_state,
            checkpoints);
}

GatedResults ForwardComposed(const GatedCall& in, bool) {
  return WithTorchErrors([&] { return ComposedGated(in); });
}

GatedResults ForwardCpu(const GatedCall& in, bool checkpoints) {
  if (!KernelServesAttention(in.queries))
    return ForwardComposed(in, checkpoints);
  return WithTorchErrors([&] {
    CheckGated(in);
    return ComputeGated(in, checkpoints);
  });
}

// As many saved states as RecurrentCheckpoints (kernels/decay) counts.
GatedResults ForwardMeta(const GatedCall& in, bool checkpoints) {
  return WithTorchErrors([&]() -> GatedResults {
    CheckGated(in);
    const auto options = in.queries.options().dtype(ComputeType(in.queries));
    const c10::SymInt count = in.cu_seqlens.has_value()
                                  ? in.cu_seqlens->sym_size(0) - 1
                                  : in.queries.sym_size(0);
    const auto states = [&](bool wanted, const c10::SymInt& n) {
      if (!wanted) return at::empty({0}, options);
      return at::empty_symint({n, in.values.sym_size(2), in.keys.sym_size(3),
                               in.values.sym_size(3)},
                              options);
    };
    const c10::SymInt tokens = in.queries.sym_size(1);
    const c10::SymInt kept =
        in.queries.sym_size(0) * (tokens / kRecurrentGroup);
    return {at::empty_symint(in.values.sym_sizes(), in.values.options()),
            states(in.return_state, count), states(checkpoints, kept)};
  });
}

GatedGradients BackwardCpu(const GatedCall& in, const at::Tensor& checkpoints,
                           const OptionalTensor& grad_out,
                           const OptionalTensor& grad_state) {
  return WithTorchErrors([&] {
    CheckGated(in);
    return ComputeGatedGradients(in, checkpoints, UndefinedOr(grad_out),
                                 UndefinedOr(grad_state));
  });
}

GatedGradients BackwardMeta(const GatedCall& in, const at::Tensor&,
                            const OptionalTensor&, const OptionalTensor&) {
  const auto like = [&](const OptionalTensor& x) {
    return x.has_value()
               ? at::empty_symint(x->sym_sizes(), x->options())
               : at::empty({0}, in.queries.options().dtype(at::kFloat));
  };
  return {like(in.queries), like(in.keys),   like(in.values),
          like(in.gates),   like(Extra(in)), like(in.initial_state)};
}

// Arguments that may need a gradient are passed separately, as apply() sees
// only those; `in` holds them again with the rest.
struct GatedFunction : public torch::autograd::Function<GatedFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               const OptionalTensor&, const GatedCall& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, state, checkpoints] = Dispatch(in, /*checkpoints=*/true);
    ctx->save_for_backward(
        {in.queries, in.keys, in.values, UndefinedOr(in.gates),
         UndefinedOr(Extra(in)), UndefinedOr(in.initial_state),
         UndefinedOr(in.lengths), UndefinedOr(in.cu_seqlens), checkpoints});
    ctx->saved_data["delta"] = in.delta;
    ctx->saved_data["scale"] = in.scale;
    ctx->saved_data["return_state"] = in.return_state;
    ctx->set_materialize_grads(false);
    if (in.return_state) {
      ctx->mark_non_differentiable({checkpoints});
    } else {
      ctx->mark_non_differentiable({state, checkpoints});
    }
    return {out, state, checkpoints};
  }

  static GatedCall Saved(AutogradContext* ctx, const variable_list& x,
                         const variable_list& lengths) {
    GatedCall in;
    in.delta = ctx->saved_data["delta"].toBool();
    in.queries = x[0];
    in.keys = x[1];
    in.values = x[2];
    in.gates = NoneOr(x[3]);
    (in.delta ? in.betas : in.bonus) = NoneOr(x[4]);
    in.initial_state = NoneOr(x[5]);
    in.lengths = NoneOr(lengths[0]);
    in.cu_seqlens = NoneOr(lengths[1]);
    in.scale = ctx->saved_data["scale"].toDouble();
    in.return_state = ctx->saved_data["return_state"].toBool();
    return in;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const variable_list given(saved.begin(), saved.begin() + 6);
    const variable_list lengths = {saved[6], saved[7]};
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found = ComposedGradients(
          given, {grads[0], grads[1]}, [&](const variable_list& x) {
            const auto [out, state, _] = ComposedGated(Saved(ctx, x, lengths));
            return variable_list{out, state};
          });
      found.resize(7);
      return found;
    }
    const GatedCall in = Saved(ctx, given, lengths);
    static const auto decay =
        FindGradientOp<BackwardSignature>("tarn::decay_attention_backward");
    static const auto delta =
        FindGradientOp<BackwardSignature>("tarn::delta_attention_backward");
    const auto [q, k, v, gates, extra, state] =
        (in.delta ? delta : decay)
            .call(in.queries, in.keys, in.values, in.gates, Extra(in),
                  in.lengths, in.cu_seqlens, in.initial_state, saved[8],
                  NoneOr(grads[0]), NoneOr(grads[1]), in.scale);
    const auto wanted = [](const OptionalTensor& x,
                           const at::Tensor& gradient) {
      return x.has_value() ? gradient : at::Tensor();
    };
    return {q,
            k,
            v,
            wanted(in.gates, gates),
            wanted(Extra(in), extra),
            wanted(in.initial_state, state),
            at::Tensor()};
  }
};

GatedResults ForwardAutograd(const GatedCall& in, bool checkpoints) {
  if (!KernelServesAttention(in.queries, in.keys, in.values, in.gates,
                             Extra(in), in.initial_state)) {
    return ForwardComposed(in, checkpoints);
  }
  WithTorchErrors([&] { CheckGated(in); });
  if (!WantsGradient(in.queries, in.keys, in.values, in.gates, Extra(in),
                     in.initial_state)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in, checkpoints);
  }
  const variable_list r =
      GatedFunction::apply(in.queries, in.keys, in.values, in.gates, Extra(in),
                           in.initial_state, in);
  return {r[0], r[1], r[2]};
}

template <bool kDelta, GatedResults (*kForward)(const GatedCall&, bool)>
GatedResults Flat(const at::Tensor& queries, const at::Tensor& keys,
                  const at::Tensor& values, const OptionalTensor& gates,
                  const OptionalTensor& extra, const OptionalTensor& lengths,
                  const OptionalTensor& cu_seqlens,
                  const OptionalTensor& initial_state, double scale,
                  bool return_state, bool checkpoints) {
  return kForward(Call<kDelta>(queries, keys, values, gates, extra, lengths,
                               cu_seqlens, initial_state, scale, return_state),
                  checkpoints);
}

template <bool kDelta, GatedGradients (*kBackward)(
                           const GatedCall&, const at::Tensor&,
                           const OptionalTensor&, const OptionalTensor&)>
GatedGradients FlatBackward(
    const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const OptionalTensor& gates, const OptionalTensor& extra,
    const OptionalTensor& lengths, const OptionalTensor& cu_seqlens,
    const OptionalTensor& initial_state, const at::Tensor& checkpoints,
    const OptionalTensor& grad_out, const OptionalTensor& grad_state,
    double scale) {
  return kBackward(
      Call<kDelta>(queries, keys, values, gates, extra, lengths, cu_seqlens,
                   initial_state, scale, grad_state.has_value()),
      checkpoints, grad_out, grad_state);
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "decay_attention(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? gates=None, Tensor? bonus=None, Tensor? lengths=None, "
      "Tensor? cu_seqlens=None, Tensor? initial_state=None, float scale=1.0, "
      "bool return_state=False, bool checkpoints=False) -> "
      "(Tensor out, Tensor final_state, Tensor saved)");
  m.def(
      "delta_attention(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? gates, Tensor? betas, Tensor? lengths=None, "
      "Tensor? cu_seqlens=None, Tensor? initial_state=None, float scale=1.0, "
      "bool return_state=False, bool checkpoints=False) -> "
      "(Tensor out, Tensor final_state, Tensor saved)");
  m.def(
      "decay_attention_backward(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? gates, Tensor? bonus, Tensor? lengths, Tensor? cu_seqlens, "
      "Tensor? initial_state, Tensor saved, Tensor? grad_out, "
      "Tensor? grad_state, float scale) -> (Tensor grad_queries, "
      "Tensor grad_keys, Tensor grad_values, Tensor grad_gates, "
      "Tensor grad_bonus, Tensor grad_initial_state)");
  m.def(
      "delta_attention_backward(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? gates, Tensor? betas, Tensor? lengths, Tensor? cu_seqlens, "
      "Tensor? initial_state, Tensor saved, Tensor? grad_out, "
      "Tensor? grad_state, float scale) -> (Tensor grad_queries, "
      "Tensor grad_keys, Tensor grad_values, Tensor grad_gates, "
      "Tensor grad_betas, Tensor grad_initial_state)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("decay_attention", TORCH_FN((Flat<false, &ForwardCpu>)));
  m.impl("delta_attention", TORCH_FN((Flat<true, &ForwardCpu>)));
  m.impl("decay_attention_backward",
         TORCH_FN((FlatBackward<false, &BackwardCpu>)));
  m.impl("delta_attention_backward",
         TORCH_FN((FlatBackward<true, &BackwardCpu>)));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("decay_attention", TORCH_FN((Flat<false, &ForwardMeta>)));
  m.impl("delta_attention", TORCH_FN((Flat<true, &ForwardMeta>)));
  m.impl("decay_attention_backward",
         TORCH_FN((FlatBackward<false, &BackwardMeta>)));
  m.impl("delta_attention_backward",
         TORCH_FN((FlatBackward<true, &BackwardMeta>)));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("decay_attention", TORCH_FN((Flat<false, &ForwardComposed>)));
  m.impl("delta_attention", TORCH_FN((Flat<true, &ForwardComposed>)));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("decay_attention", TORCH_FN((Flat<false, &ForwardComposed>)));
  m.impl("delta_attention", TORCH_FN((Flat<true, &ForwardComposed>)));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("decay_attention", TORCH_FN((Flat<false, &ForwardAutograd>)));
  m.impl("delta_attention", TORCH_FN((Flat<true, &ForwardAutograd>)));
  m.impl("decay_attention_backward",
         torch::autograd::autogradNotImplementedFallback());
  m.impl("delta_attention_backward",
         torch::autograd::autogradNotImplementedFallback());
}

GatedResult Run(const GatedCall& call) {
  const auto [out, state, _] = Dispatch(call, /*checkpoints=*/false);
  return {out, state};
}

}  // namespace
}  // namespace gated

GatedResult DecayAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, const GatedOptions& o,
                           const OptionalTensor& bonus) {
  return gated::Run(gated::Call<false>(queries, keys, values, o.gates, bonus,
                                       o.lengths, o.cu_seqlens, o.initial_state,
                                       o.scale, o.return_state));
}

GatedResult DeltaAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, const at::Tensor& betas,
                           const GatedOptions& o) {
  return gated::Run(gated::Call<true>(queries, keys, values, o.gates, betas,
                                      o.lengths, o.cu_seqlens, o.initial_state,
                                      o.scale, o.return_state));
}

}  // namespace tarn::ops
