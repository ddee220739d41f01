// Turns the flat argument lists of the schemas in library.cc into the values of
// call.h, so that each dispatch key's implementation is a short function.
#pragma once

#include "torch_ops/common/call.h"

namespace tarn::ops {

template <Results (*kForward)(const Operands&, const Settings&, bool)>
Results FlatForward(const at::Tensor& queries, const at::Tensor& keys,
                    const at::Tensor& values, const OptionalTensor& key_mask,
                    const OptionalTensor& key_lengths,
                    const OptionalTensor& cu_seqlens,
                    const OptionalTensor& initial_S,
                    const OptionalTensor& initial_z, bool causal,
                    c10::SymInt causal_offset, c10::string_view feature_map,
                    c10::string_view denominator, double eps, double scale,
                    int64_t chunk_size, bool return_state) {
  return kForward({queries, keys, values, key_mask, key_lengths, cu_seqlens,
                   initial_S, initial_z},
                  {causal, std::move(causal_offset), std::string(feature_map),
                   std::string(denominator), eps, scale, chunk_size},
                  return_state);
}

template <Gradients (*kBackward)(const Operands&, const GradientOperands&,
                                 const Settings&)>
Gradients FlatBackward(
    const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const OptionalTensor& key_mask, const OptionalTensor& key_lengths,
    const OptionalTensor& cu_seqlens, const OptionalTensor& initial_S,
    const OptionalTensor& initial_z, const at::Tensor& out,
    const at::Tensor& denominators, const at::Tensor& grad_out,
    const OptionalTensor& grad_final_S, const OptionalTensor& grad_final_z,
    bool causal, c10::SymInt causal_offset, c10::string_view feature_map,
    c10::string_view denominator, double eps, double scale,
    int64_t chunk_size) {
  return kBackward({queries, keys, values, key_mask, key_lengths, cu_seqlens,
                    initial_S, initial_z},
                   {out, denominators, grad_out, grad_final_S, grad_final_z},
                   {causal, std::move(causal_offset), std::string(feature_map),
                    std::string(denominator), eps, scale, chunk_size});
}

template <StepResults (*kStep)(const StepOperands&, const Settings&)>
StepResults FlatStep(const at::Tensor& queries, const at::Tensor& keys,
                     const at::Tensor& values, const OptionalTensor& state_S,
                     const OptionalTensor& state_z,
                     c10::string_view feature_map, c10::string_view denominator,
                     double eps, double scale) {
  Settings settings;
  settings.feature_map = std::string(feature_map);
  settings.denominator = std::string(denominator);
  settings.eps = eps;
  settings.scale = scale;
  return kStep({queries, keys, values, state_S, state_z}, settings);
}

}  // namespace tarn::ops
