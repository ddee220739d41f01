// torch.ops.tarn.affine: y = x weight^T + bias. The product writes into memory
// that is kept between calls and the bias follows in one pass: torch's addmm
// spreads the bias over the result first, which costs as much as a third of
// the product. Few rows, as in a step of generation, take a kernel that reads
// the weights at the speed of memory.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/bias_activation/bias_activation.h"
#include "kernels/row_product/row_product.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace affine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Gradients3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Signature = at::Tensor(const at::Tensor&, const at::Tensor&,
                             const OptionalTensor&);
using BackwardSignature = Gradients3(const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, bool, bool);

constexpr char kOp[] = "affine";

// Up to here reading the weights is what a product costs.
constexpr int64_t kFewRows = 16;

void Check(const at::Tensor& x, const at::Tensor& weight,
           const OptionalTensor& bias) {
  if (x.dim() < 1 || weight.dim() != 2) {
    throw ShapeError(StrCat(kOp, ": x, weight"), "[..., D] and [E, D]",
                     StrCat(x.dim(), " and ", weight.dim(), " axes"));
  }
  WantLike(kOp, "weight", weight, x, {weight.sym_size(0), x.sym_size(-1)});
  if (bias.has_value()) WantLike(kOp, "bias", *bias, x, {weight.sym_size(0)});
}

at::Tensor ForwardComposed(const at::Tensor& x, const at::Tensor& weight,
                           const OptionalTensor& bias) {
  WithTorchErrors([&] { Check(x, weight, bias); });
  return at::linear(x, weight, bias);
}

at::Tensor FewRows(const at::Tensor& rows, const at::Tensor& weight,
                   const OptionalTensor& bias) {
  at::Tensor y = at::empty({rows.size(0), weight.size(0)}, rows.options());
  at::Tensor dense;
  RowProductMap map;
  map.weight = weight.const_data_ptr<float>();
  map.outputs = weight.size(0);
  map.y = y.data_ptr<float>();
  if (bias.has_value()) {
    dense = bias->contiguous();
    map.bias = dense.const_data_ptr<float>();
  }
  TorchExecutor executor;
  RowProduct(rows.const_data_ptr<float>(), rows.size(0), rows.size(1), &map, 1,
             executor);
  return y;
}

at::Tensor ForwardCpu(const at::Tensor& x, const at::Tensor& weight,
                      const OptionalTensor& bias) {
  return WithTorchErrors([&] {
    Check(x, weight, bias);
    if (!KernelServes(x)) return at::linear(x, weight, bias);
    const at::Tensor rows = AsRows(x);
    if (rows.size(0) <= kFewRows && weight.is_contiguous()) {
      return FewRows(rows, weight, bias).view(WithLast(x, weight.size(0)));
    }
    at::Tensor y = EmptyDense({rows.size(0), weight.size(0)});
    at::mm_out(y, rows, weight.t());
    if (bias.has_value()) {
      const at::Tensor dense = bias->contiguous();
      TorchExecutor executor;
      float* data = y.data_ptr<float>();
      BiasActivationForward({}, y.size(0), y.size(1), data,
                            dense.const_data_ptr<float>(), data, executor);
    }
    return y.view(WithLast(x, weight.size(0)));
  });
}

Gradients3 BackwardCpu(const at::Tensor& grad_y, const at::Tensor& x,
                       const at::Tensor& weight, bool want_x, bool want_bias) {
  return WithTorchErrors([&]() -> Gradients3 {
    Check(x, weight, {});
    WantLike(kOp, "grad_y", grad_y, x, WithLast(x, weight.sym_size(0)));
    if (x.scalar_type() != at::kFloat) {
      throw DTypeError("affine_backward: x", "float32",
                       c10::toString(x.scalar_type()));
    }
    const at::Tensor rows = AsRows(x), grad = AsRows(grad_y);
    at::Tensor grad_x = at::empty({0}, x.options());
    at::Tensor grad_bias = at::empty({0}, x.options());
    at::Tensor grad_weight = EmptyDense(weight.sizes());
    at::mm_out(grad_weight, grad.t(), rows);
    if (want_x) {
      grad_x = EmptyDense(rows.sizes());
      at::mm_out(grad_x, grad, weight);
      grad_x = grad_x.view(x.sizes());
    }
    if (want_bias) {
      grad_bias = EmptyDense({grad.size(1)});
      const at::Tensor workspace = EmptyDense(
          {BiasActivationWorkspaceFloats(grad.size(0), grad.size(1))});
      BiasActivationGradients g;
      g.grad_y = grad.const_data_ptr<float>();
      g.grad_bias = grad_bias.data_ptr<float>();
      TorchExecutor executor;
      BiasActivationBackward({}, grad.size(0), grad.size(1), g,
                             workspace.data_ptr<float>(), executor);
    }
    return {grad_x, grad_weight, grad_bias};
  });
}

at::Tensor ForwardMeta(const at::Tensor& x, const at::Tensor& weight,
                       const OptionalTensor& bias) {
  return WithTorchErrors([&] {
    Check(x, weight, bias);
    return at::empty_symint(WithLast(x, weight.sym_size(0)), x.options());
  });
}

Gradients3 BackwardMeta(const at::Tensor&, const at::Tensor& x,
                        const at::Tensor& weight, bool want_x, bool want_bias) {
  return {want_x ? at::empty_symint(x.sym_sizes(), x.options())
                 : at::empty({0}, x.options()),
          at::empty_symint(weight.sym_sizes(), weight.options()),
          want_bias ? at::empty_symint({weight.sym_size(0)}, x.options())
                    : at::empty({0}, x.options())};
}

at::Tensor Call(const at::Tensor& x, const at::Tensor& weight,
                const OptionalTensor& bias) {
  static const auto handle = FindOp<Signature>("tarn::affine");
  return handle.call(x, weight, bias);
}

struct AffineFunction : public torch::autograd::Function<AffineFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight,
                            const OptionalTensor& bias) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->set_materialize_grads(false);
    return Call(x, weight, bias);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const bool has_bias = ctx->saved_data["bias"].toBool();
    if (!grads[0].defined()) return variable_list(3);
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found = ComposedGradients(
          {saved[0], saved[1]}, grads, [](const variable_list& in) {
            return variable_list{at::linear(in[0], in[1])};
          });
      found.push_back(has_bias
                          ? grads[0].reshape({-1, grads[0].size(-1)}).sum(0)
                          : at::Tensor());
      return found;
    }
    static const auto handle =
        FindGradientOp<BackwardSignature>("tarn::affine_backward");
    const auto [x, weight, bias] = handle.call(
        grads[0], saved[0], saved[1], ctx->needs_input_grad(0), has_bias);
    return {ctx->needs_input_grad(0) ? x : at::Tensor(), weight,
            has_bias ? bias : at::Tensor()};
  }
};

at::Tensor ForwardAutograd(const at::Tensor& x, const at::Tensor& weight,
                           const OptionalTensor& bias) {
  if (!KernelServes(x, weight, bias)) return ForwardComposed(x, weight, bias);
  WithTorchErrors([&] { Check(x, weight, bias); });
  if (!WantsGradient(x, weight, bias)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Call(x, weight, bias);
  }
  return AffineFunction::apply(x, weight, bias);
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("affine(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor");
  m.def(
      "affine_backward(Tensor grad_y, Tensor x, Tensor weight, bool want_x, "
      "bool want_bias) -> (Tensor grad_x, Tensor grad_weight, "
      "Tensor grad_bias)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("affine", &ForwardCpu);
  m.impl("affine_backward", &BackwardCpu);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("affine", &ForwardMeta);
  m.impl("affine_backward", &BackwardMeta);
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) { m.impl("affine", &ForwardAutograd); }
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("affine", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("affine", &ForwardComposed);
}

}  // namespace
}  // namespace affine

at::Tensor Affine(const at::Tensor& x, const at::Tensor& weight,
                  const OptionalTensor& bias) {
  return affine::Call(x, weight, bias);
}

}  // namespace tarn::ops
