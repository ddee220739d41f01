// torch.ops.tarn.layer_rest: what a transformer layer does after its mixer, in
// one call (kernels/layer_rest). float32 on the CPU runs the kernel, once
// differentiable; anything else, autocast included, is the same operators one
// by one.
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/layers/layer_rest_call.h"

namespace tarn::ops {
namespace layer_rest {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using ForwardSignature = TensorList(at::TensorList, double, c10::string_view,
                                    c10::string_view, at::ArrayRef<double>,
                                    const OptionalTensor&);
using BackwardSignature = TensorList(const at::Tensor&, at::TensorList,
                                     at::TensorList, double, c10::string_view,
                                     c10::string_view, at::ArrayRef<double>,
                                     const OptionalTensor&);

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

// Results in the order of Output.
TensorList ForwardCpu(at::TensorList inputs, double eps,
                      c10::string_view activation, c10::string_view norm_kind,
                      at::ArrayRef<double> dropout,
                      const OptionalTensor& seeds) {
  return WithTorchErrors([&] {
    const TensorList in = FromLists(inputs);
    const Settings settings = {eps, std::string(activation),
                               std::string(norm_kind), dropout.vec(), seeds};
    Check(in, settings);
    if (in[kX].scalar_type() != at::kFloat) {
      throw DTypeError("layer_rest_forward: x", "float32",
                       c10::toString(in[kX].scalar_type()));
    }
    Call call(in, settings);
    const TensorList out = Results(in, settings, [](c10::SymIntArrayRef shape) {
      return EmptyDense(C10_AS_INTARRAYREF_SLOW(shape));
    });
    call.Leave(out, call.shape.rows);
    TorchExecutor executor;
    const at::Tensor workspace =
        EmptyDense({LayerRestWorkspaceFloats(call.shape, executor)});
    LayerRestForward(call.options, call.shape, call.weights, call.tensors,
                     workspace.data_ptr<float>(), executor);
    return out;
  });
}

TensorList ForwardMeta(at::TensorList inputs, double eps,
                       c10::string_view activation, c10::string_view norm_kind,
                       at::ArrayRef<double> dropout,
                       const OptionalTensor& seeds) {
  return WithTorchErrors([&] {
    const TensorList in = FromLists(inputs);
    const Settings settings = {eps, std::string(activation),
                               std::string(norm_kind), dropout.vec(), seeds};
    Check(in, settings);
    return Results(in, settings, [&](c10::SymIntArrayRef shape) {
      return at::empty_symint(shape, in[kX].options());
    });
  });
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
    call.Leave(outputs.vec(), LayerRestBlockRows(call.shape.rows));
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
      places.push_back(EmptyDense({LayerRestBlockRows(shape.rows), width}));
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
  return handle.call(Present(in, in[kX]), s.eps, s.activation, s.norm_kind,
                     s.dropout, s.seeds);
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
      variable_list composed =
          ComposedGradients(in, grads, [&](const variable_list& inputs) {
            return variable_list{Chain(inputs, settings)};
          });
      std::copy(composed.begin(), composed.end(), found.begin());
      return found;
    }
    TensorList out = {at::empty({0}, in[kX].options())};
    out.insert(out.end(), saved.begin() + kInputs, saved.end() - 1);
    static const auto handle =
        FindGradientOp<BackwardSignature>("tarn::layer_rest_backward");
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
  const bool tangents = TangentsExist();
  for (const at::Tensor& tensor : in) {
    if (!tensor.defined()) continue;
    served = served && !(tangents && HasTangent(tensor));
    wants = wants || WantsGradient(tensor);
  }
  if (!served) return Chain(in, settings);
  if (!wants) return CallForward(in, settings)[kY];
  return LayerRestFunction::apply(
      in[kX], in[kMixed], in[kOutWeight], NoneOr(in[kOutBias]), in[kGamma],
      NoneOr(in[kBeta]), in[kWeight1], in[kBias1], in[kWeight2],
      NoneOr(in[kBias2]), NoneOr(in[kEndGamma]), NoneOr(in[kEndBeta]),
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

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "layer_rest(Tensor x, Tensor mixed, Tensor out_weight, "
      "Tensor? out_bias, Tensor gamma, Tensor? beta, Tensor weight1, "
      "Tensor bias1, Tensor weight2, Tensor? bias2, Tensor? end_gamma=None, "
      "Tensor? end_beta=None, float eps=1e-5, str activation='relu', "
      "str norm_kind='layer', float[] dropout=[], Tensor? seeds=None) -> "
      "Tensor",
      &ForwardOp);
  // Lists in the order of these arguments, [0] for what is absent.
  m.def(
      "layer_rest_forward(Tensor[] inputs, float eps, str activation, "
      "str norm_kind, float[] dropout, Tensor? seeds) -> Tensor[]");
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
  return layer_rest::Forward(
      list, {a.eps, Name(a.activation), Name(a.norm_kind), a.dropout, a.seeds});
}

}  // namespace tarn::ops
