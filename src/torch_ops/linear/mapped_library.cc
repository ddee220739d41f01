// torch.ops.tarn.mapped_linear_attention and related operators: compositions,
// which autograd and compilers see through.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <string>
#include <utility>

#include "torch_ops/common/call.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/feature_maps/feature_maps.h"

namespace tarn::ops {
namespace {

using OpResults =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Tensors that the call does not have become [0], the count 0.
OpResults Flat(const MappedAttentionResult& r, const at::Tensor& like) {
  const auto some = [&](const at::Tensor& x) {
    return x.defined()
               ? x
               : at::empty({0}, like.options().dtype(ComputeType(like)));
  };
  return {r.out, some(r.state.S), some(r.state.z), some(r.state.extra),
          r.clamped.defined() ? r.clamped
                              : at::zeros({}, like.options().dtype(at::kLong))};
}

MappedAttentionOptions OptionsOf(const OptionalTensor& omega,
                                 const std::string& feature_map,
                                 const std::optional<std::string>& denominator,
                                 double eps, double scale,
                                 std::optional<double> softmax_temp,
                                 c10::ArrayRef<double> coefficients,
                                 double smoothing, bool stabilise) {
  MappedAttentionOptions options;
  options.features.map = ParseFeatureMap(feature_map);
  options.features.omega = omega;
  options.features.softmax_temp = softmax_temp;
  options.features.coefficients = ThreeCoefficients(coefficients);
  options.features.smoothing = smoothing;
  options.features.stabilise = stabilise;
  if (denominator.has_value()) {
    options.denominator = ParseDenominator(*denominator);
  }
  options.eps = eps;
  options.scale = scale;
  return options;
}

OpResults SequenceOp(
    const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const OptionalTensor& key_mask, const OptionalTensor& key_lengths,
    const OptionalTensor& cu_seqlens, const OptionalTensor& initial_S,
    const OptionalTensor& initial_z, const OptionalTensor& initial_extra,
    const OptionalTensor& omega, bool causal, c10::SymInt causal_offset,
    const std::string& feature_map,
    const std::optional<std::string>& denominator, double eps, double scale,
    int64_t chunk_size, std::optional<double> softmax_temp,
    c10::ArrayRef<double> coefficients, double smoothing, bool stabilise,
    bool return_state) {
  return WithTorchErrors([&] {
    MappedAttentionOptions options =
        OptionsOf(omega, feature_map, denominator, eps, scale, softmax_temp,
                  coefficients, smoothing, stabilise);
    options.causal = causal;
    options.causal_offset = std::move(causal_offset);
    options.chunk_size = chunk_size;
    options.key_mask = key_mask;
    options.key_lengths = key_lengths;
    options.cu_seqlens = cu_seqlens;
    return Flat(
        MappedLinearAttention(queries, keys, values, options,
                              {UndefinedOr(initial_S), UndefinedOr(initial_z),
                               UndefinedOr(initial_extra)},
                              return_state),
        queries);
  });
}

OpResults StepOp(const at::Tensor& queries, const at::Tensor& keys,
                 const at::Tensor& values, const OptionalTensor& state_S,
                 const OptionalTensor& state_z,
                 const OptionalTensor& state_extra, const OptionalTensor& omega,
                 const std::string& feature_map,
                 const std::optional<std::string>& denominator, double eps,
                 double scale, std::optional<double> softmax_temp,
                 c10::ArrayRef<double> coefficients, double smoothing,
                 bool stabilise) {
  return WithTorchErrors([&] {
    const MappedAttentionOptions options =
        OptionsOf(omega, feature_map, denominator, eps, scale, softmax_temp,
                  coefficients, smoothing, stabilise);
    return Flat(
        MappedLinearAttentionStep(queries, keys, values, options,
                                  {UndefinedOr(state_S), UndefinedOr(state_z),
                                   UndefinedOr(state_extra)}),
        queries);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "mapped_linear_attention(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? key_mask=None, Tensor? key_lengths=None, "
      "Tensor? cu_seqlens=None, Tensor? initial_S=None, "
      "Tensor? initial_z=None, Tensor? initial_extra=None, "
      "Tensor? omega=None, bool causal=True, SymInt causal_offset=0, "
      "str feature_map='elu1', str? denominator=None, float eps=1e-6, "
      "float scale=1.0, int chunk_size=0, float? softmax_temp=None, "
      "float[] coefficients=[1.0, 2.0, 1.0], float smoothing=1.0, "
      "bool stabilise=False, bool return_state=False) -> "
      "(Tensor out, Tensor S, Tensor z, Tensor extra, Tensor clamped)",
      &SequenceOp);
  m.def(
      "mapped_linear_attention_step(Tensor queries, Tensor keys, "
      "Tensor values, Tensor? state_S=None, Tensor? state_z=None, "
      "Tensor? state_extra=None, Tensor? omega=None, "
      "str feature_map='elu1', str? denominator=None, float eps=1e-6, "
      "float scale=1.0, float? softmax_temp=None, "
      "float[] coefficients=[1.0, 2.0, 1.0], float smoothing=1.0, "
      "bool stabilise=False) -> "
      "(Tensor out, Tensor S, Tensor z, Tensor extra, Tensor clamped)",
      &StepOp);
  m.def(
      "causal_dot_product(Tensor queries, Tensor keys, Tensor values) -> "
      "Tensor",
      &CausalDotProduct);
}

}  // namespace
}  // namespace tarn::ops
