// Turns the flat argument lists of the softmax schemas (autograd.cc) into the
// values of call.h, so that each dispatch key's implementation is a short
// function.
#pragma once

#include <optional>
#include <tuple>

#include "torch_ops/softmax/call.h"

namespace tarn::ops {

// grad_queries, grad_keys, grad_values, grad_bias ([0] unless wanted),
// grad_sinks ([0] without sinks).
using Gradients5 =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// What the gradient reads besides the call.
struct GradientInputs {
  at::Tensor grad_out, out, statistics;
  bool want_bias;  // its gradient costs two products of seven
};

// masks, bias and options after queries, keys, values.
#define TARN_SOFTMAX_ARGUMENTS                                            \
  const OptionalTensor &attention_mask, const OptionalTensor &key_mask,   \
      const OptionalTensor &key_lengths, const OptionalTensor &bias,      \
      const OptionalTensor &seed, bool causal, c10::SymInt causal_offset, \
      c10::SymInt local_context, std::optional<double> softmax_temp,      \
      double dropout
#define TARN_SOFTMAX_CALL                                               \
  SoftmaxCall {                                                         \
    queries, keys, values,                                              \
        {causal, std::move(causal_offset), attention_mask, key_mask,    \
         key_lengths},                                                  \
        {softmax_temp, bias, {dropout, seed}}, std::move(local_context) \
  }

// What exact top-k does not take.
#define TARN_SOFTMAX_MORE \
  c10::SymInt window, double softcap, const OptionalTensor &sinks
#define TARN_SOFTMAX_WHOLE_CALL                                      \
  SoftmaxCall {                                                      \
    queries, keys, values,                                           \
        {causal, std::move(causal_offset), attention_mask, key_mask, \
         key_lengths},                                               \
        {softmax_temp,      bias,    {dropout, seed},                \
         std::move(window), softcap, sinks},                         \
        std::move(local_context)                                     \
  }

template <TwoTensors (*kForward)(const SoftmaxCall&)>
TwoTensors FlatForward(const at::Tensor& queries, const at::Tensor& keys,
                       const at::Tensor& values, TARN_SOFTMAX_ARGUMENTS,
                       TARN_SOFTMAX_MORE) {
  return kForward(TARN_SOFTMAX_WHOLE_CALL);
}

template <Gradients5 (*kBackward)(const SoftmaxCall&, const GradientInputs&)>
Gradients5 FlatBackward(const at::Tensor& grad_out, const at::Tensor& out,
                        const at::Tensor& statistics, const at::Tensor& queries,
                        const at::Tensor& keys, const at::Tensor& values,
                        TARN_SOFTMAX_ARGUMENTS, TARN_SOFTMAX_MORE,
                        bool want_bias) {
  return kBackward(TARN_SOFTMAX_WHOLE_CALL,
                   {grad_out, out, statistics, want_bias});
}

template <at::Tensor (*kTopk)(const SoftmaxCall&, const c10::SymInt&)>
at::Tensor FlatTopk(const at::Tensor& queries, const at::Tensor& keys,
                    const at::Tensor& values, TARN_SOFTMAX_ARGUMENTS,
                    c10::SymInt width) {
  return kTopk(TARN_SOFTMAX_CALL, width);
}

}  // namespace tarn::ops
