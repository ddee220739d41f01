// Schemas, autograd and the C++ functions of softmax attention. The kernel's
// gradient saves the inputs, the output and two numbers a row; the composed
// form's own graph gives gradients of any order.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/layers/call.h"
#include "torch_ops/softmax/register.h"

namespace tarn::ops {
namespace softmax_autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr char kOp[] = "softmax_attention";

using ForwardSignature = TwoTensors(const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, const OptionalTensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&, bool, c10::SymInt,
                                    c10::SymInt, std::optional<double>, double,
                                    c10::SymInt, double, const OptionalTensor&);
using BackwardSignature = Gradients5(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
    const at::Tensor&, const at::Tensor&, const OptionalTensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor&, bool, c10::SymInt, c10::SymInt,
    std::optional<double>, double, c10::SymInt, double, const OptionalTensor&,
    bool);

using TopkSignature = at::Tensor(const at::Tensor&, const at::Tensor&,
                                 const at::Tensor&, const OptionalTensor&,
                                 const OptionalTensor&, const OptionalTensor&,
                                 const OptionalTensor&, const OptionalTensor&,
                                 bool, c10::SymInt, c10::SymInt,
                                 std::optional<double>, double, c10::SymInt);

TwoTensors CallForward(const SoftmaxCall& c) {
  static const auto handle =
      FindOp<ForwardSignature>("tarn::softmax_attention");
  return handle.call(c.queries, c.keys, c.values, c.masks.attention_mask,
                     c.masks.key_mask, c.masks.key_lengths, c.options.bias,
                     c.options.dropout.seed, c.masks.causal,
                     c.masks.causal_offset, c.local_context,
                     c.options.softmax_temp, c.options.dropout.probability,
                     c.options.window, c.options.softcap, c.options.sinks);
}

Gradients5 CallBackward(const SoftmaxCall& c, const GradientInputs& from) {
  static const auto handle =
      FindGradientOp<BackwardSignature>("tarn::softmax_attention_backward");
  return handle.call(
      from.grad_out, from.out, from.statistics, c.queries, c.keys, c.values,
      c.masks.attention_mask, c.masks.key_mask, c.masks.key_lengths,
      c.options.bias, c.options.dropout.seed, c.masks.causal,
      c.masks.causal_offset, c.local_context, c.options.softmax_temp,
      c.options.dropout.probability, c.options.window, c.options.softcap,
      c.options.sinks, from.want_bias);
}

void SaveCall(AutogradContext* ctx, const SoftmaxCall& c, const at::Tensor& out,
              const at::Tensor& statistics) {
  ctx->save_for_backward(
      {c.queries, c.keys, c.values, UndefinedOr(c.masks.attention_mask),
       UndefinedOr(c.masks.key_mask), UndefinedOr(c.masks.key_lengths),
       UndefinedOr(c.options.bias), UndefinedOr(c.options.dropout.seed), out,
       statistics, UndefinedOr(c.options.sinks)});
  ctx->saved_data["causal"] = c.masks.causal;
  ctx->saved_data["causal_offset"] = c.masks.causal_offset;
  ctx->saved_data["local_context"] = c.local_context;
  ctx->saved_data["softmax_temp"] = c.options.softmax_temp;
  ctx->saved_data["dropout"] = c.options.dropout.probability;
  ctx->saved_data["window"] = c.options.window;
  ctx->saved_data["softcap"] = c.options.softcap;
}

SoftmaxCall SavedCall(AutogradContext* ctx, const variable_list& saved) {
  auto& data = ctx->saved_data;
  return {saved[0],
          saved[1],
          saved[2],
          {data["causal"].toBool(), data["causal_offset"].toSymInt(),
           NoneOr(saved[3]), NoneOr(saved[4]), NoneOr(saved[5])},
          {data["softmax_temp"].toOptional<double>(),
           NoneOr(saved[6]),
           {data["dropout"].toDouble(), NoneOr(saved[7])},
           data["window"].toSymInt(),
           data["softcap"].toDouble(),
           NoneOr(saved[10])},
          data["local_context"].toSymInt()};
}

// What may need a gradient is passed separately, as apply() sees only that.
struct SoftmaxFunction : public torch::autograd::Function<SoftmaxFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               const SoftmaxCall& call) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, statistics] = CallForward(call);
    SaveCall(ctx, call, out, statistics);
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable({statistics});
    return {out, statistics};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(6);
    const variable_list saved = ctx->get_saved_variables();
    SoftmaxCall call = SavedCall(ctx, saved);
    const bool wants_bias =
        call.options.bias.has_value() && ctx->needs_input_grad(3);
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found = ComposedGradients(
          {call.queries, call.keys, call.values, UndefinedOr(call.options.bias),
           UndefinedOr(call.options.sinks)},
          grads, [&](const variable_list& in) {
            call.queries = in[0];
            call.keys = in[1];
            call.values = in[2];
            call.options.bias = NoneOr(in[3]);
            call.options.sinks = NoneOr(in[4]);
            return variable_list{std::get<0>(ComposedSoftmax(call))};
          });
      found.resize(6);
      return found;
    }
    const auto [queries, keys, values, bias, sinks] =
        CallBackward(call, {grads[0], saved[8], saved[9], wants_bias});
    const at::Tensor none;
    return {queries,
            keys,
            values,
            wants_bias ? bias : none,
            call.options.sinks.has_value() ? sinks : none,
            none};
  }
};

TwoTensors ForwardComposed(const SoftmaxCall& call) {
  return WithTorchErrors([&] {
    CheckSoftmaxCall(kOp, call);
    return ComposedSoftmax(call);
  });
}

TwoTensors ForwardAutograd(const SoftmaxCall& call) {
  if (call.composes()) return ForwardComposed(call);
  WithTorchErrors([&] { CheckSoftmaxCall(kOp, call); });
  if (!WantsGradient(call.queries, call.keys, call.values, call.options.bias,
                     call.options.sinks)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return CallForward(call);
  }
  const variable_list results =
      SoftmaxFunction::apply(call.queries, call.keys, call.values,
                             call.options.bias, call.options.sinks, call);
  return {results[0], results[1]};
}

// The weights with the output: composed, O(T S) memory.
TwoTensors WithWeights(const SoftmaxCall& call) {
  return WithTorchErrors([&]() -> TwoTensors {
    CheckSoftmaxCall(kOp, call);
    const at::Tensor weights = ComposedSoftmaxWeights(call);
    if (call.composes()) return {ComposedSoftmaxOutput(call, weights), weights};
    return {std::get<0>(CallForward(call)),
            weights.to(call.queries.scalar_type())};
  });
}

TwoTensors ExactTopkFlat(const at::Tensor& queries, const at::Tensor& keys,
                         const at::Tensor& values, TARN_SOFTMAX_ARGUMENTS,
                         int64_t topk, bool need_weights) {
  const SoftmaxCall call = TARN_SOFTMAX_CALL;
  return WithTorchErrors([&] {
    CheckSoftmaxCall("exact_topk_attention", call);
    if (topk < 1) {
      throw ArgumentError("exact_topk_attention: topk", "a positive number",
                          StrCat(topk));
    }
    return ComposedExactTopk(call, topk, need_weights);
  });
}

at::Tensor TopkAutograd(const SoftmaxCall& call, const c10::SymInt& width) {
  if (call.composes()) return ComposedTopkIndices(call, width);
  at::AutoDispatchBelowADInplaceOrView guard;
  return CallTopkIndices(call, width);
}

constexpr char kArguments[] =
    "Tensor queries, Tensor keys, Tensor values, Tensor? attention_mask=None, "
    "Tensor? key_mask=None, Tensor? key_lengths=None, Tensor? bias=None, "
    "Tensor? seed=None, bool causal=False, SymInt causal_offset=0, "
    "SymInt local_context=0, float? softmax_temp=None, float dropout=0.0";
constexpr char kMore[] =
    ", SymInt window=0, float softcap=0.0, Tensor? sinks=None";

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(StrCat("softmax_attention(", kArguments, kMore,
               ") -> (Tensor out, Tensor statistics)")
            .c_str());
  m.def(StrCat(
            "softmax_attention_backward(Tensor grad_out, Tensor out, "
            "Tensor statistics, ",
            kArguments, kMore,
            ", bool want_bias=True) -> (Tensor grad_queries, Tensor grad_keys, "
            "Tensor grad_values, Tensor grad_bias, Tensor grad_sinks)")
            .c_str());
  m.def(StrCat("softmax_attention_weights(", kArguments, kMore,
               ") -> (Tensor out, Tensor weights)")
            .c_str());
  m.def(
      StrCat("exact_topk_indices(", kArguments, ", SymInt width=32) -> Tensor")
          .c_str());
  m.def(StrCat("exact_topk_attention(", kArguments,
               ", int topk=32, bool need_weights=False) -> (Tensor out, "
               "Tensor weights)")
            .c_str());
}

TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("softmax_attention", TORCH_FN(FlatForward<&ForwardAutograd>));
  m.impl("exact_topk_indices", TORCH_FN(FlatTopk<&TopkAutograd>));
  m.impl("softmax_attention_backward",
         torch::autograd::autogradNotImplementedFallback());
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("softmax_attention", TORCH_FN(FlatForward<&ForwardComposed>));
  m.impl("exact_topk_indices", TORCH_FN(FlatTopk<&ComposedTopkIndices>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("softmax_attention", TORCH_FN(FlatForward<&ForwardComposed>));
  m.impl("exact_topk_indices", TORCH_FN(FlatTopk<&ComposedTopkIndices>));
}
TORCH_LIBRARY_IMPL(tarn, CompositeImplicitAutograd, m) {
  m.impl("softmax_attention_weights", TORCH_FN(FlatForward<&WithWeights>));
  m.impl("exact_topk_attention", TORCH_FN(ExactTopkFlat));
}

}  // namespace
}  // namespace softmax_autograd

at::Tensor CallTopkIndices(const SoftmaxCall& c, const c10::SymInt& width) {
  static const auto handle =
      FindOp<softmax_autograd::TopkSignature>("tarn::exact_topk_indices");
  // Neither values nor dropout choose a key.
  return handle.call(c.queries, c.keys, c.values, c.masks.attention_mask,
                     c.masks.key_mask, c.masks.key_lengths, c.options.bias,
                     std::nullopt, c.masks.causal, c.masks.causal_offset,
                     c.local_context, c.options.softmax_temp, 0.0, width);
}

AttentionResult FullAttention(const at::Tensor& queries, const at::Tensor& keys,
                              const at::Tensor& values,
                              const AttentionMasks& masks,
                              const SoftmaxOptions& options,
                              bool need_weights) {
  const SoftmaxCall call = {queries, keys, values, masks, options, 0};
  if (!need_weights)
    return {std::get<0>(softmax_autograd::CallForward(call)), {}};
  auto [out, weights] = softmax_autograd::WithWeights(call);
  return {out, weights};
}

at::Tensor LocalAttention(const at::Tensor& queries, const at::Tensor& keys,
                          const at::Tensor& values, int64_t local_context,
                          const AttentionMasks& masks,
                          const SoftmaxOptions& options) {
  WithTorchErrors([&] {
    if (local_context < 1) {
      throw ArgumentError("local_attention: local_context", "a positive number",
                          StrCat(local_context));
    }
  });
  return std::get<0>(softmax_autograd::CallForward(
      {queries, keys, values, masks, options, local_context}));
}

AttentionResult ExactTopkAttention(const at::Tensor& queries,
                                   const at::Tensor& keys,
                                   const at::Tensor& values, int64_t topk,
                                   const AttentionMasks& masks,
                                   const SoftmaxOptions& options,
                                   bool need_weights) {
  WithTorchErrors([&] {
    if (options.window != 0 || options.softcap != 0 ||
        options.sinks.has_value()) {
      throw ArgumentError("exact_topk_attention: options",
                          "neither window, softcap nor sinks", "one of them");
    }
  });
  auto [out, weights] = softmax_autograd::ExactTopkFlat(
      queries, keys, values, masks.attention_mask, masks.key_mask,
      masks.key_lengths, options.bias, options.dropout.seed, masks.causal,
      masks.causal_offset, /*local_context=*/0, options.softmax_temp,
      options.dropout.probability, topk, need_weights);
  return {out, need_weights ? weights : at::Tensor()};
}

}  // namespace tarn::ops
