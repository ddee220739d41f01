#include "torch_nn/models/classifier.h"

#include "torch_nn/state/lengths.h"

namespace tarn::nn {
namespace {

constexpr char kClassifier[] = "Classifier";

}  // namespace

torch::Tensor MeanOverTokens(const torch::Tensor& hidden,
                             const torch::Tensor& key_mask) {
  if (!key_mask.defined()) {
    return hidden.sum(1) / std::max<int64_t>(1, hidden.size(1));
  }
  const torch::Tensor kept = key_mask.unsqueeze(-1);  // [B, T, 1]
  const torch::Tensor counts =
      key_mask.sum(1, /*keepdim=*/true).clamp_min(1).to(hidden.dtype());
  return hidden.masked_fill(~kept, 0.0).sum(1) / counts;
}

ClassifierImpl::ClassifierImpl(const ModelConfig& config)
    : ModelImpl(config),
      embedding_(*this, config_, "value_", /*shared=*/false) {
  if (config_.arch != Arch::kEncoder) {
    throw ArgumentError("Classifier: arch", "encoder", Name(config_.arch));
  }
  if (config_.task != Task::kClassify) {
    throw ArgumentError("Classifier: task", "classify", Name(config_.task));
  }
  encoder_ = Encoder(config_, /*causal=*/false);
  register_module("layers", encoder_->layers);
  if (encoder_->norm) register_module("norm", encoder_->norm);
  predictor_ = register_module("predictor", Predictor(config_));
}

torch::Tensor ClassifierImpl::forward(const torch::Tensor& tokens,
                                      const torch::Tensor& lengths) {
  const torch::Tensor x = embedding_(kClassifier, tokens);
  const torch::Tensor key_mask = PrefixMask(kClassifier, lengths, x);
  return predictor_(MeanOverTokens(encoder_(x, key_mask), key_mask),
                    torch::Tensor());
}

torch::Tensor ClassifierImpl::Logits(const Batch& batch) {
  return forward(batch.tokens, batch.lengths);
}

}  // namespace tarn::nn
