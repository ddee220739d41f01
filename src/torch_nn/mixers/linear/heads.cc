#include "torch_nn/mixers/linear/heads.h"

#include <limits>

#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

ops::OptionalTensor Optional(const torch::Tensor& tensor) {
  if (tensor.defined()) return tensor;
  return std::nullopt;
}

torch::Tensor Call(const LinearHeads& heads,
                   ops::MappedAttentionOptions options,
                   ops::LinearState* sums) {
  options.causal = heads.causal;
  options.key_mask = Optional(heads.key_mask);
  options.key_lengths = Optional(heads.key_lengths);
  auto result = ops::MappedLinearAttention(
      heads.queries, heads.keys, heads.values, options,
      sums != nullptr ? *sums : ops::LinearState(),
      /*return_state=*/sums != nullptr);
  if (sums != nullptr) *sums = std::move(result.state);
  return result.out;
}

}  // namespace

torch::Tensor AttendLinearHeads(const LinearKeys& keys,
                                const LinearHeads& heads,
                                ops::LinearState* sums) {
  ops::MappedAttentionOptions options;
  options.features.map = keys.feature_map;
  options.features.stabilise = keys.stabilise;
  if (UsesOmega(keys.feature_map)) {
    const bool wide = heads.queries.scalar_type() == torch::kFloat64;
    options.features.omega =
        heads.omega.to(wide ? torch::kFloat64 : torch::kFloat32);
  }
  options.denominator = keys.denominator;
  options.eps = keys.eps;
  return Call(heads, std::move(options), sums);
}

// Turned features may be negative, so only the numerator uses them and the
// weights no longer form an average.
torch::Tensor AttendTurnedAfter(const LinearKeys& keys,
                                const LinearHeads& heads,
                                const RotaryTable& rotary,
                                ops::LinearState* sums) {
  ops::FeatureMapOptions phi;
  phi.map = keys.feature_map;
  torch::Tensor phi_queries = ops::Features(phi, heads.queries);
  const torch::Tensor phi_keys = ops::Features(phi, heads.keys);
  if (keys.denominator == Denominator::kExact) {
    // The ratio is free of the scale of phi(q); scale each row's largest entry
    // to 1, so that the denominator does not underflow early.
    const torch::Tensor largest = phi_queries.detach().abs().amax(-1, true);
    phi_queries =
        phi_queries / largest.clamp_min(std::numeric_limits<float>::min());
  }
  ops::MappedAttentionOptions options;
  options.features.map = FeatureMap::kIdentity;
  options.denominator = Denominator::kNone;
  LinearHeads turned = heads;
  turned.queries = Rotate(phi_queries, rotary);
  turned.keys = Rotate(phi_keys, rotary);
  LinearHeads plain = heads;
  plain.queries = phi_queries;
  plain.keys = phi_keys;
  plain.values = torch::ones(
      {heads.values.size(0), heads.values.size(1), heads.values.size(2), 1},
      heads.values.options());
  // Each call keeps one half of the state: the numerator's S, and, as the S of
  // values that are all 1, the sum of features.
  ops::LinearState numerator, denominator;
  if (sums != nullptr && sums->S.defined()) {
    numerator = *sums;
    denominator = {sums->z.unsqueeze(-1), sums->z, {}};
  }
  const torch::Tensor numerators =  // [B, T, H, V]
      Call(turned, options, sums != nullptr ? &numerator : nullptr);
  const bool divided = keys.denominator != Denominator::kNone;
  torch::Tensor denominators;  // [B, T, H, 1]
  if (divided || sums != nullptr) {
    denominators =
        Call(plain, options, sums != nullptr ? &denominator : nullptr);
  }
  if (sums != nullptr) *sums = {numerator.S, denominator.S.squeeze(-1), {}};
  if (!divided) return numerators;
  if (keys.denominator == Denominator::kCompat) {
    return numerators / (denominators + keys.eps);
  }
  // Rows without a positive denominator are 0, and so is their gradient: the
  // numerator is divided by 1 there, never by 0.
  const torch::Tensor positive = denominators > 0;
  return torch::where(
      positive,
      numerators / torch::where(positive, denominators,
                                torch::ones({}, denominators.options())),
      torch::zeros({}, numerators.options()));
}

torch::Tensor AttendTurned(const LinearKeys& keys, const LinearHeads& heads,
                           const RotaryTable& rotary, ops::LinearState* sums) {
  if (rotary.defined() && keys.rotary_place == RotaryPlace::kAfter) {
    return AttendTurnedAfter(keys, heads, rotary, sums);
  }
  LinearHeads turned = heads;
  turned.queries = Rotate(heads.queries, rotary);
  turned.keys = Rotate(heads.keys, rotary);
  return AttendLinearHeads(keys, turned, sums);
}

}  // namespace tarn::nn
