#include "pytorch/modules_encoder.h"

namespace tarn::nn {
namespace {

torch::nn::LayerNorm MakeNorm(const ModelConfig& config) {
  return torch::nn::LayerNorm(
      torch::nn::LayerNormOptions({config.d_model}).eps(config.norm_eps));
}

// norm(x), one pass.
torch::Tensor Normalise(const torch::nn::LayerNorm& norm,
                        const torch::Tensor& x) {
  ops::ResidualNormArguments a;
  a.x = x;
  a.gamma = norm->weight;
  a.beta = norm->bias;
  a.eps = norm->options.eps();
  return ops::ResidualNorm(a).y;
}

// s = x + drop(branch + bias) and, with a norm, y = norm(s).
ops::ResidualNormResult AddResidual(const torch::Tensor& branch,
                                    const torch::Tensor& x,
                                    const torch::Tensor& bias,
                                    const torch::nn::LayerNorm* norm,
                                    const ops::Dropout& dropout) {
  ops::ResidualNormArguments a;
  a.x = branch;
  a.residual = x;
  a.bias = bias;
  if (norm != nullptr) {
    a.gamma = (*norm)->weight;
    a.beta = (*norm)->bias;
    a.eps = (*norm)->options.eps();
  }
  a.dropout = dropout;
  return ops::ResidualNorm(a);
}

}  // namespace

EncoderLayerImpl::EncoderLayerImpl(const ModelConfig& config)
    : pre_norm_(config.norm == Norm::kPre),
      activation_(config.activation),
      dropout_(config.dropout) {
  attention = register_module("attention", AttentionLayer(config));
  linear1 = register_module("linear1",
                            torch::nn::Linear(config.d_model, config.d_ff));
  linear2 = register_module("linear2",
                            torch::nn::Linear(config.d_ff, config.d_model));
  norm1 = register_module("norm1", MakeNorm(config));
  norm2 = register_module("norm2", MakeNorm(config));
}

torch::Tensor EncoderLayerImpl::FeedForward(const torch::Tensor& x) {
  return ops::FeedForward(x, linear1->weight, linear1->bias, linear2->weight,
                          activation_, Draw());
}

ops::Dropout EncoderLayerImpl::Draw() const {
  return ops::DrawDropout(is_training() ? dropout_ : 0.0);
}

torch::Tensor EncoderLayerImpl::forward(const torch::Tensor& x,
                                        const RotaryTable& rotary) {
  // One statement a site: masks are drawn in the order of the formula.
  const torch::Tensor attended =
      attention->Unbiased(pre_norm_ ? Normalise(norm1, x) : x, rotary);
  const auto [normed, summed] =
      AddResidual(attended, x, attention->out_projection->bias,
                  pre_norm_ ? &norm2 : &norm1, Draw());
  const torch::Tensor hidden = FeedForward(normed);
  if (pre_norm_) {
    return AddResidual(hidden, summed, linear2->bias, nullptr, Draw()).s;
  }
  return AddResidual(hidden, normed, linear2->bias, &norm2, Draw()).y;
}

EncoderImpl::EncoderImpl(const ModelConfig& config) : config_(config) {
  layers = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.n_layers; ++i) {
    layers->push_back(EncoderLayer(config));
  }
  if (config.final_norm) norm = register_module("norm", MakeNorm(config));
}

torch::Tensor EncoderImpl::forward(const torch::Tensor& x) {
  const RotaryTable rotary = tables_->Rotary(config_, x.size(1), x);
  torch::Tensor hidden = x;
  for (const auto& layer : *layers) {
    hidden = layer->as<EncoderLayer>()->forward(hidden, rotary);
  }
  return norm ? Normalise(norm, hidden) : hidden;
}

}  // namespace tarn::nn
