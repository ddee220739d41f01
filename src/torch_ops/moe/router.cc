// torch.ops.tarn.moe_router: the experts of each token and their weights
// (kernels/moe/router.h), and torch.ops.tarn.moe_balance_loss, which keeps a
// router from sending all tokens to a few experts. For T tokens, E experts and
// top_k experts a token (Fedus et al. 2021, arXiv 2101.03961, eq. (4) to (6);
// with top_k > 1 as Mixtral has it, arXiv 2401.04088):
//   loss = E sum_e f_e P_e
//   f_e = (how often e was chosen) / T,  P_e = (sum_t p_te) / T
// p_t = softmax(l_t), or sigma(l_t) over its sum. It is top_k where all experts
// are chosen equally often. Only P has a gradient. No tokens: 0.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/call.h"
#include "torch_ops/moe/moe.h"

namespace tarn::ops {
namespace moe_router {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Outputs = std::tuple<at::Tensor, at::Tensor>;  // weights, chosen
using Signature = Outputs(const at::Tensor&, int64_t, c10::string_view, bool,
                          double, const OptionalTensor&);
using BackwardSignature = at::Tensor(const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, c10::string_view, bool,
                                     double);

constexpr char kOp[] = "moe_router";
// What the kernel adds to the sum of the chosen sigmoids.
constexpr double kLeastSum = 1e-20;

RouterScores ParseScores(const char* op, c10::string_view word) {
  if (word == "softmax") return RouterScores::kSoftmax;
  if (word == "sigmoid") return RouterScores::kSigmoid;
  throw ArgumentError(StrCat(op, ": scores"), "softmax or sigmoid",
                      std::string(word));
}

RouterOptions Check(const at::Tensor& logits, int64_t top_k,
                    c10::string_view scores, bool normalize, double scale,
                    const OptionalTensor& bias = {}) {
  const RouterScores parsed = ParseScores(kOp, scores);
  if (logits.dim() < 1) {
    throw ShapeError(StrCat(kOp, ": logits"), "[..., experts]", "no axes");
  }
  if (!at::isFloatingType(logits.scalar_type())) {
    throw DTypeError(StrCat(kOp, ": logits"), "a floating dtype",
                     c10::toString(logits.scalar_type()));
  }
  if (top_k < 1 || logits.sym_size(-1) < top_k) {
    throw ArgumentError(StrCat(kOp, ": top_k"),
                        StrCat("1 to ", logits.sym_size(-1)), StrCat(top_k));
  }
  if (bias && parsed != RouterScores::kSigmoid) {
    throw ArgumentError(StrCat(kOp, ": bias"), "none with softmax scores",
                        "a tensor");
  }
  if (bias && (bias->dim() != 1 || bias->sym_size(0) != logits.sym_size(-1))) {
    throw ShapeError(StrCat(kOp, ": bias"),
                     StrCat("[", logits.sym_size(-1), "]"),
                     StrCat(bias->sym_sizes()));
  }
  return {parsed, top_k, normalize, scale};
}

// A stable sort has the kernel's order of ties, and torch's NaN is the largest
// number, too.
Outputs Composed(const at::Tensor& logits, const RouterOptions& options,
                 const OptionalTensor& bias) {
  at::Tensor keys = logits.detach();
  if (bias) keys = at::sigmoid(keys) + bias->detach();
  const at::Tensor chosen =
      std::get<1>(at::sort(keys, /*stable=*/true, /*dim=*/-1,
                           /*descending=*/true))
          .narrow(-1, 0, options.top_k);
  const bool sigmoid = options.scores == RouterScores::kSigmoid;
  at::Tensor weights;
  if (sigmoid) {
    weights = at::sigmoid(logits.gather(-1, chosen));
    if (options.normalize) {
      weights = weights / (weights.sum(-1, true) + kLeastSum);
    }
  } else if (options.normalize) {
    weights = at::softmax(logits.gather(-1, chosen), -1);
  } else {
    weights = at::softmax(logits, -1).gather(-1, chosen);
  }
  if (options.scale != 1.0) weights = weights * options.scale;
  return {weights, chosen};
}

Outputs ForwardComposed(const at::Tensor& logits, int64_t top_k,
                        c10::string_view scores, bool normalize, double scale,
                        const OptionalTensor& bias) {
  return WithTorchErrors([&]() -> Outputs {
    const auto [weights, chosen] = Composed(
        logits, Check(logits, top_k, scores, normalize, scale, bias), bias);
    return {weights, chosen.contiguous()};
  });
}

Outputs ForwardCpu(const at::Tensor& logits, int64_t top_k,
                   c10::string_view scores, bool normalize, double scale,
                   const OptionalTensor& bias) {
  if (!KernelServes(logits)) {
    return ForwardComposed(logits, top_k, scores, normalize, scale, bias);
  }
  return WithTorchErrors([&]() -> Outputs {
    RouterOptions options =
        Check(logits, top_k, scores, normalize, scale, bias);
    at::Tensor biases;
    if (bias) {
      biases = bias->to(at::kFloat).contiguous();
      options.bias = biases.const_data_ptr<float>();
    }
    const at::Tensor rows = AsRows(logits);
    const std::vector<int64_t> shape = WithLast(logits, top_k);
    const at::Tensor weights = EmptyDense(shape);
    const at::Tensor chosen = EmptyDense(shape, at::kLong);
    TorchExecutor executor(WorkersFor(rows.numel()));
    RouterForward(options, rows.size(0), rows.size(1),
                  rows.const_data_ptr<float>(), chosen.data_ptr<int64_t>(),
                  weights.data_ptr<float>(), executor);
    return {weights, chosen};
  });
}

at::Tensor BackwardCpu(const at::Tensor& grad_weights, const at::Tensor& logits,
                       const at::Tensor& chosen, c10::string_view scores,
                       bool normalize, double scale) {
  return WithTorchErrors([&] {
    const RouterOptions options =
        Check(logits, chosen.size(-1), scores, normalize, scale);
    WantLike(kOp, "logits", logits, logits, logits.sym_sizes());
    if (logits.scalar_type() != at::kFloat) {
      throw DTypeError("moe_router_backward: logits", "float32",
                       c10::toString(logits.scalar_type()));
    }
    if (chosen.scalar_type() != at::kLong ||
        chosen.sizes() != at::IntArrayRef(WithLast(logits, options.top_k))) {
      throw ShapeError("moe_router_backward: chosen", "int64 [..., top_k]",
                       StrCat(chosen.sizes()));
    }
    WantLike(kOp, "grad_weights", grad_weights, logits, chosen.sym_sizes());
    const at::Tensor rows = AsRows(logits), grad = grad_weights.contiguous();
    const at::Tensor own = chosen.contiguous();
    const at::Tensor grad_logits = EmptyDense(rows.sizes());
    TorchExecutor executor(WorkersFor(rows.numel()));
    RouterBackward(options, rows.size(0), rows.size(1),
                   rows.const_data_ptr<float>(), own.const_data_ptr<int64_t>(),
                   grad.const_data_ptr<float>(), grad_logits.data_ptr<float>(),
                   executor);
    return grad_logits.view(logits.sizes());
  });
}

Outputs ForwardMeta(const at::Tensor& logits, int64_t top_k,
                    c10::string_view scores, bool normalize, double scale,
                    const OptionalTensor& bias) {
  return WithTorchErrors([&]() -> Outputs {
    Check(logits, top_k, scores, normalize, scale, bias);
    const std::vector<c10::SymInt> shape = WithLast(logits, c10::SymInt(top_k));
    return {at::empty_symint(shape, logits.options()),
            at::empty_symint(shape, logits.options().dtype(at::kLong))};
  });
}

at::Tensor BackwardMeta(const at::Tensor&, const at::Tensor& logits,
                        const at::Tensor&, c10::string_view, bool, double) {
  return at::empty_symint(logits.sym_sizes(), logits.options());
}

Outputs Call(const at::Tensor& logits, int64_t top_k, c10::string_view scores,
             bool normalize, double scale, const OptionalTensor& bias) {
  static const auto handle = FindOp<Signature>("tarn::moe_router");
  return handle.call(logits, top_k, scores, normalize, scale, bias);
}

struct RouterFunction : public torch::autograd::Function<RouterFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& logits,
                               int64_t top_k, const std::string& scores,
                               bool normalize, double scale,
                               const OptionalTensor& bias) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [weights, chosen] =
        Call(logits, top_k, scores, normalize, scale, bias);
    ctx->save_for_backward({logits, chosen, bias.value_or(at::Tensor())});
    ctx->saved_data["scores"] = scores;
    ctx->saved_data["normalize"] = normalize;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["top_k"] = top_k;
    ctx->mark_non_differentiable({chosen});
    ctx->set_materialize_grads(false);
    return {weights, chosen};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    if (!grads[0].defined()) return variable_list(6);
    const std::string& scores = ctx->saved_data["scores"].toStringRef();
    const bool normalize = ctx->saved_data["normalize"].toBool();
    const double scale = ctx->saved_data["scale"].toDouble();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      const RouterOptions options = {ParseScores(kOp, scores),
                                     ctx->saved_data["top_k"].toInt(),
                                     normalize, scale};
      variable_list found =
          ComposedGradients({s[0]}, {grads[0]}, [&](const variable_list& in) {
            return variable_list{
                std::get<0>(Composed(in[0], options, NoneOr(s[2])))};
          });
      found.resize(6);
      return found;
    }
    static const auto handle =
        FindGradientOp<BackwardSignature>("tarn::moe_router_backward");
    variable_list found(6);
    found[0] = handle.call(grads[0], s[0], s[1], scores, normalize, scale);
    return found;
  }
};

Outputs ForwardAutograd(const at::Tensor& logits, int64_t top_k,
                        c10::string_view scores, bool normalize, double scale,
                        const OptionalTensor& bias) {
  if (!KernelServes(logits)) {
    return ForwardComposed(logits, top_k, scores, normalize, scale, bias);
  }
  WithTorchErrors(
      [&] { Check(logits, top_k, scores, normalize, scale, bias); });
  if (!WantsGradient(logits)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Call(logits, top_k, scores, normalize, scale, bias);
  }
  const variable_list results = RouterFunction::apply(
      logits, top_k, std::string(scores), normalize, scale, bias);
  return {results[0], results[1]};
}

at::Tensor Balance(const at::Tensor& logits, const at::Tensor& chosen,
                   c10::string_view scores) {
  return WithTorchErrors([&]() -> at::Tensor {
    const bool sigmoid =
        ParseScores("moe_balance_loss", scores) == RouterScores::kSigmoid;
    if (logits.dim() < 1 || chosen.dim() != logits.dim() ||
        chosen.scalar_type() != at::kLong) {
      throw ShapeError("moe_balance_loss: logits, chosen",
                       "[..., experts] and int64 [..., top_k]",
                       StrCat(logits.sym_sizes(), " and ", chosen.sym_sizes()));
    }
    const at::Tensor rows =
        Wide(logits).reshape_symint({-1, logits.sym_size(-1)});
    at::Tensor p = sigmoid ? at::sigmoid(rows) : at::softmax(rows, -1);
    if (sigmoid) p = p / (p.sum(-1, true) + kLeastSum);
    const at::Tensor own = chosen.reshape({-1});
    const at::Tensor counts =
        at::zeros_symint({rows.sym_size(1)}, rows.options())
            .scatter_add(0, own, at::ones_like(own, rows.scalar_type()));
    const c10::SymInt tokens = rows.sym_size(0);
    const at::Tensor sum = (counts * p.sum(0)).sum();
    if (tokens == 0) return sum;
    const c10::SymFloat factor =
        c10::SymFloat(rows.sym_size(1)) / (c10::SymFloat(tokens) * tokens);
    return sum * factor.guard_float(__FILE__, __LINE__);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "moe_router(Tensor logits, int top_k, str scores='softmax', "
      "bool normalize=True, float scale=1.0, Tensor? bias=None) -> "
      "(Tensor weights, Tensor chosen)");
  m.def(
      "moe_router_backward(Tensor grad_weights, Tensor logits, "
      "Tensor chosen, str scores, bool normalize, float scale) -> Tensor");
  m.def(
      "moe_balance_loss(Tensor logits, Tensor chosen, str scores='softmax') "
      "-> Tensor",
      &Balance);
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("moe_router", &ForwardCpu);
  m.impl("moe_router_backward", &BackwardCpu);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("moe_router", &ForwardMeta);
  m.impl("moe_router_backward", &BackwardMeta);
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("moe_router", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("moe_router", &ForwardComposed);
  m.impl("moe_balance_loss", &Balance);
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("moe_router", &ForwardAutograd);
}

}  // namespace
}  // namespace moe_router

const char* Name(RouterScores scores) {
  return scores == RouterScores::kSoftmax ? "softmax" : "sigmoid";
}

std::pair<at::Tensor, at::Tensor> Route(const at::Tensor& logits,
                                        const RouterOptions& options,
                                        const OptionalTensor& bias) {
  const auto [weights, chosen] =
      moe_router::Call(logits, options.top_k, Name(options.scores),
                       options.normalize, options.scale, bias);
  return {weights, chosen};
}

at::Tensor BalanceLoss(const at::Tensor& logits, const at::Tensor& chosen,
                       RouterScores scores) {
  return moe_router::Balance(logits, chosen, Name(scores));
}

}  // namespace tarn::ops
