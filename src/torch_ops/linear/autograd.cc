// Autograd of the linear-attention operators. The kernels' gradient saves the
// inputs, the output and the denominators, nothing of size T x K x V; a
// gradient of that gradient takes the composed form, whose own graph gives
// gradients of any order.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/register.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/cuda/kernels.h"
#include "torch_ops/linear/packed_attention.h"

namespace tarn::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename... Tensors>
bool NeedsGradient(const Tensors&... tensors) {
  const auto requires_grad = [](const OptionalTensor& tensor) {
    return tensor.has_value() && tensor->requires_grad();
  };
  return at::GradMode::is_enabled() && (requires_grad(tensors) || ...);
}

// Keeps what differs from the usual settings: a short sequence's call would
// spend more on the map's entries than on some of its products.
void SaveSettings(AutogradContext* ctx, const Settings& s) {
  static const Settings usual;
  auto& data = ctx->saved_data;
  const auto keep = [&data](const char* name, const auto& value,
                            const auto& other) {
    if (value != other) data[name] = value;
  };
  keep("causal", s.causal, usual.causal);
  if (s.causal_offset.is_symbolic() || s.causal_offset != 0) {
    data["causal_offset"] = s.causal_offset;
  }
  keep("feature_map", s.feature_map, usual.feature_map);
  keep("denominator", s.denominator, usual.denominator);
  keep("eps", s.eps, usual.eps);
  keep("scale", s.scale, usual.scale);
  keep("chunk_size", s.chunk_size, usual.chunk_size);
}

Settings SavedSettings(AutogradContext* ctx) {
  Settings s;
  const auto& data = ctx->saved_data;
  if (data.empty()) return s;
  const auto found = [&data](const char* name) {
    const auto at = data.find(name);
    return at == data.end() ? nullptr : &at->second;
  };
  if (const auto* v = found("causal")) s.causal = v->toBool();
  if (const auto* v = found("causal_offset")) s.causal_offset = v->toSymInt();
  if (const auto* v = found("feature_map")) s.feature_map = v->toStringRef();
  if (const auto* v = found("denominator")) s.denominator = v->toStringRef();
  if (const auto* v = found("eps")) s.eps = v->toDouble();
  if (const auto* v = found("scale")) s.scale = v->toDouble();
  if (const auto* v = found("chunk_size")) s.chunk_size = v->toInt();
  return s;
}

// Arguments that may need a gradient are passed separately, as apply() sees
// only those; `in` holds them again with the rest.
struct LinearAttentionFunction
    : public torch::autograd::Function<LinearAttentionFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               const Operands& in, const Settings& settings,
                               bool return_state) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, final_S, final_z, denominators] =
        CallForward(in, settings, return_state);
    ctx->save_for_backward(
        {in.queries, in.keys, in.values, UndefinedOr(in.key_mask),
         UndefinedOr(in.key_lengths), UndefinedOr(in.cu_seqlens),
         UndefinedOr(in.initial_S), UndefinedOr(in.initial_z), out,
         denominators});
    SaveSettings(ctx, settings);
    if (return_state) ctx->saved_data["return_state"] = true;
    ctx->set_materialize_grads(false);
    if (return_state) {
      ctx->mark_non_differentiable({denominators});
    } else {
      ctx->mark_non_differentiable({denominators, final_S, final_z});
    }
    return {out, final_S, final_z, denominators};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Operands in = {saved[0],         saved[1],         saved[2],
                         NoneOr(saved[3]), NoneOr(saved[4]), NoneOr(saved[5]),
                         NoneOr(saved[6]), NoneOr(saved[7])};
    const bool return_state = ctx->saved_data.count("return_state") != 0;
    if (at::GradMode::is_enabled()) {
      return Differentiable(in, SavedSettings(ctx), return_state, grads);
    }
    GradientOperands gradients;
    gradients.out = saved[8];
    gradients.denominators = saved[9];
    gradients.grad_out =
        grads[0].defined() ? grads[0] : at::zeros_like(saved[8]);
    if (return_state) {
      gradients.grad_final_S = NoneOr(grads[1]);
      gradients.grad_final_z = NoneOr(grads[2]);
    }
    const Settings settings = SavedSettings(ctx);
    const at::Tensor none;
    if (const Operands found = GradientsSideBySide(in, gradients, settings);
        found.queries.defined()) {
      return {found.queries, found.keys, found.values, none,
              none,          none,       none,         none};
    }
    const auto [queries, keys, values, initial_S, initial_z] =
        CallBackward(in, gradients, settings);
    return {queries,
            keys,
            values,
            in.initial_S.has_value() ? initial_S : none,
            in.initial_z.has_value() ? initial_z : none,
            none,
            none,
            none};
  }

  // The gradient under create_graph: of the composed form.
  static variable_list Differentiable(const Operands& in,
                                      const Settings& settings,
                                      bool return_state,
                                      const variable_list& grads) {
    variable_list found = ComposedGradients(
        {in.queries, in.keys, in.values, UndefinedOr(in.initial_S),
         UndefinedOr(in.initial_z)},
        grads, [&](const variable_list& x) {
          Operands given = in;
          given.queries = x[0];
          given.keys = x[1];
          given.values = x[2];
          given.initial_S = NoneOr(x[3]);
          given.initial_z = NoneOr(x[4]);
          const auto [out, S, z, _] =
              ComposedLinearAttention(given, settings, return_state);
          return variable_list{out, S, z};
        });
    found.resize(8);
    return found;
  }
};

// The gradient operator, called by itself, as a leaf of the graph: only
// differentiating it again is an error. (Gradients under create_graph do not
// come here: they are composed.)
struct BackwardFunction : public torch::autograd::Function<BackwardFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               const at::Tensor&, const OptionalTensor&,
                               const OptionalTensor&, const Operands& in,
                               const GradientOperands& gradients,
                               const Settings& settings) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [queries, keys, values, initial_S, initial_z] =
        CallBackward(in, gradients, settings);
    ctx->saved_data["dtype"] = c10::toString(in.queries.scalar_type());
    return {queries, keys, values, initial_S, initial_z};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list&) {
    C10_THROW_ERROR(NotImplementedError,
                    StrCat("linear_attention_backward: gradient: want that of "
                           "linear_attention, which is composed, got ",
                           ctx->saved_data["dtype"].toStringRef()));
  }
};

Results ForwardAutograd(const Operands& in, const Settings& settings,
                        bool return_state) {
  const bool served =
      KernelServesAttention(in.queries) || CudaServes(in, settings);
  if (!served ||
      AnyTangent(in.queries, in.keys, in.values, in.initial_S, in.initial_z)) {
    return ComposedLinearAttention(in, settings, return_state);
  }
  if (!NeedsGradient(in.queries, in.keys, in.values, in.initial_S,
                     in.initial_z)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return CallForward(in, settings, return_state);
  }
  const variable_list results = LinearAttentionFunction::apply(
      in.queries, in.keys, in.values, in.initial_S, in.initial_z, in, settings,
      return_state);
  return {results[0], results[1], results[2], results[3]};
}

Gradients BackwardAutograd(const Operands& in,
                           const GradientOperands& gradients,
                           const Settings& settings) {
  if (!NeedsGradient(in.queries, in.keys, in.values, in.initial_S, in.initial_z,
                     gradients.grad_out, gradients.grad_final_S,
                     gradients.grad_final_z)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return CallBackward(in, gradients, settings);
  }
  const variable_list results = BackwardFunction::apply(
      in.queries, in.keys, in.values, in.initial_S, in.initial_z,
      gradients.grad_out, gradients.grad_final_S, gradients.grad_final_z, in,
      gradients, settings);
  return {results[0], results[1], results[2], results[3], results[4]};
}

bool StepOnCuda(const StepOperands& in, const Settings& settings) {
  return in.queries.is_cuda() &&
         WithTorchErrors([&] { return CudaServes(AsSequence(in), settings); });
}

// A step that needs a gradient is a sequence of one token.
StepResults StepAutograd(const StepOperands& in, const Settings& settings) {
  if (AnyTangent(in.queries, in.keys, in.values, in.state_S, in.state_z) ||
      !(KernelServesAttention(in.queries) || StepOnCuda(in, settings))) {
    return ComposedLinearAttentionStep(in, settings);
  }
  if (!NeedsGradient(in.queries, in.keys, in.values, in.state_S, in.state_z)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return CallStep(in, settings);
  }
  const Operands sequence = WithTorchErrors([&] { return AsSequence(in); });
  const auto [out, S, z, _] =
      CallForward(sequence, settings, /*return_state=*/true);
  return {out.squeeze(1), S, z};
}

TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("linear_attention", TORCH_FN(FlatForward<&ForwardAutograd>));
  m.impl("linear_attention_backward",
         TORCH_FN(FlatBackward<&BackwardAutograd>));
  m.impl("linear_attention_step", TORCH_FN(FlatStep<&StepAutograd>));
}

// Devices without kernels, and torch.func.vmap.
void RegisterComposed(torch::Library& m) {
  m.impl("linear_attention", TORCH_FN(FlatForward<&ComposedLinearAttention>));
  m.impl("linear_attention_step",
         TORCH_FN(FlatStep<&ComposedLinearAttentionStep>));
}
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) { RegisterComposed(m); }
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) { RegisterComposed(m); }

}  // namespace
}  // namespace tarn::ops
