// The gated recurrences for each dispatch key: kernels, shapes alone, composed
// form, autograd. One call, whichever operator it is of.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/recurrence/tasks.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/cuda/kernels.h"
#include "torch_ops/gated/register.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace gated {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The tensors that may need a gradient, in the order of GatedGradients, and
// back.
variable_list Differentiable(const GatedCall& in) {
  return {in.queries,
          in.keys,
          in.values,
          UndefinedOr(in.gates),
          UndefinedOr(in.extra()),
          UndefinedOr(in.initial_state),
          UndefinedOr(in.reads),
          UndefinedOr(in.writes)};
}
constexpr size_t kDifferentiable = 8;

GatedCall With(GatedCall in, const variable_list& x) {
  in.queries = x[0];
  in.keys = x[1];
  in.values = x[2];
  in.gates = NoneOr(x[3]);
  (in.delta() ? in.betas : in.bonus) = NoneOr(x[4]);
  in.initial_state = NoneOr(x[5]);
  in.reads = NoneOr(x[6]);
  in.writes = NoneOr(x[7]);
  return in;
}

// Arguments that may need a gradient are passed separately, as apply() sees
// only those; `in` holds them again with the rest.
struct GatedFunction : public torch::autograd::Function<GatedFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               const OptionalTensor&, const GatedCall& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, state, checkpoints] = CallGated(in, /*checkpoints=*/true);
    variable_list saved = Differentiable(in);
    saved.push_back(UndefinedOr(in.lengths));
    saved.push_back(UndefinedOr(in.cu_seqlens));
    saved.push_back(checkpoints);
    ctx->save_for_backward(saved);
    ctx->saved_data["kind"] = static_cast<int64_t>(in.kind);
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

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const variable_list given(saved.begin(), saved.begin() + kDifferentiable);
    GatedCall rest;
    rest.kind = static_cast<GatedKind>(ctx->saved_data["kind"].toInt());
    rest.lengths = NoneOr(saved[kDifferentiable]);
    rest.cu_seqlens = NoneOr(saved[kDifferentiable + 1]);
    rest.scale = ctx->saved_data["scale"].toDouble();
    rest.return_state = ctx->saved_data["return_state"].toBool();
    variable_list found;
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      found = ComposedGradients(
          given, {grads[0], grads[1]}, [&](const variable_list& x) {
            const auto [out, state, _] = ComposedGated(With(rest, x));
            return variable_list{out, state};
          });
    } else {
      at::AutoDispatchBelowADInplaceOrView guard;
      const GatedGradients g =
          CallGatedBackward(With(rest, given), saved[kDifferentiable + 2],
                            NoneOr(grads[0]), NoneOr(grads[1]));
      found = {g.queries, g.keys,          g.values, g.gates,
               g.extra,   g.initial_state, g.reads,  g.writes};
      for (size_t i = 0; i < kDifferentiable; ++i) {
        if (!given[i].defined()) found[i] = at::Tensor();
      }
    }
    found.resize(kDifferentiable + 1);
    return found;
  }
};

}  // namespace
}  // namespace gated

GatedResults GatedComposed(const GatedCall& in, bool) {
  return WithTorchErrors([&] { return ComposedGated(in); });
}

GatedResults GatedKernels(const GatedCall& in, bool checkpoints) {
  if (!KernelServesAttention(in.queries) && !CudaServes(in)) {
    return GatedComposed(in, checkpoints);
  }
  return WithTorchErrors([&] {
    CheckGated(in);
    return ComputeGated(in, checkpoints);
  });
}

// Results on the meta device, with as many saved states as RecurrentCheckpoints
// (kernels/decay) counts.
GatedResults GatedMeta(const GatedCall& in, bool checkpoints) {
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
    const c10::SymInt kept =
        in.queries.sym_size(0) * (in.queries.sym_size(1) / kRecurrentGroup);
    return {at::empty_symint(in.values.sym_sizes(), in.values.options()),
            states(in.return_state, count), states(checkpoints, kept)};
  });
}

namespace {

// No states for the gradient: their number would bind a program to one side of
// a multiple of kRecurrentGroup tokens.
GatedResults GatedShapes(const GatedCall& in) {
  const auto [out, state, none] = GatedMeta(in, /*checkpoints=*/false);
  const std::vector<OptionalTensor> inputs = {
      in.queries, in.keys,          in.values, in.gates,
      in.extra(), in.initial_state, in.reads,  in.writes};
  const auto tied = [&](const at::Tensor& x) {
    return ShapeOf(x.sym_sizes().vec(), x, x.scalar_type(), inputs);
  };
  return {tied(out), in.return_state ? tied(state) : state, none};
}

}  // namespace

GatedResults GatedAutograd(const GatedCall& in, bool checkpoints) {
  if (ShapesAlone(in.queries)) return GatedShapes(in);
  const bool served = KernelServesAttention(in.queries) || CudaServes(in);
  if (!served ||
      AnyTangent(in.queries, in.keys, in.values, in.gates, in.extra(),
                 in.initial_state, in.reads, in.writes)) {
    return GatedComposed(in, checkpoints);
  }
  WithTorchErrors([&] { CheckGated(in); });
  if (!WantsGradient(in.queries, in.keys, in.values, in.gates, in.extra(),
                     in.initial_state, in.reads, in.writes)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return CallGated(in, checkpoints);
  }
  const auto r = gated::GatedFunction::apply(
      in.queries, in.keys, in.values, in.gates, in.extra(), in.initial_state,
      in.reads, in.writes, in);
  return {r[0], r[1], r[2]};
}

GatedGradients GatedBackwardKernels(const GatedCall& in,
                                    const at::Tensor& checkpoints,
                                    const OptionalTensor& grad_out,
                                    const OptionalTensor& grad_state) {
  return WithTorchErrors([&] {
    CheckGated(in);
    return ComputeGatedGradients(in, checkpoints, UndefinedOr(grad_out),
                                 UndefinedOr(grad_state));
  });
}

GatedGradients GatedBackwardMeta(const GatedCall& in, const at::Tensor&,
                                 const OptionalTensor&, const OptionalTensor&) {
  const auto like = [&](const OptionalTensor& x) {
    return x.has_value()
               ? at::empty_symint(x->sym_sizes(), x->options())
               : at::empty({0}, in.queries.options().dtype(at::kFloat));
  };
  return {like(in.queries), like(in.keys),    like(in.values),
          like(in.gates),   like(in.extra()), like(in.initial_state),
          like(in.reads),   like(in.writes)};
}

}  // namespace tarn::ops
