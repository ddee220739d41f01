// torch.ops.tarn.residual_norm: bias, dropout, residual and norm in one pass,
// their gradient in one pass (kernels/residual_norm).
#include "kernels/residual_norm/residual_norm.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace residual_norm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// y ([0] without gamma), s ([0] where it would be x itself), mean ([0] but for
// a layer norm) and inverse ([0] without gamma), [rows].
using Outputs = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
// Gradients of residual, x ([0] where it equals the residual's), bias, gamma,
// beta ([0] where absent).
using Gradients5 =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Signature = Outputs(const at::Tensor&, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&,
                          const OptionalTensor&, double, double,
                          const OptionalTensor&, c10::string_view);
using BackwardSignature = Gradients5(const OptionalTensor&,
                                     const OptionalTensor&, const at::Tensor&,
                                     const at::Tensor&, const at::Tensor&,
                                     const OptionalTensor&, bool, double,
                                     const OptionalTensor&, c10::string_view);

constexpr char kOp[] = "residual_norm";

void Check(const at::Tensor& x, const OptionalTensor& residual,
           const OptionalTensor& bias, const OptionalTensor& gamma,
           const OptionalTensor& beta, NormKind kind) {
  if (x.dim() < 1) throw ShapeError("residual_norm: x", "[..., D]", "a scalar");
  const c10::SymInt width = x.sym_size(-1);
  if (residual) WantLike(kOp, "residual", *residual, x, x.sym_sizes());
  if (bias) WantLike(kOp, "bias", *bias, x, {width});
  if (gamma) WantLike(kOp, "gamma", *gamma, x, {width});
  if (beta) WantLike(kOp, "beta", *beta, x, {width});
  if (kind == NormKind::kRms) {
    if (!beta) return;
    throw ArgumentError("residual_norm: beta", "none with kind rms",
                        "a tensor");
  }
  if (gamma.has_value() != beta.has_value()) {
    throw ArgumentError("residual_norm: gamma, beta", "both or none",
                        gamma.has_value() ? "gamma alone" : "beta alone");
  }
}

// An absent result: a separate tensor, as results may not alias.
at::Tensor Absent(const at::Tensor& like) {
  return at::empty({0}, like.options());
}

// A result and its address, where it is wanted; dtype of `like`.
at::Tensor Result(bool wanted, const at::Tensor& like, at::IntArrayRef sizes,
                  float*& address) {
  if (!wanted) return Absent(like);
  at::Tensor result = EmptyDense(sizes);
  address = result.data_ptr<float>();
  return result;
}

OptionalTensor DenseOrNone(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(tensor->contiguous()) : std::nullopt;
}

// [rows] of x, the shape of what a norm keeps for each of them.
at::SymIntArrayRef RowShape(const at::Tensor& x) {
  return x.sym_sizes().slice(0, x.dim() - 1);
}

// Whether s is x itself, so that nothing new is stored.
bool SumIsX(const OptionalTensor& residual, const OptionalTensor& bias,
            const OptionalTensor& gamma, double probability) {
  return gamma.has_value() && !residual.has_value() && !bias.has_value() &&
         probability == 0.0;
}

// y and 1 / sqrt(mean(s^2) + eps) [..., 1]; half types are summed in float32.
std::tuple<at::Tensor, at::Tensor> ComposedRmsNorm(const at::Tensor& s,
                                                   const at::Tensor& gamma,
                                                   double eps) {
  const at::ScalarType dtype = s.scalar_type();
  const at::Tensor wide = s.to(at::toOpMathType(dtype));
  const at::Tensor inverse = at::rsqrt(at::mean(wide * wide, {-1}, true) + eps);
  return {(wide * inverse * gamma).to(dtype), inverse};
}

Outputs Composed(const at::Tensor& x, const OptionalTensor& residual,
                 const OptionalTensor& bias, const OptionalTensor& gamma,
                 const OptionalTensor& beta, double eps, double probability,
                 const OptionalTensor& seed, NormKind kind) {
  at::Tensor s = ComposedDropout(bias ? x + *bias : x, probability, seed);
  if (residual) s = *residual + s;
  if (!gamma) {
    return {Absent(x), s.is_same(x) ? x.clone() : s, Absent(x), Absent(x)};
  }
  const auto kept = [&](const at::Tensor& moment) {
    return moment.detach().to(x.scalar_type()).view_symint(RowShape(x));
  };
  const bool sum_is_x = SumIsX(residual, bias, gamma, probability);
  if (kind == NormKind::kRms) {
    const auto [y, inverse] = ComposedRmsNorm(s, *gamma, eps);
    return {y, sum_is_x ? Absent(x) : s, Absent(x), kept(inverse)};
  }
  const auto [y, mean, inverse] =
      at::native_layer_norm_symint(s, {x.sym_size(-1)}, gamma, beta, eps);
  return {y, sum_is_x ? Absent(x) : s, kept(mean), kept(inverse)};
}

Outputs ForwardComposed(const at::Tensor& x, const OptionalTensor& residual,
                        const OptionalTensor& bias, const OptionalTensor& gamma,
                        const OptionalTensor& beta, double eps,
                        double probability, const OptionalTensor& seed,
                        c10::string_view kind_name) {
  return WithTorchErrors([&] {
    const NormKind kind = ParseNormKind(kOp, kind_name);
    Check(x, residual, bias, gamma, beta, kind);
    return Composed(x, residual, bias, gamma, beta, eps, probability, seed,
                    kind);
  });
}

Outputs ForwardCpu(const at::Tensor& x, const OptionalTensor& residual,
                   const OptionalTensor& bias, const OptionalTensor& gamma,
                   const OptionalTensor& beta, double eps, double probability,
                   const OptionalTensor& seed, c10::string_view kind_name) {
  if (!KernelServes(x)) {
    return ForwardComposed(x, residual, bias, gamma, beta, eps, probability,
                           seed, kind_name);
  }
  return WithTorchErrors([&]() -> Outputs {
    const NormKind kind = ParseNormKind(kOp, kind_name);
    Check(x, residual, bias, gamma, beta, kind);
    const ResidualNormOptions options = {
        eps, KernelDropout(kOp, probability, seed), kind};
    const at::Tensor dense = AsRows(x);
    const OptionalTensor held[] = {DenseOrNone(residual), DenseOrNone(bias),
                                   DenseOrNone(gamma), DenseOrNone(beta)};
    ResidualNormTensors t;
    t.x = dense.const_data_ptr<float>();
    t.residual = FloatsOrNull(held[0]);
    t.bias = FloatsOrNull(held[1]);
    t.gamma = FloatsOrNull(held[2]);
    t.beta = FloatsOrNull(held[3]);
    const bool norm = gamma.has_value();
    const at::IntArrayRef rows = x.sizes().slice(0, x.dim() - 1);
    const at::Tensor s =
        Result(!SumIsX(residual, bias, gamma, probability), x, x.sizes(), t.s);
    const at::Tensor y = Result(norm, x, x.sizes(), t.y);
    const at::Tensor mean =
        Result(norm && kind == NormKind::kLayer, x, rows, t.mean);
    const at::Tensor inverse = Result(norm, x, rows, t.inverse);
    TorchExecutor executor;
    ResidualNormForward(options, dense.size(0), dense.size(1), t, executor);
    return {y, s, mean, inverse};
  });
}

Gradients5 BackwardCpu(const OptionalTensor& grad_y,
                       const OptionalTensor& grad_s, const at::Tensor& s,
                       const at::Tensor& mean, const at::Tensor& inverse,
                       const OptionalTensor& gamma, bool want_bias,
                       double probability, const OptionalTensor& seed,
                       c10::string_view kind_name) {
  return WithTorchErrors([&]() -> Gradients5 {
    const NormKind kind = ParseNormKind(kOp, kind_name);
    const bool norm = gamma.has_value();
    const bool layer = norm && kind == NormKind::kLayer;
    if (s.scalar_type() != at::kFloat) {
      throw DTypeError("residual_norm_backward: s", "float32",
                       c10::toString(s.scalar_type()));
    }
    Check(s, grad_y, {}, gamma, layer ? gamma : std::nullopt, kind);
    Check(s, grad_s, {}, {}, {}, kind);
    if (layer) WantLike(kOp, "mean", mean, s, RowShape(s));
    if (norm) WantLike(kOp, "inverse", inverse, s, RowShape(s));
    ResidualNormOptions options;
    options.kind = kind;
    options.dropout = KernelDropout(kOp, probability, seed);
    const at::Tensor dense = AsRows(s);
    const OptionalTensor held[] = {DenseOrNone(grad_y), DenseOrNone(grad_s),
                                   DenseOrNone(gamma), mean.contiguous(),
                                   inverse.contiguous()};
    const int64_t rows = dense.size(0), width = dense.size(1);
    ResidualNormGradients g;
    g.s = dense.const_data_ptr<float>();
    g.grad_y = FloatsOrNull(held[0]);
    g.grad_s = FloatsOrNull(held[1]);
    g.gamma = FloatsOrNull(held[2]);
    if (layer) g.mean = FloatsOrNull(held[3]);
    if (norm) g.inverse = FloatsOrNull(held[4]);
    const at::Tensor grad_residual =
        Result(true, s, s.sizes(), g.grad_residual);
    const at::Tensor grad_x = Result(probability > 0.0, s, s.sizes(), g.grad_x);
    const at::Tensor bias = Result(want_bias, s, {width}, g.grad_bias);
    const at::Tensor grad_gamma = Result(norm, s, {width}, g.grad_gamma);
    const at::Tensor grad_beta = Result(layer, s, {width}, g.grad_beta);
    const at::Tensor workspace =
        EmptyDense({ResidualNormWorkspaceFloats(rows, width)});
    TorchExecutor executor;
    ResidualNormBackward(options, rows, width, g, workspace.data_ptr<float>(),
                         executor);
    return {grad_residual, grad_x, bias, grad_gamma, grad_beta};
  });
}

Outputs ForwardMeta(const at::Tensor& x, const OptionalTensor& residual,
                    const OptionalTensor& bias, const OptionalTensor& gamma,
                    const OptionalTensor& beta, double, double probability,
                    const OptionalTensor&, c10::string_view kind_name) {
  return WithTorchErrors([&]() -> Outputs {
    const NormKind kind = ParseNormKind(kOp, kind_name);
    Check(x, residual, bias, gamma, beta, kind);
    const auto empty = [&](bool wanted, at::SymIntArrayRef shape) {
      return wanted ? at::empty_symint(shape, x.options())
                    : at::empty({0}, x.options());
    };
    const bool norm = gamma.has_value();
    return {empty(norm, x.sym_sizes()),
            empty(!SumIsX(residual, bias, gamma, probability), x.sym_sizes()),
            empty(norm && kind == NormKind::kLayer, RowShape(x)),
            empty(norm, RowShape(x))};
  });
}

Gradients5 BackwardMeta(const OptionalTensor&, const OptionalTensor&,
                        const at::Tensor& s, const at::Tensor&,
                        const at::Tensor&, const OptionalTensor& gamma,
                        bool want_bias, double probability,
                        const OptionalTensor&, c10::string_view kind) {
  const auto empty = [&](bool wanted, at::SymIntArrayRef shape) {
    return wanted ? at::empty_symint(shape, s.options())
                  : at::empty({0}, s.options());
  };
  const std::vector<c10::SymInt> width = {s.sym_size(-1)};
  const bool layer = gamma.has_value() && kind == Name(NormKind::kLayer);
  return {empty(true, s.sym_sizes()), empty(probability > 0.0, s.sym_sizes()),
          empty(want_bias, width), empty(gamma.has_value(), width),
          empty(layer, width)};
}

Outputs Call(const at::Tensor& x, const OptionalTensor& residual,
             const OptionalTensor& bias, const OptionalTensor& gamma,
             const OptionalTensor& beta, double eps, double probability,
             const OptionalTensor& seed, c10::string_view kind) {
  static const auto handle = FindOp<Signature>("tarn::residual_norm");
  return handle.call(x, residual, bias, gamma, beta, eps, probability, seed,
                     kind);
}

struct ResidualNormFunction
    : public torch::autograd::Function<ResidualNormFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const OptionalTensor& residual,
                               const OptionalTensor& bias,
                               const OptionalTensor& gamma,
                               const OptionalTensor& beta, double eps,
                               double probability, const OptionalTensor& seed,
                               const std::string& kind) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [y, s, mean, inverse] =
        Call(x, residual, bias, gamma, beta, eps, probability, seed, kind);
    const bool sum_is_x = SumIsX(residual, bias, gamma, probability);
    ctx->save_for_backward({sum_is_x ? x : s, mean, inverse, UndefinedOr(gamma),
                            UndefinedOr(seed)});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->saved_data["residual"] = residual.has_value();
    ctx->saved_data["probability"] = probability;
    ctx->saved_data["kind"] = kind;
    ctx->saved_data["eps"] = eps;
    ctx->set_materialize_grads(false);
    variable_list fixed = {mean, inverse};
    if (sum_is_x) fixed.push_back(s);
    if (!gamma) fixed.push_back(y);
    ctx->mark_non_differentiable(fixed);
    return {y, s, mean, inverse};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const bool has_bias = ctx->saved_data["bias"].toBool();
    const bool has_residual = ctx->saved_data["residual"].toBool();
    const double probability = ctx->saved_data["probability"].toDouble();
    const std::string& kind = ctx->saved_data["kind"].toStringRef();
    const at::Tensor none;
    if (!grads[0].defined() && !grads[1].defined()) {
      return variable_list(9, none);
    }
    if (at::GradMode::is_enabled()) return Differentiable(ctx, saved, grads);
    static const auto handle =
        FindGradientOp<BackwardSignature>("tarn::residual_norm_backward");
    const auto [residual, x, bias, gamma, beta] = handle.call(
        NoneOr(grads[0]), NoneOr(grads[1]), saved[0], saved[1], saved[2],
        NoneOr(saved[3]), has_bias, probability, NoneOr(saved[4]), kind);
    const bool norm = saved[3].defined();
    const bool layer = norm && kind == Name(NormKind::kLayer);
    return {probability > 0.0 ? x : residual,
            has_residual ? residual : none,
            has_bias ? bias : none,
            norm ? gamma : none,
            layer ? beta : none,
            none,
            none,
            none,
            none};
  }

  // The gradient under create_graph, from s: the composed norm's, then through
  // residual, dropout and bias.
  static variable_list Differentiable(AutogradContext* ctx,
                                      const variable_list& saved,
                                      const variable_list& grads) {
    auto& data = ctx->saved_data;
    const at::Tensor &s = saved[0], &gamma = saved[3];
    const auto kind = ParseNormKind(kOp, data["kind"].toStringRef());
    const auto sum = [](const at::Tensor& rows) {
      return rows.reshape({-1, rows.size(-1)}).sum(0);
    };
    variable_list found(9);
    at::Tensor grad_s = grads[1];
    if (grads[0].defined() && gamma.defined()) {
      const variable_list norm = ComposedGradients(
          {s, gamma}, {grads[0]}, [&](const variable_list& in) {
            const OptionalTensor beta =
                kind == NormKind::kLayer
                    ? OptionalTensor(at::zeros_like(in[1].detach()))
                    : std::nullopt;
            return variable_list{
                std::get<0>(Composed(in[0], {}, {}, in[1], beta,
                                     data["eps"].toDouble(), 0.0, {}, kind))};
          });
      grad_s = grad_s.defined() && norm[0].defined() ? grad_s + norm[0]
               : norm[0].defined()                   ? norm[0]
                                                     : grad_s;
      found[3] = norm[1];
      if (kind == NormKind::kLayer) found[4] = sum(grads[0]);
    }
    if (!grad_s.defined()) return found;
    if (data["residual"].toBool()) found[1] = grad_s;
    found[0] = ComposedDropout(grad_s, data["probability"].toDouble(),
                               NoneOr(saved[4]));
    if (data["bias"].toBool()) found[2] = sum(found[0]);
    return found;
  }
};

Outputs ForwardAutograd(const at::Tensor& x, const OptionalTensor& residual,
                        const OptionalTensor& bias, const OptionalTensor& gamma,
                        const OptionalTensor& beta, double eps,
                        double probability, const OptionalTensor& seed,
                        c10::string_view kind) {
  if (!KernelServes(x, residual, bias, gamma, beta)) {
    return ForwardComposed(x, residual, bias, gamma, beta, eps, probability,
                           seed, kind);
  }
  WithTorchErrors(
      [&] { Check(x, residual, bias, gamma, beta, ParseNormKind(kOp, kind)); });
  if (!WantsGradient(x, residual, bias, gamma, beta)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Call(x, residual, bias, gamma, beta, eps, probability, seed, kind);
  }
  const variable_list results =
      ResidualNormFunction::apply(x, residual, bias, gamma, beta, eps,
                                  probability, seed, std::string(kind));
  return {results[0], results[1], results[2], results[3]};
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "residual_norm(Tensor x, Tensor? residual=None, Tensor? bias=None, "
      "Tensor? gamma=None, Tensor? beta=None, float eps=1e-5, "
      "float dropout=0.0, Tensor? seed=None, str kind='layer') -> "
      "(Tensor y, Tensor s, Tensor mean, Tensor inverse)");
  m.def(
      "residual_norm_backward(Tensor? grad_y, Tensor? grad_s, Tensor s, "
      "Tensor mean, Tensor inverse, Tensor? gamma, bool want_bias, "
      "float dropout, Tensor? seed, str kind='layer') -> "
      "(Tensor grad_residual, Tensor grad_x, Tensor grad_bias, "
      "Tensor grad_gamma, Tensor grad_beta)");
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("residual_norm", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("residual_norm", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("residual_norm", &ForwardCpu);
  m.impl("residual_norm_backward", &BackwardCpu);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("residual_norm", &ForwardMeta);
  m.impl("residual_norm_backward", &BackwardMeta);
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("residual_norm", &ForwardAutograd);
}

}  // namespace
}  // namespace residual_norm

ResidualNormResult ResidualNorm(const ResidualNormArguments& a) {
  auto [y, s, mean, inverse] =
      residual_norm::Call(a.x, a.residual, a.bias, a.gamma, a.beta, a.eps,
                          a.dropout.probability, a.dropout.seed, Name(a.kind));
  return {
      a.gamma ? y : at::Tensor(),
      residual_norm::SumIsX(a.residual, a.bias, a.gamma, a.dropout.probability)
          ? a.x
          : s};
}

}  // namespace tarn::ops
