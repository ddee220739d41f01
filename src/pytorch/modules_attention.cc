#include "pytorch/modules_attention.h"

#include <cmath>
#include <limits>

#include "pytorch/ops.h"
#include "pytorch/ops_layers.h"

namespace tarn::nn {
namespace {

// phi(x). For elu+1, exp(x) where x <= 0 and never elu(x) + 1, which cancels;
// the clamp keeps exp finite on the branch that is not taken, so that its
// gradient is 0 and not NaN.
at::Tensor Feature(FeatureMap map, const at::Tensor& x) {
  if (map == FeatureMap::kIdentity) return x;
  return at::where(x > 0, x + 1, x.clamp_max(0).exp());
}

// [B, T, H * width] -> [B, T, H, width].
at::Tensor SplitHeads(const at::Tensor& x, int64_t heads, int64_t width) {
  return x.unflatten(2, {heads, width});
}

LinearAttentionOptions KernelOptions(const ModelConfig& config) {
  LinearAttentionOptions options;
  options.feature_map = config.feature_map;
  options.denominator = config.denominator;
  options.eps = static_cast<float>(config.eps);
  return options;
}

}  // namespace

AttentionLayerImpl::AttentionLayerImpl(const ModelConfig& config)
    : config_(config) {
  if (config.d_key < 1 || config.d_value < 1 || config.n_heads < 1) {
    throw ArgumentError("AttentionLayer: config",
                        "a finished config (FinishConfig)",
                        StrCat("n_heads ", config.n_heads, ", d_key ",
                               config.d_key, ", d_value ", config.d_value));
  }
  const int64_t keys = config.n_heads * config.d_key;
  const int64_t values = config.n_heads * config.d_value;
  const int64_t d_model = config.d_model;
  query_projection =
      register_module("query_projection", torch::nn::Linear(d_model, keys));
  key_projection =
      register_module("key_projection", torch::nn::Linear(d_model, keys));
  value_projection =
      register_module("value_projection", torch::nn::Linear(d_model, values));
  out_projection =
      register_module("out_projection", torch::nn::Linear(values, d_model));
}

torch::Tensor AttentionLayerImpl::forward(const torch::Tensor& x,
                                          const RotaryTable& rotary) {
  return Unbiased(x, rotary) + out_projection->bias;
}

torch::Tensor AttentionLayerImpl::Unbiased(const torch::Tensor& x,
                                           const RotaryTable& rotary) {
  if (x.dim() != 3 || x.size(2) != config_.d_model) {
    throw ShapeError("AttentionLayer: x",
                     StrCat("[batch, seq_len, ", config_.d_model, "]"),
                     ShapeText(x.sizes().vec()));
  }
  if (config_.positions == Positions::kRotary &&
      (!rotary.defined() || rotary.cos.size(0) != x.size(1))) {
    throw ShapeError(
        "AttentionLayer: rotary", StrCat("a table of ", x.size(1), " tokens"),
        rotary.defined() ? ShapeText(rotary.cos.sizes().vec()) : "none");
  }
  // One product for queries, keys and values: [B, T, H (2 K + V)].
  const at::Tensor packed =
      ops::Affine(x,
                  torch::cat({query_projection->weight, key_projection->weight,
                              value_projection->weight}),
                  torch::cat({query_projection->bias, key_projection->bias,
                              value_projection->bias}));
  return ops::Affine(Attend(packed, rotary), out_projection->weight);
}

// packed [B, T, H (2 K + V)] -> [B, T, H V].
torch::Tensor AttentionLayerImpl::Attend(const torch::Tensor& packed,
                                         const RotaryTable& rotary) const {
  const int64_t heads = config_.n_heads;
  if (config_.attention == AttentionKind::kLinear && !rotary.defined()) {
    return ops::LinearAttentionPacked(packed, {heads, heads, config_.d_key},
                                      KernelOptions(config_));
  }
  const int64_t keys = heads * config_.d_key;
  const std::vector<at::Tensor> parts =
      packed.split_with_sizes({keys, keys, heads * config_.d_value}, /*dim=*/2);
  const at::Tensor queries = SplitHeads(parts[0], heads, config_.d_key);
  const at::Tensor key_rows = SplitHeads(parts[1], heads, config_.d_key);
  const at::Tensor values = SplitHeads(parts[2], heads, config_.d_value);
  return (config_.attention == AttentionKind::kLinear
              ? AttendLinear(queries, key_rows, values, rotary)
              : AttendFull(queries, key_rows, values, rotary))
      .flatten(2);
}

torch::Tensor AttentionLayerImpl::AttendLinear(
    const torch::Tensor& queries, const torch::Tensor& keys,
    const torch::Tensor& values, const RotaryTable& rotary) const {
  if (rotary.defined() && config_.rotary_place == RotaryPlace::kAfter) {
    return AttendRotatedAfter(queries, keys, values, rotary);
  }
  return ops::LinearAttention(Rotate(queries, rotary), Rotate(keys, rotary),
                              values, KernelOptions(config_));
}

// Rotation after the feature map (Su et al. 2021, eq. (19)): o_i = sum_j (R_i
// phi(q_i)) . (R_j phi(k_j)) v_j / sum_j phi(q_i) . phi(k_j). Rotated features
// may be negative, so only the numerator sees them and the weights are no
// average any more. Two calls of the operator, both without a denominator.
torch::Tensor AttentionLayerImpl::AttendRotatedAfter(
    const torch::Tensor& queries, const torch::Tensor& keys,
    const torch::Tensor& values, const RotaryTable& rotary) const {
  at::Tensor phi_queries = Feature(config_.feature_map, queries);
  const at::Tensor phi_keys = Feature(config_.feature_map, keys);
  if (config_.denominator == Denominator::kExact) {
    // The ratio is free of the scale of phi(q); bring each row's largest entry
    // to 1, so that the denominator does not underflow before its time.
    const at::Tensor largest = phi_queries.detach().abs().amax(-1, true);
    phi_queries =
        phi_queries / largest.clamp_min(std::numeric_limits<float>::min());
  }
  LinearAttentionOptions options;
  options.feature_map = FeatureMap::kIdentity;
  options.denominator = Denominator::kNone;
  const at::Tensor numerators =  // [B, T, H, V]
      ops::LinearAttention(Rotate(phi_queries, rotary),
                           Rotate(phi_keys, rotary), values, options);
  if (config_.denominator == Denominator::kNone) return numerators;
  const at::Tensor ones = torch::ones(
      {values.size(0), values.size(1), values.size(2), 1}, values.options());
  const at::Tensor denominators =  // [B, T, H, 1]
      ops::LinearAttention(phi_queries, phi_keys, ones, options);
  if (config_.denominator == Denominator::kCompat) {
    return numerators / (denominators + config_.eps);
  }
  // Rows without a positive denominator are 0, and so is their gradient: the
  // quotient is taken by 1 there, never by 0.
  const at::Tensor positive = denominators > 0;
  return at::where(
      positive,
      numerators / at::where(positive, denominators,
                             torch::ones({}, denominators.options())),
      torch::zeros({}, numerators.options()));
}

torch::Tensor AttentionLayerImpl::AttendFull(const torch::Tensor& queries,
                                             const torch::Tensor& keys,
                                             const torch::Tensor& values,
                                             const RotaryTable& rotary) const {
  // torch's heads come before time; it blocks the T x T weights where it can
  // (no dropout, d_key == d_value) and materialises them otherwise.
  const double dropout = is_training() ? config_.attention_dropout : 0.0;
  return at::scaled_dot_product_attention(
             Rotate(queries, rotary).transpose(1, 2),
             Rotate(keys, rotary).transpose(1, 2), values.transpose(1, 2),
             /*attn_mask=*/std::nullopt, dropout, /*is_causal=*/true,
             /*scale=*/1.0 / std::sqrt(static_cast<double>(config_.d_key)))
      .transpose(1, 2);
}

}  // namespace tarn::nn
