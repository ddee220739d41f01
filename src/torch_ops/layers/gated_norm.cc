// torch.ops.tarn.gated_norm: schema, shapes, autograd.
#include "torch_ops/layers/gated_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace gated_norm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Call = GatedNormCall;
using Signature = at::Tensor(const at::Tensor&, const at::Tensor&,
                             const OptionalTensor&, const OptionalTensor&,
                             double, bool, c10::string_view, bool);
using BackwardSignature = Gradients(const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, const OptionalTensor&,
                                    const OptionalTensor&, double, bool,
                                    c10::string_view, bool);

at::Tensor Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::gated_norm");
  return op.call(in.x, in.weight, in.bias, in.gate, in.eps, in.centred,
                 in.activation, in.gate_first);
}

at::Tensor ForwardComposed(const Call& in) {
  return WithTorchErrors([&] { return Composed(in); });
}

at::Tensor ForwardCpu(const Call& in) {
  if (!KernelServesAttention(in.x)) return ForwardComposed(in);
  return WithTorchErrors([&] {
    Check(in);
    return Compute(in);
  });
}

at::Tensor ForwardMeta(const Call& in) {
  return WithTorchErrors([&] {
    Check(in);
    return at::empty_symint(in.x.sym_sizes(), in.x.options());
  });
}

Gradients BackwardCpu(const at::Tensor& grad_out, const Call& in) {
  return WithTorchErrors([&] {
    Check(in);
    return ComputeGradients(in, grad_out);
  });
}

Gradients BackwardMeta(const at::Tensor&, const Call& in) {
  const auto like = [&](const OptionalTensor& x) {
    return x.has_value() ? at::empty_symint(x->sym_sizes(), x->options())
                         : at::empty({0}, in.x.options().dtype(at::kFloat));
  };
  return {like(in.x), like(in.weight), like(in.bias), like(in.gate)};
}

// Arguments that may need a gradient are passed separately, as apply() sees
// only those; `in` holds them again with the rest.
struct GatedNormFunction : public torch::autograd::Function<GatedNormFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor&,
                            const at::Tensor&, const OptionalTensor&,
                            const OptionalTensor&, const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward(
        {in.x, in.weight, UndefinedOr(in.bias), UndefinedOr(in.gate)});
    ctx->saved_data["eps"] = in.eps;
    ctx->saved_data["centred"] = in.centred;
    ctx->saved_data["activation"] = in.activation;
    ctx->saved_data["gate_first"] = in.gate_first;
    return Dispatch(in);
  }

  static Call Saved(AutogradContext* ctx, const variable_list& x) {
    Call in;
    in.x = x[0];
    in.weight = x[1];
    in.bias = NoneOr(x[2]);
    in.gate = NoneOr(x[3]);
    in.eps = ctx->saved_data["eps"].toDouble();
    in.centred = ctx->saved_data["centred"].toBool();
    in.activation = ctx->saved_data["activation"].toStringRef();
    in.gate_first = ctx->saved_data["gate_first"].toBool();
    return in;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients(saved, grads, [&](const variable_list& x) {
            return variable_list{Composed(Saved(ctx, x))};
          });
      found.resize(5);
      return found;
    }
    const Call in = Saved(ctx, saved);
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::gated_norm_backward");
    const auto [x, weight, bias, gate] =
        op.call(grads[0], in.x, in.weight, in.bias, in.gate, in.eps, in.centred,
                in.activation, in.gate_first);
    return {x, weight, in.bias.has_value() ? bias : at::Tensor(),
            in.gate.has_value() ? gate : at::Tensor(), at::Tensor()};
  }
};

at::Tensor ForwardAutograd(const Call& in) {
  if (!KernelServesAttention(in.x, in.weight, in.bias, in.gate)) {
    return ForwardComposed(in);
  }
  WithTorchErrors([&] { Check(in); });
  if (!WantsGradient(in.x, in.weight, in.bias, in.gate)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  return GatedNormFunction::apply(in.x, in.weight, in.bias, in.gate, in);
}

template <at::Tensor (*kForward)(const Call&)>
at::Tensor Flat(const at::Tensor& x, const at::Tensor& weight,
                const OptionalTensor& bias, const OptionalTensor& gate,
                double eps, bool centred, c10::string_view activation,
                bool gate_first) {
  return kForward({x, weight, bias, gate, eps, centred, std::string(activation),
                   gate_first});
}

template <Gradients (*kBackward)(const at::Tensor&, const Call&)>
Gradients FlatBackward(const at::Tensor& grad_out, const at::Tensor& x,
                       const at::Tensor& weight, const OptionalTensor& bias,
                       const OptionalTensor& gate, double eps, bool centred,
                       c10::string_view activation, bool gate_first) {
  return kBackward(grad_out, {x, weight, bias, gate, eps, centred,
                              std::string(activation), gate_first});
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "gated_norm(Tensor x, Tensor weight, Tensor? bias=None, "
      "Tensor? gate=None, float eps=1e-5, bool centred=False, "
      "str activation=\"silu\", bool gate_first=False) -> Tensor");
  m.def(
      "gated_norm_backward(Tensor grad_out, Tensor x, Tensor weight, "
      "Tensor? bias, Tensor? gate, float eps, bool centred, str activation, "
      "bool gate_first) -> (Tensor grad_x, Tensor grad_weight, "
      "Tensor grad_bias, Tensor grad_gate)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("gated_norm", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("gated_norm_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("gated_norm", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("gated_norm_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("gated_norm", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("gated_norm", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("gated_norm", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("gated_norm_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace gated_norm

at::Tensor GatedNorm(const GatedNormCall& call) {
  return gated_norm::Dispatch(call);
}

}  // namespace tarn::ops
