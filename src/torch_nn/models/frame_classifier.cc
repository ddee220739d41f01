#include "torch_nn/models/frame_classifier.h"

namespace tarn::nn {
namespace {

constexpr char kFrameClassifier[] = "FrameClassifier";

const ModelConfig& Checked(const ModelConfig& config) {
  if (config.arch != Arch::kEncoder) {
    throw ArgumentError("FrameClassifier: arch", "encoder", Name(config.arch));
  }
  if (config.task != Task::kCtc) {
    throw ArgumentError("FrameClassifier: task", "ctc", Name(config.task));
  }
  return config;
}

}  // namespace

FrameClassifierImpl::FrameClassifierImpl(const ModelConfig& config)
    : ModelImpl(config), embedding_(*this, Checked(config_)) {
  encoder_ = Encoder(config_, /*causal=*/false);
  register_module("layers", encoder_->layers);
  if (encoder_->norm) register_module("norm", encoder_->norm);
  predictor_ = register_module("predictor", Predictor(config_));
}

torch::Tensor FrameClassifierImpl::forward(const torch::Tensor& frames,
                                           const torch::Tensor& lengths) {
  const Frames kept =
      CheckFrames(kFrameClassifier, frames, lengths, config_.input_dim,
                  predictor_->weight.scalar_type());
  const torch::Tensor x = embedding_(kFrameClassifier, kept.values);
  return predictor_(encoder_(x, kept.key_mask), torch::Tensor());
}

torch::Tensor FrameClassifierImpl::Logits(const Batch& batch) {
  return forward(batch.frames, batch.lengths);
}

}  // namespace tarn::nn
