#include "pytorch/frame_classifier.h"

namespace tarn::nn {
namespace {

constexpr char kName[] = "FrameClassifier";

const ModelConfig& Checked(const ModelConfig& config) {
  if (config.arch != Arch::kEncoder || config.task != Task::kCtc) {
    throw ArgumentError("FrameClassifier: arch and task", "encoder and ctc",
                        StrCat(Name(config.arch), " and ", Name(config.task)));
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
  const torch::Tensor x = embedding_(kName, frames);
  const torch::Tensor key_mask =
      PrefixMask(kName, lengths, x.size(0), x.size(1));
  return predictor_(encoder_(x, key_mask), torch::Tensor());
}

torch::Tensor FrameClassifierImpl::Logits(const Batch& batch) {
  return forward(batch.frames, batch.lengths);
}

}  // namespace tarn::nn
