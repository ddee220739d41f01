// torch.ops.tarn.swiglu_feed_forward: drop(silu(x weight1^T) * (x weight3^T))
// weight2^T. What is between the products is one pass over both, and so is
// its gradient, which also recomputes the rows of the last product: they are
// not kept, and no mask is.
#include "kernels/swiglu/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace swiglu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// out, gate = x weight1^T and up = x weight3^T, both [rows, F].
using Outputs = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
// Gradients of x, weight1, weight2, weight3.
using Gradients4 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Signature = Outputs(const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const at::Tensor&, double,
                          const OptionalTensor&);
using BackwardSignature = Gradients4(const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, double,
                                     const OptionalTensor&, bool);

constexpr char kOp[] = "swiglu_feed_forward";

void Check(const at::Tensor& x, const at::Tensor& weight1,
           const at::Tensor& weight2, const at::Tensor& weight3) {
  if (x.dim() < 1 || weight1.dim() != 2 || weight2.dim() != 2) {
    throw ShapeError(
        StrCat(kOp, ": x, weight1, weight2"), "[..., D], [F, D] and [E, F]",
        StrCat(x.dim(), ", ", weight1.dim(), " and ", weight2.dim(), " axes"));
  }
  const c10::SymInt hidden = weight1.sym_size(0);
  WantLike(kOp, "weight1", weight1, x, {hidden, x.sym_size(-1)});
  WantLike(kOp, "weight2", weight2, x, {weight2.sym_size(0), hidden});
  WantLike(kOp, "weight3", weight3, x, {hidden, x.sym_size(-1)});
}

Outputs ForwardComposed(const at::Tensor& x, const at::Tensor& weight1,
                        const at::Tensor& weight2, const at::Tensor& weight3,
                        double probability, const OptionalTensor& seed) {
  return WithTorchErrors([&]() -> Outputs {
    Check(x, weight1, weight2, weight3);
    const at::Tensor gate = at::linear(x, weight1);
    const at::Tensor up = at::linear(x, weight3);
    const at::Tensor hidden =
        ComposedDropout(at::silu(gate) * up, probability, seed);
    return {at::linear(hidden, weight2), gate.detach(), up.detach()};
  });
}

// rows weight^T, in memory that is kept between calls.
at::Tensor Product(const at::Tensor& rows, const at::Tensor& weight) {
  at::Tensor product = EmptyDense({rows.size(0), weight.size(0)});
  at::mm_out(product, rows, weight.t());
  return product;
}

Outputs ForwardCpu(const at::Tensor& x, const at::Tensor& weight1,
                   const at::Tensor& weight2, const at::Tensor& weight3,
                   double probability, const OptionalTensor& seed) {
  if (!KernelServes(x)) {
    return ForwardComposed(x, weight1, weight2, weight3, probability, seed);
  }
  return WithTorchErrors([&]() -> Outputs {
    Check(x, weight1, weight2, weight3);
    const DropoutOptions dropout = KernelDropout(kOp, probability, seed);
    const at::Tensor rows = AsRows(x);
    const at::Tensor gate = Product(rows, weight1);
    const at::Tensor up = Product(rows, weight3);
    const at::Tensor hidden = EmptyDense(gate.sizes());
    TorchExecutor executor;
    SwigluForward(dropout, gate.size(0), gate.size(1),
                  gate.const_data_ptr<float>(), up.const_data_ptr<float>(),
                  hidden.data_ptr<float>(), executor);
    const std::vector<int64_t> shape = WithLast(x, gate.size(1));
    return {Product(hidden, weight2).view(WithLast(x, weight2.size(0))),
            gate.view(shape), up.view(shape)};
  });
}

// grad^T rows: the gradient of a product's weights.
at::Tensor WeightGradient(const at::Tensor& grad, const at::Tensor& rows) {
  at::Tensor result = EmptyDense({grad.size(1), rows.size(1)});
  at::mm_out(result, grad.t(), rows);
  return result;
}

Gradients4 BackwardCpu(const at::Tensor& grad_out, const at::Tensor& x,
                       const at::Tensor& weight1, const at::Tensor& weight2,
                       const at::Tensor& weight3, const at::Tensor& gate,
                       const at::Tensor& up, double probability,
                       const OptionalTensor& seed, bool want_x) {
  return WithTorchErrors([&]() -> Gradients4 {
    Check(x, weight1, weight2, weight3);
    if (x.scalar_type() != at::kFloat) {
      throw DTypeError("swiglu_feed_forward_backward: x", "float32",
                       c10::toString(x.scalar_type()));
    }
    const DropoutOptions dropout = KernelDropout(kOp, probability, seed);
    WantLike(kOp, "grad_out", grad_out, x, WithLast(x, weight2.sym_size(0)));
    WantLike(kOp, "gate", gate, x, WithLast(x, weight1.sym_size(0)));
    WantLike(kOp, "up", up, x, gate.sym_sizes());
    const at::Tensor rows = AsRows(x), grad = AsRows(grad_out);
    const at::Tensor dense_gate = AsRows(gate), dense_up = AsRows(up);
    const int64_t count = rows.size(0), d_ff = weight1.size(0);

    // Becomes the gradient of up in place.
    at::Tensor grad_up = EmptyDense({count, d_ff});
    at::mm_out(grad_up, grad, weight2);
    const at::Tensor grad_gate = EmptyDense({count, d_ff});
    const at::Tensor hidden = EmptyDense({count, d_ff});
    SwigluGradients g;
    g.grad_y = g.grad_up = grad_up.data_ptr<float>();
    g.gate = dense_gate.const_data_ptr<float>();
    g.up = dense_up.const_data_ptr<float>();
    g.grad_gate = grad_gate.data_ptr<float>();
    g.y = hidden.data_ptr<float>();
    TorchExecutor executor;
    SwigluBackward(dropout, count, d_ff, g, executor);
    at::Tensor grad_x = at::empty({0}, x.options());
    if (want_x) {
      grad_x = EmptyDense(rows.sizes());
      at::mm_out(grad_x, grad_gate, weight1);
      at::addmm_out(grad_x, grad_x, grad_up, weight3);
      grad_x = grad_x.view(x.sizes());
    }
    return {grad_x, WeightGradient(grad_gate, rows),
            WeightGradient(grad, hidden), WeightGradient(grad_up, rows)};
  });
}

Outputs ForwardMeta(const at::Tensor& x, const at::Tensor& weight1,
                    const at::Tensor& weight2, const at::Tensor& weight3,
                    double, const OptionalTensor&) {
  return WithTorchErrors([&]() -> Outputs {
    Check(x, weight1, weight2, weight3);
    const auto empty = [&](const c10::SymInt& last) {
      return at::empty_symint(WithLast(x, last), x.options());
    };
    return {empty(weight2.sym_size(0)), empty(weight1.sym_size(0)),
            empty(weight1.sym_size(0))};
  });
}

Gradients4 BackwardMeta(const at::Tensor&, const at::Tensor& x,
                        const at::Tensor& weight1, const at::Tensor& weight2,
                        const at::Tensor& weight3, const at::Tensor&,
                        const at::Tensor&, double, const OptionalTensor&,
                        bool want_x) {
  const auto like = [](const at::Tensor& tensor) {
    return at::empty_symint(tensor.sym_sizes(), tensor.options());
  };
  return {want_x ? like(x) : at::empty({0}, x.options()), like(weight1),
          like(weight2), like(weight3)};
}

Outputs Call(const at::Tensor& x, const at::Tensor& weight1,
             const at::Tensor& weight2, const at::Tensor& weight3,
             double probability, const OptionalTensor& seed) {
  static const auto handle = FindOp<Signature>("tarn::swiglu_feed_forward");
  return handle.call(x, weight1, weight2, weight3, probability, seed);
}

struct SwigluFunction : public torch::autograd::Function<SwigluFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const at::Tensor& weight1,
                               const at::Tensor& weight2,
                               const at::Tensor& weight3, double probability,
                               const OptionalTensor& seed) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, gate, up] =
        Call(x, weight1, weight2, weight3, probability, seed);
    ctx->save_for_backward(
        {x, weight1, weight2, weight3, gate, up, UndefinedOr(seed)});
    ctx->saved_data["probability"] = probability;
    ctx->mark_non_differentiable({gate, up});
    // Otherwise every call fills a gradient of zeros as large as hidden rows.
    ctx->set_materialize_grads(false);
    return {out, gate, up};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    const bool want_x = ctx->needs_input_grad(0);
    if (!grads[0].defined()) return variable_list(6);
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found = ComposedGradients(
          {s[0], s[1], s[2], s[3]}, grads, [&](const variable_list& in) {
            return variable_list{std::get<0>(ForwardComposed(
                in[0], in[1], in[2], in[3],
                ctx->saved_data["probability"].toDouble(), NoneOr(s[6])))};
          });
      found.resize(6);
      return found;
    }
    static const auto handle =
        FindGradientOp<BackwardSignature>("tarn::swiglu_feed_forward_backward");
    const auto [x, weight1, weight2, weight3] = handle.call(
        grads[0], s[0], s[1], s[2], s[3], s[4], s[5],
        ctx->saved_data["probability"].toDouble(), NoneOr(s[6]), want_x);
    const at::Tensor none;
    return {want_x ? x : none, weight1, weight2, weight3, none, none};
  }
};

Outputs ForwardAutograd(const at::Tensor& x, const at::Tensor& weight1,
                        const at::Tensor& weight2, const at::Tensor& weight3,
                        double probability, const OptionalTensor& seed) {
  if (!KernelServes(x, weight1, weight2, weight3)) {
    return ForwardComposed(x, weight1, weight2, weight3, probability, seed);
  }
  WithTorchErrors([&] { Check(x, weight1, weight2, weight3); });
  if (!WantsGradient(x, weight1, weight2, weight3)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Call(x, weight1, weight2, weight3, probability, seed);
  }
  const variable_list results =
      SwigluFunction::apply(x, weight1, weight2, weight3, probability, seed);
  return {results[0], results[1], results[2]};
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "swiglu_feed_forward(Tensor x, Tensor weight1, Tensor weight2, "
      "Tensor weight3, float dropout=0.0, Tensor? seed=None) -> "
      "(Tensor out, Tensor gate, Tensor up)");
  m.def(
      "swiglu_feed_forward_backward(Tensor grad_out, Tensor x, "
      "Tensor weight1, Tensor weight2, Tensor weight3, Tensor gate, Tensor up, "
      "float dropout, Tensor? seed, bool want_x) -> (Tensor grad_x, "
      "Tensor grad_weight1, Tensor grad_weight2, Tensor grad_weight3)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("swiglu_feed_forward", &ForwardCpu);
  m.impl("swiglu_feed_forward_backward", &BackwardCpu);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("swiglu_feed_forward", &ForwardMeta);
  m.impl("swiglu_feed_forward_backward", &BackwardMeta);
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("swiglu_feed_forward", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("swiglu_feed_forward", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("swiglu_feed_forward", &ForwardAutograd);
}

}  // namespace
}  // namespace swiglu

at::Tensor SwigluFeedForward(const at::Tensor& x, const at::Tensor& weight1,
                             const at::Tensor& weight2,
                             const at::Tensor& weight3,
                             const Dropout& dropout) {
  return std::get<0>(swiglu::Call(x, weight1, weight2, weight3,
                                  dropout.probability, dropout.seed));
}

}  // namespace tarn::ops
