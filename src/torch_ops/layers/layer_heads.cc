// torch.ops.tarn.layer_heads: a norm and the maps that read it, side by side in
// one result (kernels/layer_heads). float32 on the CPU runs the kernel, once
// differentiable; anything else, autocast included, is a norm and a product.
#include "kernels/layer_heads/layer_heads.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace layer_heads {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using TensorList = std::vector<at::Tensor>;

constexpr char kOp[] = "layer_heads";

// A call's arguments by kind; biases: none, or one a weight.
struct Arguments {
  at::Tensor x;
  TensorList weights, biases;
  at::Tensor gamma, beta;  // undefined where absent
  double eps = 1e-5;
  NormKind kind = NormKind::kLayer;

  // All tensors in one list, as autograd takes them.
  TensorList Flat() const {
    TensorList flat = {x};
    flat.insert(flat.end(), weights.begin(), weights.end());
    flat.insert(flat.end(), biases.begin(), biases.end());
    if (gamma.defined()) flat.push_back(gamma);
    if (beta.defined()) flat.push_back(beta);
    return flat;
  }
  // The same arguments with the tensors of another such list.
  Arguments With(at::TensorList flat) const {
    Arguments other = *this;
    size_t i = 0;
    other.x = flat[i++];
    for (at::Tensor& weight : other.weights) weight = flat[i++];
    for (at::Tensor& bias : other.biases) bias = flat[i++];
    if (gamma.defined()) other.gamma = flat[i++];
    if (beta.defined()) other.beta = flat[i++];
    return other;
  }
  c10::SymInt outputs() const {
    c10::SymInt sum = 0;
    for (const at::Tensor& weight : weights) sum += weight.sym_size(0);
    return sum;
  }
};

// y, mean, inverse; the last two [0] where there is no such number.
using Outputs = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using ForwardSignature = Outputs(const at::Tensor&, at::TensorList,
                                 at::TensorList, const OptionalTensor&,
                                 const OptionalTensor&, double,
                                 c10::string_view);
using BackwardSignature = TensorList(const at::Tensor&, const at::Tensor&,
                                     at::TensorList, at::TensorList,
                                     const OptionalTensor&,
                                     const OptionalTensor&, double,
                                     c10::string_view, const at::Tensor&,
                                     const at::Tensor&);

Arguments Listed(const at::Tensor& x, at::TensorList weights,
                 at::TensorList biases, const OptionalTensor& gamma,
                 const OptionalTensor& beta, double eps,
                 c10::string_view kind) {
  return {x,
          weights.vec(),
          biases.vec(),
          UndefinedOr(gamma),
          UndefinedOr(beta),
          eps,
          ParseNormKind(kOp, kind)};
}

void Check(const Arguments& a) {
  if (a.weights.empty() ||
      static_cast<int64_t>(a.weights.size()) > kMostHeadMaps) {
    throw ArgumentError(StrCat(kOp, ": weights"),
                        StrCat("1 to ", kMostHeadMaps),
                        StrCat(a.weights.size()));
  }
  if (!a.biases.empty() && a.biases.size() != a.weights.size()) {
    throw ArgumentError(StrCat(kOp, ": biases"),
                        StrCat("none, or ", a.weights.size()),
                        StrCat(a.biases.size()));
  }
  if (a.x.dim() < 1) throw ShapeError("layer_heads: x", "[..., D]", "a scalar");
  const c10::SymInt width = a.x.sym_size(-1);
  for (size_t i = 0; i < a.weights.size(); ++i) {
    if (a.weights[i].dim() != 2) {
      throw ShapeError(StrCat(kOp, ": weights"), "[E, D]",
                       StrCat(a.weights[i].dim(), " axes"));
    }
    const c10::SymInt outputs = a.weights[i].sym_size(0);
    WantLike(kOp, "weights", a.weights[i], a.x, {outputs, width});
    if (!a.biases.empty()) WantLike(kOp, "biases", a.biases[i], a.x, {outputs});
  }
  if (a.gamma.defined()) WantLike(kOp, "gamma", a.gamma, a.x, {width});
  if (a.beta.defined()) WantLike(kOp, "beta", a.beta, a.x, {width});
  const bool wanted = a.gamma.defined() && a.kind == NormKind::kLayer;
  if (wanted == a.beta.defined()) return;
  throw ArgumentError(
      "layer_heads: beta",
      wanted ? "a tensor with a layer norm" : "none without a layer norm",
      a.beta.defined() ? "a tensor" : "none");
}

// A norm and one product for all maps.
at::Tensor Chain(const Arguments& a) {
  at::Tensor n = a.x;
  if (a.gamma.defined()) {
    ResidualNormArguments norm;
    norm.x = a.x;
    norm.gamma = a.gamma;
    norm.beta = NoneOr(a.beta);
    norm.eps = a.eps;
    norm.kind = a.kind;
    n = ResidualNorm(norm).y;
  }
  return Affine(n, at::cat(a.weights),
                a.biases.empty() ? OptionalTensor() : at::cat(a.biases));
}

// Dense tensors, and a call in the kernel's terms.
struct Call {
  TensorList held;
  std::vector<LayerHeadsMap> maps;
  LayerHeadsCall call;

  explicit Call(const Arguments& a) {
    for (const at::Tensor& tensor : a.Flat()) {
      held.push_back(tensor.contiguous());
    }
    const Arguments dense = a.With(held);
    for (size_t i = 0; i < a.weights.size(); ++i) {
      maps.push_back(
          {dense.weights[i].const_data_ptr<float>(),
           a.biases.empty() ? nullptr : dense.biases[i].const_data_ptr<float>(),
           a.weights[i].size(0)});
    }
    call.width = a.x.size(-1);
    call.rows = 1;
    for (int64_t i = 0; i + 1 < a.x.dim(); ++i) call.rows *= a.x.size(i);
    call.x = dense.x.const_data_ptr<float>();
    if (a.gamma.defined()) call.gamma = dense.gamma.const_data_ptr<float>();
    if (a.beta.defined()) call.beta = dense.beta.const_data_ptr<float>();
    call.eps = a.eps;
    call.norm_kind = a.kind;
    call.maps = maps.data();
    call.count = static_cast<int64_t>(maps.size());
  }
  void Leave(const at::Tensor& mean, const at::Tensor& inverse) {
    const auto at = [](const at::Tensor& tensor) {
      return tensor.numel() == 0 ? nullptr : tensor.data_ptr<float>();
    };
    if (call.gamma != nullptr) {
      held.push_back(EmptyDense({call.rows, call.width}));
      call.n = held.back().data_ptr<float>();
    }
    call.mean = at(mean);
    call.inverse = at(inverse);
  }
};

template <typename Make>
Outputs Results(const Arguments& a, const Make& make) {
  const std::vector<c10::SymInt> rows(a.x.sym_sizes().begin(),
                                      a.x.sym_sizes().end() - 1);
  const bool norm = a.gamma.defined();
  const auto made = [&](bool wanted, c10::SymIntArrayRef shape) {
    return wanted ? make(shape) : at::empty({0}, a.x.options());
  };
  return {make(WithLast(a.x, a.outputs())),
          made(norm && a.kind == NormKind::kLayer, rows), made(norm, rows)};
}

void WantFloat(const char* name, const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return;
  throw DTypeError(StrCat(name, ": x"), "float32",
                   c10::toString(x.scalar_type()));
}

Outputs ForwardCpu(const at::Tensor& x, at::TensorList weights,
                   at::TensorList biases, const OptionalTensor& gamma,
                   const OptionalTensor& beta, double eps,
                   c10::string_view kind) {
  return WithTorchErrors([&] {
    const Arguments a = Listed(x, weights, biases, gamma, beta, eps, kind);
    Check(a);
    WantFloat("layer_heads_forward", x);
    const Outputs out = Results(a, [](c10::SymIntArrayRef shape) {
      return EmptyDense(C10_AS_INTARRAYREF_SLOW(shape));
    });
    const auto& [y, mean, inverse] = out;
    Call call(a);
    call.Leave(mean, inverse);
    call.call.y = y.data_ptr<float>();
    TorchExecutor executor;
    const at::Tensor workspace =
        EmptyDense({LayerHeadsWorkspaceFloats(call.call, executor)});
    LayerHeadsForward(call.call, workspace.data_ptr<float>(), executor);
    return out;
  });
}

Outputs ForwardMeta(const at::Tensor& x, at::TensorList weights,
                    at::TensorList biases, const OptionalTensor& gamma,
                    const OptionalTensor& beta, double eps,
                    c10::string_view kind) {
  return WithTorchErrors([&] {
    const Arguments a = Listed(x, weights, biases, gamma, beta, eps, kind);
    Check(a);
    return Results(a, [&](c10::SymIntArrayRef shape) {
      return at::empty_symint(shape, x.options());
    });
  });
}

// Gradients in the order of Arguments::Flat.
TensorList BackwardCpu(const at::Tensor& grad_y, const at::Tensor& x,
                       at::TensorList weights, at::TensorList biases,
                       const OptionalTensor& gamma, const OptionalTensor& beta,
                       double eps, c10::string_view kind,
                       const at::Tensor& mean, const at::Tensor& inverse) {
  return WithTorchErrors([&] {
    const Arguments a = Listed(x, weights, biases, gamma, beta, eps, kind);
    Check(a);
    WantFloat("layer_heads_backward", x);
    WantLike("layer_heads_backward", "grad_y", grad_y, x,
             WithLast(x, a.outputs()));
    Call call(a);
    call.Leave(mean, inverse);
    TensorList found;
    for (const at::Tensor& tensor : a.Flat()) {
      found.push_back(EmptyDense(tensor.sizes()));
    }
    const Arguments into = a.With(found);
    const at::Tensor grad = grad_y.contiguous();
    LayerHeadsGradients g;
    g.grad_y = grad.const_data_ptr<float>();
    g.grad_x = into.x.data_ptr<float>();
    if (a.gamma.defined()) g.grad_gamma = into.gamma.data_ptr<float>();
    if (a.beta.defined()) g.grad_beta = into.beta.data_ptr<float>();
    for (size_t i = 0; i < a.weights.size(); ++i) {
      g.grad_weights[i] = into.weights[i].data_ptr<float>();
      if (!a.biases.empty()) {
        g.grad_biases[i] = into.biases[i].data_ptr<float>();
      }
    }
    TorchExecutor executor;
    const at::Tensor workspace =
        EmptyDense({LayerHeadsGradientWorkspaceFloats(call.call, executor)});
    LayerHeadsBackward(call.call, g, workspace.data_ptr<float>(), executor);
    return found;
  });
}

TensorList BackwardMeta(const at::Tensor&, const at::Tensor& x,
                        at::TensorList weights, at::TensorList biases,
                        const OptionalTensor& gamma, const OptionalTensor& beta,
                        double eps, c10::string_view kind, const at::Tensor&,
                        const at::Tensor&) {
  TensorList found;
  for (const at::Tensor& tensor :
       Listed(x, weights, biases, gamma, beta, eps, kind).Flat()) {
    found.push_back(at::empty_symint(tensor.sym_sizes(), tensor.options()));
  }
  return found;
}

Outputs CallForward(const Arguments& a) {
  static const auto handle =
      FindOp<ForwardSignature>("tarn::layer_heads_forward");
  return handle.call(a.x, a.weights, a.biases, NoneOr(a.gamma), NoneOr(a.beta),
                     a.eps, Name(a.kind));
}

struct LayerHeadsFunction
    : public torch::autograd::Function<LayerHeadsFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, at::TensorList flat,
                            const Arguments& like) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [y, mean, inverse] = CallForward(like.With(flat));
    variable_list saved = flat.vec();
    saved.insert(saved.end(), {mean, inverse});
    ctx->save_for_backward(saved);
    ctx->saved_data["weights"] = static_cast<int64_t>(like.weights.size());
    ctx->saved_data["biases"] = static_cast<int64_t>(like.biases.size());
    ctx->saved_data["gamma"] = like.gamma.defined();
    ctx->saved_data["beta"] = like.beta.defined();
    ctx->saved_data["eps"] = like.eps;
    ctx->saved_data["kind"] = std::string(Name(like.kind));
    ctx->set_materialize_grads(false);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const variable_list flat(saved.begin(), saved.end() - 2);
    if (!grads[0].defined()) return variable_list(flat.size() + 1);
    auto& data = ctx->saved_data;
    Arguments like;
    like.weights.resize(static_cast<size_t>(data["weights"].toInt()));
    like.biases.resize(static_cast<size_t>(data["biases"].toInt()));
    if (data["gamma"].toBool()) like.gamma = flat[0];
    if (data["beta"].toBool()) like.beta = flat[0];
    like.eps = data["eps"].toDouble();
    like.kind = ParseNormKind(kOp, data["kind"].toStringRef());
    variable_list found;
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      found = ComposedGradients(flat, grads, [&](const variable_list& inputs) {
        return variable_list{Chain(like.With(inputs))};
      });
    } else {
      const Arguments a = like.With(flat);
      const size_t last = saved.size();
      static const auto handle =
          FindGradientOp<BackwardSignature>("tarn::layer_heads_backward");
      found = handle.call(grads[0], a.x, a.weights, a.biases, NoneOr(a.gamma),
                          NoneOr(a.beta), a.eps, Name(a.kind), saved[last - 2],
                          saved[last - 1]);
    }
    found.emplace_back();  // none for the settings
    return found;
  }
};

at::Tensor Forward(const Arguments& a) {
  // Rows come in several types under autocast: each operator casts its own.
  if (AutocastOn(a.x)) return Chain(a);
  WithTorchErrors([&] { Check(a); });
  bool served = KernelServes(a.x);
  bool wants = false;
  const bool tangents = TangentsExist();
  const TensorList flat = a.Flat();
  for (const at::Tensor& tensor : flat) {
    served = served && !(tangents && HasTangent(tensor));
    wants = wants || WantsGradient(tensor);
  }
  if (!served) return Chain(a);
  if (!wants) return std::get<0>(CallForward(a));
  return LayerHeadsFunction::apply(at::TensorList(flat), a);
}

at::Tensor ForwardOp(const at::Tensor& x, at::TensorList weights,
                     at::TensorList biases, const OptionalTensor& gamma,
                     const OptionalTensor& beta, double eps,
                     c10::string_view kind) {
  return WithTorchErrors([&] {
    return Forward(Listed(x, weights, biases, gamma, beta, eps, kind));
  });
}

#define TARN_LAYER_HEADS_ARGUMENTS                                    \
  "Tensor x, Tensor[] weights, Tensor[] biases, Tensor? gamma=None, " \
  "Tensor? beta=None, float eps=1e-5, str norm_kind='layer'"

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("layer_heads(" TARN_LAYER_HEADS_ARGUMENTS ") -> Tensor", &ForwardOp);
  m.def("layer_heads_forward(" TARN_LAYER_HEADS_ARGUMENTS
        ") -> (Tensor y, Tensor mean, Tensor inverse)");
  m.def("layer_heads_backward(Tensor grad_y, " TARN_LAYER_HEADS_ARGUMENTS
        ", *, Tensor mean, Tensor inverse) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("layer_heads_forward", &ForwardCpu);
  m.impl("layer_heads_backward", &BackwardCpu);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("layer_heads", &ForwardOp);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("layer_heads_forward", &ForwardMeta);
  m.impl("layer_heads_backward", &BackwardMeta);
}

}  // namespace
}  // namespace layer_heads

at::Tensor LayerHeads(const LayerHeadsArguments& a) {
  return layer_heads::Forward({a.x, a.weights, a.biases, UndefinedOr(a.gamma),
                               UndefinedOr(a.beta), a.eps, a.norm_kind});
}

}  // namespace tarn::ops
