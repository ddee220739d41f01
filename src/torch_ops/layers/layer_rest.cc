// torch.ops.tarn.layer_rest: what a transformer layer does after its mixer, in
// one call (kernels/layer_rest). float32 on the CPU runs the kernel, once
// differentiable; anything else, autocast included, is the same operators one
// by one.
#include "kernels/layer_rest/layer_rest.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace layer_rest {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using TensorList = std::vector<at::Tensor>;

constexpr char kOp[] = "layer_rest";

// Places in the list of inputs; absent ones are undefined.
enum Input {
  kX,
  kMixed,
  kOutWeight,
  kOutBias,
  kGamma,
  kBeta,
  kWeight1,
  kBias1,
  kWeight2,
  kBias2,
  kEndGamma,
  kEndBeta,
  kInputs
};
// And of what the kernel leaves.
enum Output {
  kY,
  kS,
  kN,
  kKept,
  kMean,
  kInverse,
  kEndS,
  kEndMean,
  kEndInverse,
  kOutputs
};

// Everything but the tensors of floats.
struct Settings {
  double eps = 1e-5;
  std::string activation = "relu";
  std::string norm_kind = "layer";
  std::vector<double> dropout;  // three probabilities; empty: zeros
  OptionalTensor seeds;         // int64 [3]

  bool relu() const {
    return ParseActivation(kOp, activation) == Activation::kRelu;
  }
  NormKind norm() const { return ParseNormKind(kOp, norm_kind); }
  double probability(size_t site) const {
    return dropout.empty() ? 0.0 : dropout[site];
  }
  Dropout At(size_t site) const {
    if (probability(site) == 0.0) return {};
    return {probability(site), seeds->select(0, static_cast<int64_t>(site))};
  }
};

using ForwardSignature = TensorList(
    const at::Tensor&, const at::Tensor&, const at::Tensor&,
    const OptionalTensor&, const at::Tensor&, const OptionalTensor&,
    const at::Tensor&, const at::Tensor&, const at::Tensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, double,
    c10::string_view, c10::string_view, at::ArrayRef<double>,
    const OptionalTensor&);
using BackwardSignature = TensorList(const at::Tensor&, at::TensorList,
                                     at::TensorList, double, c10::string_view,
                                     c10::string_view, at::ArrayRef<double>,
                                     const OptionalTensor&);

OptionalTensor Optional(const at::Tensor& tensor) { return NoneOr(tensor); }

void WantNorm(const char* gamma_name, const at::Tensor& gamma,
              const char* beta_name, const at::Tensor& beta,
              const at::Tensor& x, NormKind kind) {
  if (gamma.defined()) {
    WantLike(kOp, gamma_name, gamma, x, {x.sym_size(-1)});
  }
  if (beta.defined()) WantLike(kOp, beta_name, beta, x, {x.sym_size(-1)});
  const bool wanted = gamma.defined() && kind == NormKind::kLayer;
  if (wanted == beta.defined()) return;
  throw ArgumentError(
      StrCat(kOp, ": ", beta_name),
      wanted ? "a tensor beside a layer norm" : "none without a layer norm",
      beta.defined() ? "a tensor" : "none");
}

void Check(const TensorList& in, const Settings& settings) {
  const at::Tensor &x = in[kX], &mixed = in[kMixed];
  if (x.dim() < 1 || mixed.dim() != x.dim() || in[kOutWeight].dim() != 2 ||
      in[kWeight1].dim() != 2) {
    throw ShapeError(
        StrCat(kOp, ": x, mixed, out_weight, weight1"),
        "[..., D], [..., V], [D, V] and [F, D]",
        StrCat(x.dim(), ", ", mixed.dim(), ", ", in[kOutWeight].dim(), " and ",
               in[kWeight1].dim(), " axes"));
  }
  const c10::SymInt width = x.sym_size(-1), hidden = in[kWeight1].sym_size(0);
  WantLike(kOp, "mixed", mixed, x, WithLast(x, mixed.sym_size(-1)));
  WantLike(kOp, "out_weight", in[kOutWeight], x, {width, mixed.sym_size(-1)});
  if (in[kOutBias].defined()) {
    WantLike(kOp, "out_bias", in[kOutBias], x, {width});
  }
  WantNorm("gamma", in[kGamma], "beta", in[kBeta], x, settings.norm());
  WantLike(kOp, "weight1", in[kWeight1], x, {hidden, width});
  WantLike(kOp, "bias1", in[kBias1], x, {hidden});
  WantLike(kOp, "weight2", in[kWeight2], x, {width, hidden});
  if (in[kBias2].defined()) WantLike(kOp, "bias2", in[kBias2], x, {width});
  WantNorm("end_gamma", in[kEndGamma], "end_beta", in[kEndBeta], x,
           settings.norm());
  (void)settings.relu();  // a known name
  if (!settings.dropout.empty() && settings.dropout.size() != 3) {
    throw ArgumentError(StrCat(kOp, ": dropout"), "three probabilities or none",
                        StrCat(settings.dropout.size()));
  }
  for (const double probability : settings.dropout) {
    (void)MakeDropoutKey({probability, 0});
    if (probability == 0.0) continue;
    if (!settings.seeds || settings.seeds->scalar_type() != at::kLong ||
        settings.seeds->sym_sizes() != c10::SymIntArrayRef({3})) {
      throw ArgumentError(StrCat(kOp, ": seeds"),
                          "int64 [3] beside dropout > 0",
                          settings.seeds ? "another tensor" : "none");
    }
  }
}

// The operators one by one.
at::Tensor Chain(const TensorList& in, const Settings& settings) {
  ResidualNormArguments first;
  first.x = Affine(in[kMixed], in[kOutWeight]);
  first.residual = in[kX];
  first.bias = Optional(in[kOutBias]);
  first.gamma = in[kGamma];
  first.beta = Optional(in[kBeta]);
  first.eps = settings.eps;
  first.kind = settings.norm();
  first.dropout = settings.At(0);
  const auto [n, s] = ResidualNorm(first);
  const bool post = in[kEndGamma].defined();
  ResidualNormArguments last;
  last.x = FeedForward(n, in[kWeight1], in[kBias1], in[kWeight2],
                       ParseActivation(kOp, settings.activation),
                       settings.At(1));
  last.residual = post ? n : s;
  last.bias = Optional(in[kBias2]);
  last.gamma = Optional(in[kEndGamma]);
  last.beta = Optional(in[kEndBeta]);
  last.eps = settings.eps;
  last.kind = settings.norm();
  last.dropout = settings.At(2);
  const auto [y, sum] = ResidualNorm(last);
  return post ? y : sum;
}

// Dense inputs, and the kernel's words for a call.
struct Call {
  TensorList held;
  LayerRestOptions options;
  LayerRestShape shape;
  LayerRestWeights weights;
  LayerRestTensors tensors;

  Call(const TensorList& in, const Settings& settings) {
    for (const at::Tensor& tensor : in) {
      held.push_back(tensor.defined() ? tensor.contiguous() : tensor);
    }
    options.activation =
        settings.relu() ? Nonlinearity::kRelu : Nonlinearity::kGelu;
    options.norm_kind = settings.norm();
    options.eps = settings.eps;
    DropoutOptions* const sites[] = {&options.mixed_dropout,
                                     &options.hidden_dropout,
                                     &options.branch_dropout};
    for (size_t site = 0; site < 3; ++site) {
      const Dropout dropout = settings.At(site);
      *sites[site] = KernelDropout(kOp, dropout.probability, dropout.seed);
    }
    shape.width = held[kX].size(-1);
    shape.mixed = held[kMixed].size(-1);
    shape.hidden = held[kWeight1].size(0);
    shape.rows = 1;
    for (int64_t i = 0; i + 1 < held[kX].dim(); ++i) {
      shape.rows *= held[kX].size(i);
    }
    weights = {Data(kOutWeight), Data(kOutBias), Data(kGamma),
               Data(kBeta),      Data(kWeight1), Data(kBias1),
               Data(kWeight2),   Data(kBias2),   Data(kEndGamma),
               Data(kEndBeta)};
    tensors.x = Data(kX);
    tensors.mixed = Data(kMixed);
  }

  const float* Data(Input place) const {
    return held[place].defined() ? held[place].const_data_ptr<float>()
                                 : nullptr;
  }

  // Where the results lie; [0] tensors are null.
  void Leave(const TensorList& out) {
    const auto at = [&](Output place) {
      const at::Tensor& tensor = out[place];
      return tensor.numel() == 0 ? nullptr : tensor.data_ptr<float>();
    };
    tensors.y = at(kY);
    tensors.s = at(kS);
    tensors.n = at(kN);
    tensors.kept = at(kKept);
    tensors.mean = at(kMean);
    tensors.inverse = at(kInverse);
    tensors.end_s = at(kEndS);
    tensors.end_mean = at(kEndMean);
    tensors.end_inverse = at(kEndInverse);
  }
};

// Results of the shapes that the kernel leaves; `make` makes one of a shape.
template <typename Make>
TensorList Results(const TensorList& in, const Settings& settings,
                   const Make& make) {
  const at::Tensor& x = in[kX];
  const bool layer = settings.norm() == NormKind::kLayer;
  const bool post = in[kEndGamma].defined();
  const std::vector<c10::SymInt> rows(x.sym_sizes().begin(),
                                      x.sym_sizes().end() - 1);
  const auto made = [&](bool wanted, c10::SymIntArrayRef shape) {
    return wanted ? make(shape) : at::empty({0}, x.options());
  };
  const c10::SymIntArrayRef whole = x.sym_sizes();
  return {made(true, whole),
          made(true, whole),
          made(true, whole),
          made(true, WithLast(x, in[kWeight1].sym_size(0))),
          made(layer, rows),
          made(true, rows),
          made(post, whole),
          made(post && layer, rows),
          made(post, rows)};
}

at::Tensor MakeDense(c10::SymIntArrayRef shape) {
  return EmptyDense(C10_AS_INTARRAYREF_SLOW(shape));
}

TensorList Listed(const at::Tensor& x, const at::Tensor& mixed,
                  const at::Tensor& out_weight, const OptionalTensor& out_bias,
                  const at::Tensor& gamma, const OptionalTensor& beta,
                  const at::Tensor& weight1, const at::Tensor& bias1,
                  const at::Tensor& weight2, const OptionalTensor& bias2,
                  const OptionalTensor& end_gamma,
                  const OptionalTensor& end_beta) {
  return {x,
          mixed,
          out_weight,
          UndefinedOr(out_bias),
          gamma,
          UndefinedOr(beta),
          weight1,
          bias1,
          weight2,
          UndefinedOr(bias2),
          UndefinedOr(end_gamma),
          UndefinedOr(end_beta)};
}

template <typename Form>
TensorList ForwardOf(const Form& form, const TensorList& in, double eps,
                     c10::string_view activation, c10::string_view norm_kind,
                     at::ArrayRef<double> dropout,
                     const OptionalTensor& seeds) {
  return WithTorchErrors([&] {
    const Settings settings = {eps, std::string(activation),
                               std::string(norm_kind), dropout.vec(), seeds};
    Check(in, settings);
    return form(in, settings);
  });
}

TensorList RunForward(const TensorList& in, const Settings& settings) {
  Call call(in, settings);
  const TensorList out = Results(in, settings, MakeDense);
  call.Leave(out);
  TorchExecutor executor;
  const at::Tensor workspace =
      EmptyDense({LayerRestWorkspaceFloats(call.shape, executor)});
  LayerRestForward(call.options, call.shape, call.weights, call.tensors,
                   workspace.data_ptr<float>(), executor);
  return out;
}

TensorList ForwardCpu(const at::Tensor& x, const at::Tensor& mixed,
                      const at::Tensor& out_weight,
                      const OptionalTensor& out_bias, const at::Tensor& gamma,
                      const OptionalTensor& beta, const at::Tensor& weight1,
                      const at::Tensor& bias1, const at::Tensor& weight2,
                      const OptionalTensor& bias2,
                      const OptionalTensor& end_gamma,
                      const OptionalTensor& end_beta, double eps,
                      c10::string_view activation, c10::string_view norm_kind,
                      at::ArrayRef<double> dropout,
                      const OptionalTensor& seeds) {
  const auto form = [](const TensorList& in, const Settings& settings) {
    if (in[kX].scalar_type() != at::kFloat) {
      throw DTypeError("layer_rest_forward: x", "float32",
                       c10::toString(in[kX].scalar_type()));
    }
    return RunForward(in, settings);
  };
  return ForwardOf(form,
                   Listed(x, mixed, out_weight, out_bias, gamma, beta, weight1,
                          bias1, weight2, bias2, end_gamma, end_beta),
                   eps, activation, norm_kind, dropout, seeds);
}

TensorList ForwardMeta(const at::Tensor& x, const at::Tensor& mixed,
                       const at::Tensor& out_weight,
                       const OptionalTensor& out_bias, const at::Tensor& gamma,
                       const OptionalTensor& beta, const at::Tensor& weight1,
                       const at::Tensor& bias1, const at::Tensor& weight2,
                       const OptionalTensor& bias2,
                       const OptionalTensor& end_gamma,
                       const OptionalTensor& end_beta, double eps,
                       c10::string_view activation, c10::string_view norm_kind,
                       at::ArrayRef<double> dropout,
                       const OptionalTensor& seeds) {
  const auto form = [](const TensorList& in, const Settings& settings) {
    return Results(in, settings, [&](c10::SymIntArrayRef shape) {
      return at::empty_symint(shape, in[kX].options());
    });
  };
  return ForwardOf(form,
                   Listed(x, mixed, out_weight, out_bias, gamma, beta, weight1,
                          bias1, weight2, bias2, end_gamma, end_beta),
                   eps, activation, norm_kind, dropout, seeds);
}

// Absent tensors travel as [0] in lists.
TensorList Present(const TensorList& list, const at::Tensor& like) {
  TensorList present;
  for (const at::Tensor& tensor : list) {
    present.push_back(tensor.defined() ? tensor
                                       : at::empty({0}, like.options()));
  }
  return present;
}

TensorList FromLists(at::TensorList list) {
  TensorList in;
  for (size_t i = 0; i < list.size(); ++i) {
    const bool may_lack = i == kOutBias || i == kBeta || i >= kBias2;
    in.push_back(may_lack && list[i].dim() == 1 && list[i].sym_size(0) == 0
                     ? at::Tensor()
                     : list[i]);
  }
  return in;
}

// Gradients of the inputs in their order; [0] where absent.
TensorList BackwardCpu(const at::Tensor& grad_y, at::TensorList inputs,
                       at::TensorList outputs, double eps,
                       c10::string_view activation, c10::string_view norm_kind,
                       at::ArrayRef<double> dropout,
                       const OptionalTensor& seeds) {
  return WithTorchErrors([&] {
    const TensorList in = FromLists(inputs);
    const Settings settings = {eps, std::string(activation),
                               std::string(norm_kind), dropout.vec(), seeds};
    Check(in, settings);
    WantLike("layer_rest_backward", "grad_y", grad_y, in[kX],
             in[kX].sym_sizes());
    Call call(in, settings);
    call.Leave(outputs.vec());
    TensorList found;
    std::vector<float*> at;
    for (const at::Tensor& tensor : in) {
      found.push_back(tensor.defined() ? EmptyDense(tensor.sizes())
                                       : at::empty({0}, in[kX].options()));
      at.push_back(tensor.defined() ? found.back().data_ptr<float>() : nullptr);
    }
    const at::Tensor grad = grad_y.contiguous();
    LayerRestGradients g;
    g.grad_y = grad.const_data_ptr<float>();
    g.grad_x = at[kX];
    g.grad_mixed = at[kMixed];
    g.grad_out_weight = at[kOutWeight];
    g.grad_out_bias = at[kOutBias];
    g.grad_gamma = at[kGamma];
    g.grad_beta = at[kBeta];
    g.grad_weight1 = at[kWeight1];
    g.grad_bias1 = at[kBias1];
    g.grad_weight2 = at[kWeight2];
    g.grad_bias2 = at[kBias2];
    g.grad_end_gamma = at[kEndGamma];
    g.grad_end_beta = at[kEndBeta];
    const LayerRestShape& shape = call.shape;
    TensorList places;
    const auto place = [&](bool wanted, int64_t width) -> float* {
      if (!wanted) return nullptr;
      places.push_back(EmptyDense({shape.rows, width}));
      return places.back().data_ptr<float>();
    };
    const bool post = in[kEndGamma].defined();
    const bool drops = settings.probability(2) > 0;
    g.hidden = place(!settings.relu(), shape.hidden);
    g.grad_hidden = place(true, shape.hidden);
    g.grad_branch = place(post || drops, shape.width);
    g.grad_base = place(post && drops, shape.width);
    g.grad_out = place(settings.probability(0) > 0, shape.width);
    TorchExecutor executor;
    const at::Tensor workspace =
        EmptyDense({LayerRestGradientWorkspaceFloats(shape, executor)});
    LayerRestBackward(call.options, shape, call.weights, call.tensors, g,
                      workspace.data_ptr<float>(), executor);
    return found;
  });
}

TensorList BackwardMeta(const at::Tensor&, at::TensorList inputs,
                        at::TensorList, double, c10::string_view,
                        c10::string_view, at::ArrayRef<double>,
                        const OptionalTensor&) {
  TensorList found;
  for (const at::Tensor& tensor : inputs) {
    found.push_back(at::empty_symint(tensor.sym_sizes(), tensor.options()));
  }
  return found;
}

TensorList CallForward(const TensorList& in, const Settings& s) {
  static const auto handle =
      FindOp<ForwardSignature>("tarn::layer_rest_forward");
  return handle.call(in[kX], in[kMixed], in[kOutWeight], Optional(in[kOutBias]),
                     in[kGamma], Optional(in[kBeta]), in[kWeight1], in[kBias1],
                     in[kWeight2], Optional(in[kBias2]),
                     Optional(in[kEndGamma]), Optional(in[kEndBeta]), s.eps,
                     s.activation, s.norm_kind, s.dropout, s.seeds);
}

struct LayerRestFunction : public torch::autograd::Function<LayerRestFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& x, const at::Tensor& mixed,
      const at::Tensor& out_weight, const OptionalTensor& out_bias,
      const at::Tensor& gamma, const OptionalTensor& beta,
      const at::Tensor& weight1, const at::Tensor& bias1,
      const at::Tensor& weight2, const OptionalTensor& bias2,
      const OptionalTensor& end_gamma, const OptionalTensor& end_beta,
      const Settings& settings) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const TensorList in =
        Listed(x, mixed, out_weight, out_bias, gamma, beta, weight1, bias1,
               weight2, bias2, end_gamma, end_beta);
    const TensorList out = CallForward(in, settings);
    variable_list saved = in;
    saved.insert(saved.end(), out.begin() + 1, out.end());
    saved.push_back(UndefinedOr(settings.seeds));
    ctx->save_for_backward(saved);
    ctx->saved_data["eps"] = settings.eps;
    ctx->saved_data["activation"] = settings.activation;
    ctx->saved_data["norm_kind"] = settings.norm_kind;
    ctx->saved_data["dropout"] = settings.dropout;
    ctx->set_materialize_grads(false);
    return out[kY];
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list found(kInputs + 1);
    if (!grads[0].defined()) return found;
    const variable_list saved = ctx->get_saved_variables();
    const TensorList in(saved.begin(), saved.begin() + kInputs);
    const Settings settings = {ctx->saved_data["eps"].toDouble(),
                               ctx->saved_data["activation"].toStringRef(),
                               ctx->saved_data["norm_kind"].toStringRef(),
                               ctx->saved_data["dropout"].toDoubleVector(),
                               NoneOr(saved.back())};
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list composed = ComposedGradients(
          in, grads, [&](const variable_list& inputs) {
            return variable_list{Chain(inputs, settings)};
          });
      std::copy(composed.begin(), composed.end(), found.begin());
      return found;
    }
    TensorList out = {at::empty({0}, in[kX].options())};
    out.insert(out.end(), saved.begin() + kInputs, saved.end() - 1);
    static const auto handle =
        FindOp<BackwardSignature>("tarn::layer_rest_backward");
    const TensorList all = handle.call(
        grads[0], Present(in, in[kX]), out, settings.eps, settings.activation,
        settings.norm_kind, settings.dropout, settings.seeds);
    for (size_t i = 0; i < kInputs; ++i) {
      if (in[i].defined()) found[i] = all[i];
    }
    return found;
  }
};

at::Tensor Forward(const TensorList& in, const Settings& settings) {
  // Rows come in several types under autocast: each operator casts its own.
  if (AutocastOn(in[kX])) return Chain(in, settings);
  WithTorchErrors([&] { Check(in, settings); });
  bool served = KernelServes(in[kX]);
  bool wants = false;
  for (const at::Tensor& tensor : in) {
    if (!tensor.defined()) continue;
    served = served && !HasTangent(tensor);
    wants = wants || WantsGradient(tensor);
  }
  if (!served) return Chain(in, settings);
  if (!wants) return CallForward(in, settings)[kY];
  return LayerRestFunction::apply(
      in[kX], in[kMixed], in[kOutWeight], Optional(in[kOutBias]), in[kGamma],
      Optional(in[kBeta]), in[kWeight1], in[kBias1], in[kWeight2],
      Optional(in[kBias2]), Optional(in[kEndGamma]), Optional(in[kEndBeta]),
      settings);
}

at::Tensor ForwardOp(const at::Tensor& x, const at::Tensor& mixed,
                     const at::Tensor& out_weight,
                     const OptionalTensor& out_bias, const at::Tensor& gamma,
                     const OptionalTensor& beta, const at::Tensor& weight1,
                     const at::Tensor& bias1, const at::Tensor& weight2,
                     const OptionalTensor& bias2,
                     const OptionalTensor& end_gamma,
                     const OptionalTensor& end_beta, double eps,
                     c10::string_view activation, c10::string_view norm_kind,
                     at::ArrayRef<double> dropout,
                     const OptionalTensor& seeds) {
  return Forward(Listed(x, mixed, out_weight, out_bias, gamma, beta, weight1,
                        bias1, weight2, bias2, end_gamma, end_beta),
                 {eps, std::string(activation), std::string(norm_kind),
                  dropout.vec(), seeds});
}

#define TARN_LAYER_REST_ARGUMENTS                                            \
  "(Tensor x, Tensor mixed, Tensor out_weight, Tensor? out_bias, "           \
  "Tensor gamma, Tensor? beta, Tensor weight1, Tensor bias1, "               \
  "Tensor weight2, Tensor? bias2, Tensor? end_gamma=None, "                  \
  "Tensor? end_beta=None, float eps=1e-5, str activation='relu', "           \
  "str norm_kind='layer', float[] dropout=[], Tensor? seeds=None)"

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("layer_rest" TARN_LAYER_REST_ARGUMENTS " -> Tensor", &ForwardOp);
  m.def("layer_rest_forward" TARN_LAYER_REST_ARGUMENTS " -> Tensor[]");
  m.def(
      "layer_rest_backward(Tensor grad_y, Tensor[] inputs, Tensor[] outputs, "
      "float eps, str activation, str norm_kind, float[] dropout, "
      "Tensor? seeds) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("layer_rest_forward", &ForwardCpu);
  m.impl("layer_rest_backward", &BackwardCpu);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("layer_rest", &ForwardOp);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("layer_rest_forward", &ForwardMeta);
  m.impl("layer_rest_backward", &BackwardMeta);
}

}  // namespace
}  // namespace layer_rest

at::Tensor LayerRest(const LayerRestArguments& a) {
  const auto list = layer_rest::Listed(
      a.x, a.mixed, a.out_weight, a.out_bias, a.gamma, a.beta, a.weight1,
      a.bias1, a.weight2, a.bias2, a.end_gamma, a.end_beta);
  return layer_rest::Forward(list, {a.eps, Name(a.activation), Name(a.norm_kind),
                                    a.dropout, a.seeds});
}

}  // namespace tarn::ops
