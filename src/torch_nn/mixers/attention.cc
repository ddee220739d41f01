#include "torch_nn/mixers/attention.h"

#include "torch_nn/mixers/linear_heads.h"
#include "torch_ops/common/ops.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

// [B, T, H * width] -> [B, T, H, width].
torch::Tensor SplitHeads(const torch::Tensor& x, int64_t heads, int64_t width) {
  return x.unflatten(2, {heads, width});
}

LinearAttentionOptions KernelOptions(const ModelConfig& config, bool causal) {
  LinearAttentionOptions options;
  options.causal = causal;
  options.feature_map = config.feature_map;
  options.denominator = config.denominator;
  options.eps = static_cast<float>(config.eps);
  return options;
}

}  // namespace

AttentionLayerImpl::AttentionLayerImpl(const ModelConfig& config,
                                       AttentionPlace place)
    : config_(config), place_(place), kind_(config.attention) {
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
  RegisterInner();
}

void AttentionLayerImpl::CheckInput(const char* name,
                                    const torch::Tensor& x) const {
  if (x.dim() == 3 && x.size(2) == config_.d_model) return;
  throw ShapeError(StrCat("AttentionLayer: ", name),
                   StrCat("[batch, seq_len, ", config_.d_model, "]"),
                   ShapeText(x.sizes().vec()));
}

torch::Tensor AttentionLayerImpl::forward(const torch::Tensor& x,
                                          const RotaryTable& rotary,
                                          const torch::Tensor& key_mask) {
  return Unbiased(x, rotary, key_mask) + out_projection->bias;
}

torch::Tensor AttentionLayerImpl::Unbiased(const torch::Tensor& x,
                                           const RotaryTable& rotary,
                                           const torch::Tensor& key_mask) {
  CheckInput("x", x);
  if (config_.positions == Positions::kRotary &&
      (!rotary.defined() || rotary.seq_len() != x.size(1))) {
    throw ShapeError(
        "AttentionLayer: rotary", StrCat("a table of ", x.size(1), " tokens"),
        rotary.defined() ? ShapeText(rotary.cos.sizes().vec()) : "none");
  }
  return ops::Affine(Attend(ProjectPacked(x), rotary, key_mask),
                     out_projection->weight);
}

torch::Tensor AttentionLayerImpl::ProjectPacked(const torch::Tensor& x) const {
  return ops::Affine(
      x,
      torch::cat({query_projection->weight, key_projection->weight,
                  value_projection->weight}),
      torch::cat({query_projection->bias, key_projection->bias,
                  value_projection->bias}));
}

AttentionLayerImpl::Heads AttentionLayerImpl::Split(
    const torch::Tensor& packed) const {
  const int64_t heads = config_.n_heads;
  const int64_t keys = heads * config_.d_key;
  const std::vector<torch::Tensor> parts =
      packed.split_with_sizes({keys, keys, heads * config_.d_value}, /*dim=*/2);
  return {SplitHeads(parts[0], heads, config_.d_key),
          SplitHeads(parts[1], heads, config_.d_key),
          SplitHeads(parts[2], heads, config_.d_value)};
}

// packed [B, T, H (2 K + V)] -> [B, T, H V].
torch::Tensor AttentionLayerImpl::Attend(const torch::Tensor& packed,
                                         const RotaryTable& rotary,
                                         const torch::Tensor& key_mask) const {
  const int64_t n_heads = config_.n_heads;
  const bool fused = IsElementwise(config_.feature_map) &&
                     config_.denominator != Denominator::kSigned;
  if (kind_ == AttentionKind::kLinear && fused && !rotary.defined()) {
    return ops::LinearAttentionPacked(
        packed, {n_heads, n_heads, config_.d_key},
        KernelOptions(config_, place_.causal),
        key_mask.defined() ? ops::OptionalTensor(key_mask) : std::nullopt);
  }
  Heads heads = Split(packed);
  // By the tensor's size, padding included: the switch is the batch's.
  const bool linear = kind_ == AttentionKind::kLinear ||
                      (kind_ == AttentionKind::kConditionalFull &&
                       packed.size(1) > config_.length_limit);
  if (linear) return AttendLinear(heads, rotary, key_mask).flatten(2);
  heads.queries = Rotate(heads.queries, rotary);
  heads.keys = Rotate(heads.keys, rotary);
  return AttendKind(heads, key_mask, place_.causal, 0).flatten(2);
}

torch::Tensor AttentionLayerImpl::AttendLinear(
    const Heads& heads, const RotaryTable& rotary,
    const torch::Tensor& key_mask) const {
  LinearHeads in;
  in.queries = heads.queries;
  in.keys = heads.keys;
  in.values = heads.values;
  in.key_mask = key_mask;
  in.omega = omega_;
  in.causal = place_.causal;
  if (rotary.defined() && config_.rotary_place == RotaryPlace::kAfter) {
    return AttendTurnedAfter(config_, in, rotary, nullptr);
  }
  in.queries = Rotate(heads.queries, rotary);
  in.keys = Rotate(heads.keys, rotary);
  return AttendLinearHeads(config_, in, nullptr);
}

}  // namespace tarn::nn
