// torch.ops.tarn.short_convolution: schema, shapes, autograd.
#include "torch_ops/convolution/convolution.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/tensors.h"
#include "torch_ops/convolution/call.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace convolution {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Call = ConvolutionCall;
using Results = ConvolutionResults;
using Signature = Results(const at::Tensor&, const at::Tensor&,
                          const OptionalTensor&, c10::string_view,
                          const OptionalTensor&, const OptionalTensor&,
                          const OptionalTensor&, bool);
using BackwardSignature = Gradients(
    const at::Tensor&, const at::Tensor&, const OptionalTensor&,
    c10::string_view, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&);

Results Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::short_convolution");
  return op.call(in.inputs, in.weights, in.bias, in.activation, in.lengths,
                 in.cu_seqlens, in.initial_state, in.return_state);
}

Results ForwardComposed(const Call& in) {
  return WithTorchErrors([&] { return Composed(in); });
}

Results ForwardCpu(const Call& in) {
  if (!KernelServesAttention(in.inputs)) return ForwardComposed(in);
  return WithTorchErrors([&] {
    Check(in);
    return Compute(in);
  });
}

Results ForwardMeta(const Call& in) {
  return WithTorchErrors([&]() -> Results {
    Check(in);
    const auto options = in.inputs.options().dtype(ComputeType(in.inputs));
    const at::Tensor out =
        at::empty_symint(in.inputs.sym_sizes(), in.inputs.options());
    if (!in.return_state) return {out, at::empty({0}, options)};
    const c10::SymInt count = in.cu_seqlens.has_value()
                                  ? in.cu_seqlens->sym_size(0) - 1
                                  : in.inputs.sym_size(0);
    return {out, at::empty_symint(
                     {count, in.weights.sym_size(1) - 1, in.inputs.sym_size(2)},
                     options)};
  });
}

Gradients BackwardCpu(const Call& in, const OptionalTensor& grad_out,
                      const OptionalTensor& grad_state) {
  return WithTorchErrors([&] {
    Check(in);
    return ComputeGradients(in, UndefinedOr(grad_out), UndefinedOr(grad_state));
  });
}

Gradients BackwardMeta(const Call& in, const OptionalTensor&,
                       const OptionalTensor&) {
  const auto like = [&](const OptionalTensor& x) {
    return x.has_value()
               ? at::empty_symint(x->sym_sizes(), x->options())
               : at::empty({0}, in.inputs.options().dtype(at::kFloat));
  };
  return {like(in.inputs), like(in.weights), like(in.bias),
          like(in.initial_state)};
}

// Arguments that may need a gradient are passed separately, as apply() sees
// only those; `in` holds them again with the rest.
struct ConvolutionFunction
    : public torch::autograd::Function<ConvolutionFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const OptionalTensor&,
                               const OptionalTensor&, const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, state] = Dispatch(in);
    ctx->save_for_backward({in.inputs, in.weights, UndefinedOr(in.bias),
                            UndefinedOr(in.initial_state),
                            UndefinedOr(in.lengths),
                            UndefinedOr(in.cu_seqlens)});
    ctx->saved_data["activation"] = in.activation;
    ctx->saved_data["return_state"] = in.return_state;
    ctx->set_materialize_grads(false);
    if (!in.return_state) ctx->mark_non_differentiable({state});
    return {out, state};
  }

  static Call Saved(AutogradContext* ctx, const variable_list& x,
                    const variable_list& lengths) {
    Call in;
    in.inputs = x[0];
    in.weights = x[1];
    in.bias = NoneOr(x[2]);
    in.initial_state = NoneOr(x[3]);
    in.lengths = NoneOr(lengths[0]);
    in.cu_seqlens = NoneOr(lengths[1]);
    in.activation = ctx->saved_data["activation"].toStringRef();
    in.return_state = ctx->saved_data["return_state"].toBool();
    return in;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const variable_list given(saved.begin(), saved.begin() + 4);
    const variable_list lengths = {saved[4], saved[5]};
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found = ComposedGradients(
          given, {grads[0], grads[1]}, [&](const variable_list& x) {
            const auto [out, state] = Composed(Saved(ctx, x, lengths));
            return variable_list{out, state};
          });
      found.resize(5);
      return found;
    }
    const Call in = Saved(ctx, given, lengths);
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::short_convolution_backward");
    const auto [inputs, weights, bias, state] = op.call(
        in.inputs, in.weights, in.bias, in.activation, in.lengths,
        in.cu_seqlens, in.initial_state, NoneOr(grads[0]), NoneOr(grads[1]));
    return {inputs, weights, in.bias.has_value() ? bias : at::Tensor(),
            in.initial_state.has_value() ? state : at::Tensor(), at::Tensor()};
  }
};

Results ForwardAutograd(const Call& in) {
  if (!KernelServesAttention(in.inputs, in.weights, in.bias,
                             in.initial_state)) {
    return ForwardComposed(in);
  }
  WithTorchErrors([&] { Check(in); });
  if (!WantsGradient(in.inputs, in.weights, in.bias, in.initial_state)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  const variable_list r = ConvolutionFunction::apply(
      in.inputs, in.weights, in.bias, in.initial_state, in);
  return {r[0], r[1]};
}

Call CallOf(const at::Tensor& inputs, const at::Tensor& weights,
            const OptionalTensor& bias, c10::string_view activation,
            const OptionalTensor& lengths, const OptionalTensor& cu_seqlens,
            const OptionalTensor& initial_state, bool return_state) {
  return {inputs,  weights,    bias,          std::string(activation),
          lengths, cu_seqlens, initial_state, return_state};
}

template <Results (*kForward)(const Call&)>
Results Flat(const at::Tensor& inputs, const at::Tensor& weights,
             const OptionalTensor& bias, c10::string_view activation,
             const OptionalTensor& lengths, const OptionalTensor& cu_seqlens,
             const OptionalTensor& initial_state, bool return_state) {
  return kForward(CallOf(inputs, weights, bias, activation, lengths, cu_seqlens,
                         initial_state, return_state));
}

template <Gradients (*kBackward)(const Call&, const OptionalTensor&,
                                 const OptionalTensor&)>
Gradients FlatBackward(const at::Tensor& inputs, const at::Tensor& weights,
                       const OptionalTensor& bias, c10::string_view activation,
                       const OptionalTensor& lengths,
                       const OptionalTensor& cu_seqlens,
                       const OptionalTensor& initial_state,
                       const OptionalTensor& grad_out,
                       const OptionalTensor& grad_state) {
  return kBackward(CallOf(inputs, weights, bias, activation, lengths,
                          cu_seqlens, initial_state, grad_state.has_value()),
                   grad_out, grad_state);
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "short_convolution(Tensor inputs, Tensor weights, Tensor? bias=None, "
      "str activation=\"silu\", Tensor? lengths=None, Tensor? cu_seqlens=None, "
      "Tensor? initial_state=None, bool return_state=False) -> "
      "(Tensor out, Tensor final_state)");
  m.def(
      "short_convolution_backward(Tensor inputs, Tensor weights, Tensor? bias, "
      "str activation, Tensor? lengths, Tensor? cu_seqlens, "
      "Tensor? initial_state, Tensor? grad_out, Tensor? grad_state) -> "
      "(Tensor grad_inputs, Tensor grad_weights, Tensor grad_bias, "
      "Tensor grad_initial_state)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("short_convolution", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("short_convolution_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("short_convolution", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("short_convolution_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("short_convolution", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("short_convolution", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("short_convolution", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("short_convolution_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace convolution

ConvolutionResults ShortConvolution(const ConvolutionCall& call) {
  return convolution::Dispatch(call);
}

}  // namespace tarn::ops
