#include "pytorch/modules_encoder.h"

namespace tarn::nn {
namespace {

torch::nn::LayerNorm MakeNorm(const ModelConfig& config) {
  return torch::nn::LayerNorm(
      torch::nn::LayerNormOptions({config.d_model}).eps(config.norm_eps));
}

}  // namespace

EncoderLayerImpl::EncoderLayerImpl(const ModelConfig& config)
    : pre_norm_(config.norm == Norm::kPre), activation_(config.activation) {
  attention = register_module("attention", AttentionLayer(config));
  linear1 = register_module("linear1",
                            torch::nn::Linear(config.d_model, config.d_ff));
  linear2 = register_module("linear2",
                            torch::nn::Linear(config.d_ff, config.d_model));
  norm1 = register_module("norm1", MakeNorm(config));
  norm2 = register_module("norm2", MakeNorm(config));
  dropout = register_module("dropout", torch::nn::Dropout(config.dropout));
}

torch::Tensor EncoderLayerImpl::FeedForward(const torch::Tensor& x) {
  const torch::Tensor hidden = linear1(x);
  return linear2(dropout(activation_ == Activation::kRelu
                             ? torch::relu(hidden)
                             : torch::gelu(hidden)));
}

torch::Tensor EncoderLayerImpl::forward(const torch::Tensor& x,
                                        const RotaryTable& rotary) {
  if (pre_norm_) {
    const torch::Tensor x1 = x + dropout(attention(norm1(x), rotary));
    return x1 + dropout(FeedForward(norm2(x1)));
  }
  const torch::Tensor x1 = norm1(x + dropout(attention(x, rotary)));
  return norm2(x1 + dropout(FeedForward(x1)));
}

EncoderImpl::EncoderImpl(const ModelConfig& config) : config_(config) {
  layers = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.n_layers; ++i) {
    layers->push_back(EncoderLayer(config));
  }
  if (config.final_norm) norm = register_module("norm", MakeNorm(config));
}

torch::Tensor EncoderImpl::forward(const torch::Tensor& x) {
  const RotaryTable rotary = MakeRotaryTable(config_, x.size(1), x);
  torch::Tensor hidden = x;
  for (const auto& layer : *layers) {
    hidden = layer->as<EncoderLayer>()->forward(hidden, rotary);
  }
  return norm ? norm(hidden) : hidden;
}

}  // namespace tarn::nn
