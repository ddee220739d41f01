// torch.ops.tarn.moe_experts: the feed-forward networks that a router chose for
// each token (kernels/moe/experts.h). The gradient keeps the first products of
// the sorted rows and no other row.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/layers/call.h"
#include "torch_ops/moe/moe.h"

namespace tarn::ops {
namespace moe_experts {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// out, and W1 x and W3 x of the sorted rows [rows top_k, F]; [0] where the
// composed form runs, the last also without a gate.
using Outputs = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
// Gradients of x, weights, weight1, weight2, weight3.
using Gradients5 =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Signature = Outputs(const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const OptionalTensor&,
                          c10::string_view);
using BackwardSignature = Gradients5(const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, const at::Tensor&,
                                     const OptionalTensor&, const at::Tensor&,
                                     const at::Tensor&, c10::string_view, bool);

constexpr char kOp[] = "moe_experts";

ExpertActivation ParseExpertActivation(c10::string_view word) {
  for (const ExpertActivation activation :
       {ExpertActivation::kSilu, ExpertActivation::kGelu,
        ExpertActivation::kGeluTanh, ExpertActivation::kRelu,
        ExpertActivation::kRelu2}) {
    if (word == Name(activation)) return activation;
  }
  throw ArgumentError(StrCat(kOp, ": activation"),
                      "silu, gelu, gelu-tanh, relu or relu2",
                      std::string(word));
}

bool Given(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

void Check(const at::Tensor& x, const at::Tensor& chosen,
           const at::Tensor& weights, const at::Tensor& weight1,
           const at::Tensor& weight2, const OptionalTensor& weight3) {
  if (x.dim() < 1 || weight1.dim() != 3 || chosen.dim() != x.dim()) {
    throw ShapeError(
        StrCat(kOp, ": x, chosen, weight1"),
        "[..., D], [..., top_k] and [E, F, D]",
        StrCat(x.dim(), ", ", chosen.dim(), " and ", weight1.dim(), " axes"));
  }
  const c10::SymInt experts = weight1.sym_size(0), d_ff = weight1.sym_size(1);
  const c10::SymInt d_model = x.sym_size(-1);
  if (chosen.scalar_type() != at::kLong || chosen.sym_size(-1) < 1) {
    throw DTypeError(
        StrCat(kOp, ": chosen"), "int64 [..., top_k >= 1]",
        StrCat(c10::toString(chosen.scalar_type()), " ", chosen.sym_sizes()));
  }
  WantLike(kOp, "weights", weights, x, WithLast(x, chosen.sym_size(-1)));
  WantLike(kOp, "chosen", chosen, chosen, WithLast(x, chosen.sym_size(-1)));
  WantLike(kOp, "weight1", weight1, x, {experts, d_ff, d_model});
  WantLike(kOp, "weight2", weight2, x, {experts, d_model, d_ff});
  if (Given(weight3)) {
    WantLike(kOp, "weight3", *weight3, x, {experts, d_ff, d_model});
  }
}

at::Tensor Curve(ExpertActivation activation, const at::Tensor& x) {
  switch (activation) {
    case ExpertActivation::kSilu:
      return at::silu(x);
    case ExpertActivation::kGelu:
      return at::gelu(x);
    case ExpertActivation::kGeluTanh:
      return at::gelu(x, "tanh");
    case ExpertActivation::kRelu:
      return at::relu(x);
    case ExpertActivation::kRelu2:
      break;
  }
  const at::Tensor relu = at::relu(x);
  return relu * relu;
}

// Every expert on every token, one expert after the other: no step depends on
// what was chosen, so that compilers and torch.func follow it. A NaN in the
// weights of an expert spreads to all tokens.
at::Tensor Composed(const at::Tensor& x, const at::Tensor& chosen,
                    const at::Tensor& weights, const at::Tensor& weight1,
                    const at::Tensor& weight2, const OptionalTensor& weight3,
                    c10::string_view activation) {
  const ExpertActivation curve = ParseExpertActivation(activation);
  const at::Tensor none = at::zeros({}, weights.options());
  at::Tensor out;
  for (int64_t e = 0; e < weight1.size(0); ++e) {
    at::Tensor hidden = Curve(curve, at::linear(x, weight1.select(0, e)));
    if (Given(weight3)) {
      hidden = hidden * at::linear(x, weight3->select(0, e));
    }
    const at::Tensor share =
        at::where(chosen == e, weights, none).sum(-1, /*keepdim=*/true);
    const at::Tensor own = at::linear(hidden, weight2.select(0, e)) * share;
    out = out.defined() ? out + own : own;
  }
  return out;
}

Outputs ForwardComposed(const at::Tensor& x, const at::Tensor& chosen,
                        const at::Tensor& weights, const at::Tensor& weight1,
                        const at::Tensor& weight2,
                        const OptionalTensor& weight3,
                        c10::string_view activation) {
  return WithTorchErrors([&]() -> Outputs {
    Check(x, chosen, weights, weight1, weight2, weight3);
    const at::Tensor out =
        Composed(x, chosen, weights, weight1, weight2, weight3, activation);
    return {out, at::empty({0}, x.options()), at::empty({0}, x.options())};
  });
}

// A kernel's call and the dense tensors that its pointers reach into.
struct DenseCall {
  at::Tensor x, chosen, weights, weight1, weight2, weight3;
  ExpertsProblem p;

  DenseCall(const at::Tensor& x_in, const at::Tensor& chosen_in,
            const at::Tensor& weights_in, const at::Tensor& weight1_in,
            const at::Tensor& weight2_in, const OptionalTensor& weight3_in,
            c10::string_view activation)
      : x(AsRows(x_in)),
        chosen(chosen_in.contiguous()),
        weights(weights_in.contiguous()),
        weight1(weight1_in.contiguous()),
        weight2(weight2_in.contiguous()) {
    p.tokens = x.size(0);
    p.top_k = chosen.size(-1);
    p.experts = weight1.size(0);
    p.d_model = weight1.size(2);
    p.d_ff = weight1.size(1);
    p.activation = ParseExpertActivation(activation);
    p.x = x.const_data_ptr<float>();
    p.chosen = chosen.const_data_ptr<int64_t>();
    p.weights = weights.const_data_ptr<float>();
    p.weight1 = weight1.const_data_ptr<float>();
    p.weight2 = weight2.const_data_ptr<float>();
    if (Given(weight3_in)) {
      weight3 = weight3_in->contiguous();
      p.weight3 = weight3.const_data_ptr<float>();
    }
  }

  at::Tensor Floats(const Executor& executor, bool gradient) const {
    return EmptyDense({ExpertsWorkspaceFloats(p, executor, gradient)});
  }
  at::Tensor Indices() const {
    return EmptyDense({ExpertsWorkspaceIndices(p)}, at::kLong);
  }
};

Outputs ForwardCpu(const at::Tensor& x, const at::Tensor& chosen,
                   const at::Tensor& weights, const at::Tensor& weight1,
                   const at::Tensor& weight2, const OptionalTensor& weight3,
                   c10::string_view activation) {
  if (!KernelServes(x)) {
    return ForwardComposed(x, chosen, weights, weight1, weight2, weight3,
                           activation);
  }
  return WithTorchErrors([&]() -> Outputs {
    Check(x, chosen, weights, weight1, weight2, weight3);
    const DenseCall call(x, chosen, weights, weight1, weight2, weight3,
                         activation);
    const int64_t rows = call.p.tokens * call.p.top_k;
    const bool gated = call.p.weight3 != nullptr;
    const at::Tensor out = EmptyDense(x.sizes());
    const at::Tensor product1 = EmptyDense({rows, call.p.d_ff});
    const at::Tensor product3 =
        gated ? EmptyDense({rows, call.p.d_ff}) : at::empty({0}, x.options());
    TorchExecutor executor;
    const at::Tensor workspace = call.Floats(executor, /*gradient=*/false);
    const at::Tensor indices = call.Indices();
    ExpertsForward(call.p, out.data_ptr<float>(), product1.data_ptr<float>(),
                   gated ? product3.data_ptr<float>() : nullptr,
                   workspace.data_ptr<float>(), indices.data_ptr<int64_t>(),
                   executor);
    return {out, product1, product3};
  });
}

Gradients5 BackwardCpu(const at::Tensor& grad_out, const at::Tensor& x,
                       const at::Tensor& chosen, const at::Tensor& weights,
                       const at::Tensor& weight1, const at::Tensor& weight2,
                       const OptionalTensor& weight3,
                       const at::Tensor& product1, const at::Tensor& product3,
                       c10::string_view activation, bool want_x) {
  return WithTorchErrors([&]() -> Gradients5 {
    Check(x, chosen, weights, weight1, weight2, weight3);
    if (x.scalar_type() != at::kFloat) {
      throw DTypeError("moe_experts_backward: x", "float32",
                       c10::toString(x.scalar_type()));
    }
    const DenseCall call(x, chosen, weights, weight1, weight2, weight3,
                         activation);
    const int64_t rows = call.p.tokens * call.p.top_k;
    const bool gated = call.p.weight3 != nullptr;
    WantLike(kOp, "grad_out", grad_out, x, x.sym_sizes());
    WantLike(kOp, "product1", product1, x, {rows, call.p.d_ff});
    if (gated) WantLike(kOp, "product3", product3, x, {rows, call.p.d_ff});
    const at::Tensor grad = grad_out.contiguous();
    const at::Tensor one = product1.contiguous(), three = product3.contiguous();
    const auto none = [&] { return at::empty({0}, x.options()); };
    const at::Tensor grad_x = want_x ? EmptyDense(x.sizes()) : none();
    const at::Tensor grad_weights = EmptyDense(weights.sizes());
    const at::Tensor grad1 = EmptyDense(weight1.sizes());
    const at::Tensor grad2 = EmptyDense(weight2.sizes());
    const at::Tensor grad3 = gated ? EmptyDense(weight1.sizes()) : none();
    ExpertsGradients g;
    g.grad_y = grad.const_data_ptr<float>();
    g.product1 = one.const_data_ptr<float>();
    g.product3 = gated ? three.const_data_ptr<float>() : nullptr;
    g.grad_x = want_x ? grad_x.data_ptr<float>() : nullptr;
    g.grad_weights = grad_weights.data_ptr<float>();
    g.grad_weight1 = grad1.data_ptr<float>();
    g.grad_weight2 = grad2.data_ptr<float>();
    g.grad_weight3 = gated ? grad3.data_ptr<float>() : nullptr;
    TorchExecutor executor;
    const at::Tensor workspace = call.Floats(executor, /*gradient=*/true);
    const at::Tensor indices = call.Indices();
    ExpertsBackward(call.p, g, workspace.data_ptr<float>(),
                    indices.data_ptr<int64_t>(), executor);
    return {grad_x, grad_weights, grad1, grad2, grad3};
  });
}

Outputs ForwardMeta(const at::Tensor& x, const at::Tensor& chosen,
                    const at::Tensor& weights, const at::Tensor& weight1,
                    const at::Tensor& weight2, const OptionalTensor& weight3,
                    c10::string_view activation) {
  return WithTorchErrors([&]() -> Outputs {
    Check(x, chosen, weights, weight1, weight2, weight3);
    ParseExpertActivation(activation);
    const at::Tensor out = at::empty_symint(x.sym_sizes(), x.options());
    const at::Tensor none = at::empty({0}, x.options());
    if (!KernelServes(x)) return {out, none, at::empty({0}, x.options())};
    const auto product = [&] {
      return at::empty_symint({chosen.sym_numel(), weight1.sym_size(1)},
                              x.options());
    };
    return {out, product(), Given(weight3) ? product() : none};
  });
}

Gradients5 BackwardMeta(const at::Tensor&, const at::Tensor& x,
                        const at::Tensor&, const at::Tensor& weights,
                        const at::Tensor& weight1, const at::Tensor& weight2,
                        const OptionalTensor& weight3, const at::Tensor&,
                        const at::Tensor&, c10::string_view, bool want_x) {
  const auto like = [](const at::Tensor& tensor) {
    return at::empty_symint(tensor.sym_sizes(), tensor.options());
  };
  const auto none = [&] { return at::empty({0}, x.options()); };
  return {want_x ? like(x) : none(), like(weights), like(weight1),
          like(weight2), Given(weight3) ? like(*weight3) : none()};
}

Outputs Call(const at::Tensor& x, const at::Tensor& chosen,
             const at::Tensor& weights, const at::Tensor& weight1,
             const at::Tensor& weight2, const OptionalTensor& weight3,
             c10::string_view activation) {
  static const auto handle = FindOp<Signature>("tarn::moe_experts");
  return handle.call(x, chosen, weights, weight1, weight2, weight3, activation);
}

struct ExpertsFunction : public torch::autograd::Function<ExpertsFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const at::Tensor& chosen,
                               const at::Tensor& weights,
                               const at::Tensor& weight1,
                               const at::Tensor& weight2,
                               const OptionalTensor& weight3,
                               const std::string& activation) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, product1, product3] =
        Call(x, chosen, weights, weight1, weight2, weight3, activation);
    ctx->save_for_backward({x, chosen, weights, weight1, weight2,
                            UndefinedOr(weight3), product1, product3});
    ctx->saved_data["activation"] = activation;
    ctx->mark_non_differentiable({product1, product3});
    // Otherwise every call fills a gradient of zeros as large as hidden rows.
    ctx->set_materialize_grads(false);
    return {out, product1, product3};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    const bool want_x = ctx->needs_input_grad(0);
    const std::string& activation = ctx->saved_data["activation"].toStringRef();
    variable_list found(7);
    if (!grads[0].defined()) return found;
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      const variable_list composed = ComposedGradients(
          {s[0], s[2], s[3], s[4], s[5]}, {grads[0]},
          [&](const variable_list& in) {
            return variable_list{Composed(in[0], s[1], in[1], in[2], in[3],
                                          NoneOr(in[4]), activation)};
          });
      found[0] = composed[0];
      std::copy(composed.begin() + 1, composed.end(), found.begin() + 2);
      return found;
    }
    static const auto handle =
        FindGradientOp<BackwardSignature>("tarn::moe_experts_backward");
    const auto [x, weights, weight1, weight2, weight3] =
        handle.call(grads[0], s[0], s[1], s[2], s[3], s[4], NoneOr(s[5]), s[6],
                    s[7], activation, want_x);
    if (want_x) found[0] = x;
    found[2] = weights;
    found[3] = weight1;
    found[4] = weight2;
    if (s[5].defined()) found[5] = weight3;
    return found;
  }
};

Outputs ForwardAutograd(const at::Tensor& x, const at::Tensor& chosen,
                        const at::Tensor& weights, const at::Tensor& weight1,
                        const at::Tensor& weight2,
                        const OptionalTensor& weight3,
                        c10::string_view activation) {
  if (!KernelServes(x, weights, weight1, weight2, weight3)) {
    return ForwardComposed(x, chosen, weights, weight1, weight2, weight3,
                           activation);
  }
  WithTorchErrors([&] {
    Check(x, chosen, weights, weight1, weight2, weight3);
    ParseExpertActivation(activation);
  });
  if (!WantsGradient(x, weights, weight1, weight2, weight3)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Call(x, chosen, weights, weight1, weight2, weight3, activation);
  }
  const variable_list results = ExpertsFunction::apply(
      x, chosen, weights, weight1, weight2, weight3, std::string(activation));
  return {results[0], results[1], results[2]};
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "moe_experts(Tensor x, Tensor chosen, Tensor weights, Tensor weight1, "
      "Tensor weight2, Tensor? weight3=None, str activation='silu') -> "
      "(Tensor out, Tensor product1, Tensor product3)");
  m.def(
      "moe_experts_backward(Tensor grad_out, Tensor x, Tensor chosen, "
      "Tensor weights, Tensor weight1, Tensor weight2, Tensor? weight3, "
      "Tensor product1, Tensor product3, str activation, bool want_x) -> "
      "(Tensor grad_x, Tensor grad_weights, Tensor grad_weight1, "
      "Tensor grad_weight2, Tensor grad_weight3)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("moe_experts", &ForwardCpu);
  m.impl("moe_experts_backward", &BackwardCpu);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("moe_experts", &ForwardMeta);
  m.impl("moe_experts_backward", &BackwardMeta);
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("moe_experts", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("moe_experts", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("moe_experts", &ForwardAutograd);
}

}  // namespace
}  // namespace moe_experts

const char* Name(ExpertActivation activation) {
  switch (activation) {
    case ExpertActivation::kSilu:
      return "silu";
    case ExpertActivation::kGelu:
      return "gelu";
    case ExpertActivation::kGeluTanh:
      return "gelu-tanh";
    case ExpertActivation::kRelu:
      return "relu";
    case ExpertActivation::kRelu2:
      break;
  }
  return "relu2";
}

at::Tensor Experts(const ExpertsArguments& in) {
  return std::get<0>(moe_experts::Call(in.x, in.chosen, in.weights, in.weight1,
                                       in.weight2, in.weight3,
                                       Name(in.activation)));
}

}  // namespace tarn::ops
