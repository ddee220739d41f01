// torch.ops.tarn.elementwise_recurrence: schema, shapes, autograd.
#include "torch_ops/elementwise/elementwise.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/elementwise_recurrence/channels.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace elementwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Call = ElementwiseCall;
using Results = ElementwiseResults;
using Gradients = ElementwiseGradients;
using Signature = Results(const at::Tensor&, const at::Tensor&,
                          const OptionalTensor&, const OptionalTensor&,
                          const OptionalTensor&, bool, bool);
using BackwardSignature = Gradients(const at::Tensor&, const at::Tensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&, const at::Tensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&);

Results Dispatch(const Call& in, bool checkpoints) {
  static const auto op = FindOp<Signature>("tarn::elementwise_recurrence");
  return op.call(in.inputs, in.gates, in.lengths, in.cu_seqlens,
                 in.initial_state, in.return_state, checkpoints);
}

Results ForwardComposed(const Call& in, bool) {
  return WithTorchErrors([&] { return ComposedElementwise(in); });
}

Results ForwardCpu(const Call& in, bool checkpoints) {
  if (!KernelServesAttention(in.inputs)) {
    return ForwardComposed(in, checkpoints);
  }
  return WithTorchErrors([&] {
    CheckElementwise(in);
    return ComputeElementwise(in, checkpoints);
  });
}

Results ForwardMeta(const Call& in, bool checkpoints) {
  return WithTorchErrors([&]() -> Results {
    CheckElementwise(in);
    const auto options = in.inputs.options().dtype(ComputeType(in.inputs));
    const auto states = [&](bool wanted, const c10::SymInt& count) {
      if (!wanted) return at::empty({0}, options);
      return at::empty_symint({count, in.inputs.sym_size(2)}, options);
    };
    const c10::SymInt count = in.cu_seqlens.has_value()
                                  ? in.cu_seqlens->sym_size(0) - 1
                                  : in.inputs.sym_size(0);
    const c10::SymInt kept =
        in.inputs.sym_size(0) * (in.inputs.sym_size(1) / kElementwiseGroup);
    return {at::empty_symint(in.inputs.sym_sizes(), in.inputs.options()),
            states(in.return_state, count), states(checkpoints, kept)};
  });
}

Gradients BackwardCpu(const Call& in, const at::Tensor& checkpoints,
                      const OptionalTensor& grad_out,
                      const OptionalTensor& grad_state) {
  return WithTorchErrors([&] {
    CheckElementwise(in);
    return ComputeElementwiseGradients(in, checkpoints, UndefinedOr(grad_out),
                                       UndefinedOr(grad_state));
  });
}

Gradients BackwardMeta(const Call& in, const at::Tensor&, const OptionalTensor&,
                       const OptionalTensor&) {
  const auto like = [&](const OptionalTensor& x) {
    return x.has_value()
               ? at::empty_symint(x->sym_sizes(), x->options())
               : at::empty({0}, in.inputs.options().dtype(at::kFloat));
  };
  return {like(in.inputs), like(in.gates), like(in.initial_state)};
}

// Arguments that may need a gradient are passed separately, as apply() sees
// only those; `in` holds them again with the rest.
struct ElementwiseFunction
    : public torch::autograd::Function<ElementwiseFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const OptionalTensor&,
                               const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, state, checkpoints] = Dispatch(in, /*checkpoints=*/true);
    ctx->save_for_backward({in.inputs, in.gates, UndefinedOr(in.initial_state),
                            UndefinedOr(in.lengths), UndefinedOr(in.cu_seqlens),
                            checkpoints});
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
    Call in;
    in.inputs = saved[0];
    in.gates = saved[1];
    in.initial_state = NoneOr(saved[2]);
    in.lengths = NoneOr(saved[3]);
    in.cu_seqlens = NoneOr(saved[4]);
    in.return_state = ctx->saved_data["return_state"].toBool();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found = ComposedGradients(
          {saved[0], saved[1], saved[2]}, {grads[0], grads[1]},
          [&](const variable_list& x) {
            in.inputs = x[0];
            in.gates = x[1];
            in.initial_state = NoneOr(x[2]);
            const auto [out, state, _] = ComposedElementwise(in);
            return variable_list{out, state};
          });
      found.resize(4);
      return found;
    }
    static const auto op = FindGradientOp<BackwardSignature>(
        "tarn::elementwise_recurrence_backward");
    const auto [inputs, gates, state] =
        op.call(in.inputs, in.gates, in.lengths, in.cu_seqlens,
                in.initial_state, saved[5], NoneOr(grads[0]), NoneOr(grads[1]));
    return {inputs, gates, in.initial_state.has_value() ? state : at::Tensor(),
            at::Tensor()};
  }
};

// No states for the gradient: their number would bind a program to one side of
// a multiple of kElementwiseGroup tokens.
Results Shapes(const Call& in) {
  const auto [out, state, none] = ForwardMeta(in, /*checkpoints=*/false);
  const auto like = [&](const at::Tensor& x) {
    return ShapeOf(x.sym_sizes().vec(), x, x.scalar_type(),
                   {in.inputs, in.gates, in.initial_state});
  };
  return {like(out), in.return_state ? like(state) : state, none};
}

Results ForwardAutograd(const Call& in, bool checkpoints) {
  if (ShapesAlone(in.inputs)) return Shapes(in);
  if (!KernelServesAttention(in.inputs, in.gates, in.initial_state)) {
    return ForwardComposed(in, checkpoints);
  }
  WithTorchErrors([&] { CheckElementwise(in); });
  if (!WantsGradient(in.inputs, in.gates, in.initial_state)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in, checkpoints);
  }
  const variable_list r =
      ElementwiseFunction::apply(in.inputs, in.gates, in.initial_state, in);
  return {r[0], r[1], r[2]};
}

template <Results (*kForward)(const Call&, bool)>
Results Flat(const at::Tensor& inputs, const at::Tensor& gates,
             const OptionalTensor& lengths, const OptionalTensor& cu_seqlens,
             const OptionalTensor& initial_state, bool return_state,
             bool checkpoints) {
  return kForward(
      {inputs, gates, lengths, cu_seqlens, initial_state, return_state},
      checkpoints);
}

template <Gradients (*kBackward)(const Call&, const at::Tensor&,
                                 const OptionalTensor&, const OptionalTensor&)>
Gradients FlatBackward(const at::Tensor& inputs, const at::Tensor& gates,
                       const OptionalTensor& lengths,
                       const OptionalTensor& cu_seqlens,
                       const OptionalTensor& initial_state,
                       const at::Tensor& checkpoints,
                       const OptionalTensor& grad_out,
                       const OptionalTensor& grad_state) {
  return kBackward({inputs, gates, lengths, cu_seqlens, initial_state,
                    grad_state.has_value()},
                   checkpoints, grad_out, grad_state);
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "elementwise_recurrence(Tensor inputs, Tensor gates, "
      "Tensor? lengths=None, Tensor? cu_seqlens=None, "
      "Tensor? initial_state=None, bool return_state=False, "
      "bool checkpoints=False) -> "
      "(Tensor out, Tensor final_state, Tensor saved)");
  m.def(
      "elementwise_recurrence_backward(Tensor inputs, Tensor gates, "
      "Tensor? lengths, Tensor? cu_seqlens, Tensor? initial_state, "
      "Tensor saved, Tensor? grad_out, Tensor? grad_state) -> "
      "(Tensor grad_inputs, Tensor grad_gates, Tensor grad_initial_state)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("elementwise_recurrence", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("elementwise_recurrence_backward",
         TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("elementwise_recurrence", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("elementwise_recurrence_backward",
         TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("elementwise_recurrence", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("elementwise_recurrence", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("elementwise_recurrence", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("elementwise_recurrence_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace elementwise

ElementwiseResults ElementwiseRecurrence(const ElementwiseCall& call) {
  return elementwise::Dispatch(call, /*checkpoints=*/false);
}

}  // namespace tarn::ops
