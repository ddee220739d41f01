// torch.ops.tarn.feed_forward: drop(act(x weight1^T + bias1)) weight2^T. Bias,
// activation and dropout are one pass over the hidden rows, and so is their
// gradient, bias included; no mask is stored.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/bias_activation/bias_activation.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace feed_forward {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// out, hidden [rows, F] and, for gelu, x weight1^T [rows, F]; [0] for relu.
using Outputs = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
// Gradients of x, weight1, bias1, weight2.
using Gradients4 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Signature = Outputs(const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const at::Tensor&,
                          c10::string_view, double, const OptionalTensor&);
using BackwardSignature = Gradients4(const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, c10::string_view,
                                     double, const OptionalTensor&, bool);

constexpr char kOp[] = "feed_forward";

void Check(const at::Tensor& x, const at::Tensor& weight1,
           const at::Tensor& bias1, const at::Tensor& weight2) {
  if (x.dim() < 1 || weight1.dim() != 2 || weight2.dim() != 2) {
    throw ShapeError(
        StrCat(kOp, ": x, weight1, weight2"), "[..., D], [F, D] and [E, F]",
        StrCat(x.dim(), ", ", weight1.dim(), " and ", weight2.dim(), " axes"));
  }
  const c10::SymInt hidden = weight1.sym_size(0);
  WantLike(kOp, "weight1", weight1, x, {hidden, x.sym_size(-1)});
  WantLike(kOp, "bias1", bias1, x, {hidden});
  WantLike(kOp, "weight2", weight2, x, {weight2.sym_size(0), hidden});
}

BiasActivationOptions PassOptions(c10::string_view activation,
                                  double probability,
                                  const OptionalTensor& seed) {
  const bool relu = ParseActivation(kOp, activation) == Activation::kRelu;
  return {relu ? Nonlinearity::kRelu : Nonlinearity::kGelu,
          KernelDropout(kOp, probability, seed)};
}

Outputs Composed(const at::Tensor& x, const at::Tensor& weight1,
                 const at::Tensor& bias1, const at::Tensor& weight2,
                 c10::string_view activation, double probability,
                 const OptionalTensor& seed) {
  const bool relu = ParseActivation(kOp, activation) == Activation::kRelu;
  const at::Tensor product = at::linear(x, weight1);
  const at::Tensor hidden = ComposedDropout(
      relu ? at::relu(product + bias1) : at::gelu(product + bias1), probability,
      seed);
  return {at::linear(hidden, weight2), hidden.detach(),
          relu ? at::empty({0}, x.options()) : product.detach()};
}

Outputs ForwardComposed(const at::Tensor& x, const at::Tensor& weight1,
                        const at::Tensor& bias1, const at::Tensor& weight2,
                        c10::string_view activation, double probability,
                        const OptionalTensor& seed) {
  return WithTorchErrors([&] {
    Check(x, weight1, bias1, weight2);
    return Composed(x, weight1, bias1, weight2, activation, probability, seed);
  });
}

Outputs ForwardCpu(const at::Tensor& x, const at::Tensor& weight1,
                   const at::Tensor& bias1, const at::Tensor& weight2,
                   c10::string_view activation, double probability,
                   const OptionalTensor& seed) {
  if (!KernelServes(x)) {
    return ForwardComposed(x, weight1, bias1, weight2, activation, probability,
                           seed);
  }
  return WithTorchErrors([&]() -> Outputs {
    Check(x, weight1, bias1, weight2);
    const BiasActivationOptions options =
        PassOptions(activation, probability, seed);
    const at::Tensor rows = AsRows(x), bias = bias1.contiguous();
    const int64_t count = rows.size(0), d_ff = weight1.size(0);
    at::Tensor product = EmptyDense({count, d_ff});
    at::mm_out(product, rows, weight1.t());
    const bool relu = options.activation == Nonlinearity::kRelu;
    at::Tensor hidden = relu ? product : EmptyDense({count, d_ff});
    TorchExecutor executor;
    BiasActivationForward(options, count, d_ff, product.data_ptr<float>(),
                          bias.const_data_ptr<float>(),
                          hidden.data_ptr<float>(), executor);
    at::Tensor out = EmptyDense({count, weight2.size(0)});
    at::mm_out(out, hidden, weight2.t());
    const std::vector<int64_t> shape = WithLast(x, d_ff);
    return {out.view(WithLast(x, weight2.size(0))), hidden.view(shape),
            relu ? at::empty({0}, x.options()) : product.view(shape)};
  });
}

Gradients4 BackwardCpu(const at::Tensor& grad_out, const at::Tensor& x,
                       const at::Tensor& weight1, const at::Tensor& bias1,
                       const at::Tensor& weight2, const at::Tensor& hidden,
                       const at::Tensor& product, c10::string_view activation,
                       double probability, const OptionalTensor& seed,
                       bool want_x) {
  return WithTorchErrors([&]() -> Gradients4 {
    Check(x, weight1, bias1, weight2);
    if (x.scalar_type() != at::kFloat) {
      throw DTypeError("feed_forward_backward: x", "float32",
                       c10::toString(x.scalar_type()));
    }
    const BiasActivationOptions options =
        PassOptions(activation, probability, seed);
    const bool relu = options.activation == Nonlinearity::kRelu;
    WantLike(kOp, "grad_out", grad_out, x, WithLast(x, weight2.sym_size(0)));
    WantLike(kOp, "hidden", hidden, x, WithLast(x, weight1.sym_size(0)));
    if (!relu) WantLike(kOp, "product", product, x, hidden.sym_sizes());
    const at::Tensor rows = AsRows(x), grad = AsRows(grad_out);
    const at::Tensor y = AsRows(hidden);
    const at::Tensor u = relu ? at::Tensor() : AsRows(product);
    const at::Tensor bias = bias1.contiguous();
    const int64_t count = rows.size(0), d_ff = weight1.size(0);

    at::Tensor grad_weight2 = EmptyDense(weight2.sizes());
    at::mm_out(grad_weight2, grad.t(), y);
    at::Tensor grad_hidden = EmptyDense({count, d_ff});
    at::mm_out(grad_hidden, grad, weight2);
    at::Tensor grad_bias1 = EmptyDense({d_ff});
    const at::Tensor workspace =
        EmptyDense({BiasActivationWorkspaceFloats(count, d_ff)});
    BiasActivationGradients g;
    g.grad_y = g.grad_x = grad_hidden.data_ptr<float>();
    g.y = y.const_data_ptr<float>();
    g.x = relu ? nullptr : u.const_data_ptr<float>();
    g.bias = bias.const_data_ptr<float>();
    g.grad_bias = grad_bias1.data_ptr<float>();
    TorchExecutor executor;
    BiasActivationBackward(options, count, d_ff, g, workspace.data_ptr<float>(),
                           executor);
    at::Tensor grad_weight1 = EmptyDense(weight1.sizes());
    at::mm_out(grad_weight1, grad_hidden.t(), rows);
    at::Tensor grad_x = at::empty({0}, x.options());
    if (want_x) {
      grad_x = EmptyDense(rows.sizes());
      at::mm_out(grad_x, grad_hidden, weight1);
      grad_x = grad_x.view(x.sizes());
    }
    return {grad_x, grad_weight1, grad_bias1, grad_weight2};
  });
}

Outputs ForwardMeta(const at::Tensor& x, const at::Tensor& weight1,
                    const at::Tensor& bias1, const at::Tensor& weight2,
                    c10::string_view activation, double,
                    const OptionalTensor&) {
  return WithTorchErrors([&]() -> Outputs {
    Check(x, weight1, bias1, weight2);
    const bool relu = ParseActivation(kOp, activation) == Activation::kRelu;
    const auto empty = [&](const c10::SymInt& last) {
      return at::empty_symint(WithLast(x, last), x.options());
    };
    return {empty(weight2.sym_size(0)), empty(weight1.sym_size(0)),
            relu ? at::empty({0}, x.options()) : empty(weight1.sym_size(0))};
  });
}

Gradients4 BackwardMeta(const at::Tensor&, const at::Tensor& x,
                        const at::Tensor& weight1, const at::Tensor& bias1,
                        const at::Tensor& weight2, const at::Tensor&,
                        const at::Tensor&, c10::string_view, double,
                        const OptionalTensor&, bool want_x) {
  const auto like = [](const at::Tensor& tensor) {
    return at::empty_symint(tensor.sym_sizes(), tensor.options());
  };
  return {want_x ? like(x) : at::empty({0}, x.options()), like(weight1),
          like(bias1), like(weight2)};
}

Outputs Call(const at::Tensor& x, const at::Tensor& weight1,
             const at::Tensor& bias1, const at::Tensor& weight2,
             c10::string_view activation, double probability,
             const OptionalTensor& seed) {
  static const auto handle = FindOp<Signature>("tarn::feed_forward");
  return handle.call(x, weight1, bias1, weight2, activation, probability, seed);
}

struct FeedForwardFunction
    : public torch::autograd::Function<FeedForwardFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const at::Tensor& weight1,
                               const at::Tensor& bias1,
                               const at::Tensor& weight2,
                               const std::string& activation,
                               double probability, const OptionalTensor& seed) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, hidden, product] =
        Call(x, weight1, bias1, weight2, activation, probability, seed);
    ctx->save_for_backward(
        {x, weight1, bias1, weight2, hidden, product, UndefinedOr(seed)});
    ctx->saved_data["activation"] = activation;
    ctx->saved_data["probability"] = probability;
    ctx->mark_non_differentiable({hidden, product});
    // Otherwise every call fills a gradient of zeros as large as hidden rows.
    ctx->set_materialize_grads(false);
    return {out, hidden, product};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    const bool want_x = ctx->needs_input_grad(0);
    if (!grads[0].defined()) return variable_list(7);
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found = ComposedGradients(
          {s[0], s[1], s[2], s[3]}, grads, [&](const variable_list& in) {
            return variable_list{std::get<0>(Composed(
                in[0], in[1], in[2], in[3],
                ctx->saved_data["activation"].toStringRef(),
                ctx->saved_data["probability"].toDouble(), NoneOr(s[6])))};
          });
      found.resize(7);
      return found;
    }
    static const auto handle =
        FindGradientOp<BackwardSignature>("tarn::feed_forward_backward");
    const auto [x, weight1, bias1, weight2] = handle.call(
        grads[0], s[0], s[1], s[2], s[3], s[4], s[5],
        ctx->saved_data["activation"].toStringRef(),
        ctx->saved_data["probability"].toDouble(), NoneOr(s[6]), want_x);
    const at::Tensor none;
    return {want_x ? x : none, weight1, bias1, weight2, none, none, none};
  }
};

Outputs ForwardAutograd(const at::Tensor& x, const at::Tensor& weight1,
                        const at::Tensor& bias1, const at::Tensor& weight2,
                        c10::string_view activation, double probability,
                        const OptionalTensor& seed) {
  if (!KernelServes(x, weight1, bias1, weight2)) {
    return ForwardComposed(x, weight1, bias1, weight2, activation, probability,
                           seed);
  }
  WithTorchErrors([&] { Check(x, weight1, bias1, weight2); });
  if (!WantsGradient(x, weight1, bias1, weight2)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Call(x, weight1, bias1, weight2, activation, probability, seed);
  }
  const variable_list results = FeedForwardFunction::apply(
      x, weight1, bias1, weight2, std::string(activation), probability, seed);
  return {results[0], results[1], results[2]};
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "feed_forward(Tensor x, Tensor weight1, Tensor bias1, Tensor weight2, "
      "str activation='relu', float dropout=0.0, Tensor? seed=None) -> "
      "(Tensor out, Tensor hidden, Tensor product)");
  m.def(
      "feed_forward_backward(Tensor grad_out, Tensor x, Tensor weight1, "
      "Tensor bias1, Tensor weight2, Tensor hidden, Tensor product, "
      "str activation, float dropout, Tensor? seed, bool want_x) -> "
      "(Tensor grad_x, Tensor grad_weight1, Tensor grad_bias1, "
      "Tensor grad_weight2)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("feed_forward", &ForwardCpu);
  m.impl("feed_forward_backward", &BackwardCpu);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("feed_forward", &ForwardMeta);
  m.impl("feed_forward_backward", &BackwardMeta);
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("feed_forward", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("feed_forward", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("feed_forward", &ForwardAutograd);
}

}  // namespace
}  // namespace feed_forward

at::Tensor FeedForward(const at::Tensor& x, const at::Tensor& weight1,
                       const at::Tensor& bias1, const at::Tensor& weight2,
                       Activation activation, const Dropout& dropout) {
  return std::get<0>(feed_forward::Call(x, weight1, bias1, weight2,
                                        Name(activation), dropout.probability,
                                        dropout.seed));
}

}  // namespace tarn::ops
