#include "torch_nn/models/cnn.h"

#include "torch_nn/layers/residual.h"
#include "torch_nn/models/classifier.h"
#include "torch_nn/state/lengths.h"

namespace tarn::nn {
namespace {

constexpr char kCnnModel[] = "CnnModel";

class ConvolutionLayerImpl : public torch::nn::Module {
 public:
  explicit ConvolutionLayerImpl(const ModelConfig& config)
      : activation_(config.activation),
        dropout_(config.dropout),
        left_(config.task == Task::kLm ? config.kernel_size - 1
                                       : (config.kernel_size - 1) / 2),
        right_(config.kernel_size - 1 - left_) {
    conv_ = register_module(
        "conv", torch::nn::Conv1d(torch::nn::Conv1dOptions(
                    config.d_model, config.d_model, config.kernel_size)));
    norm_ = register_module("norm", MakeNorm(config));
  }

  // x [B, T, D] -> [B, T, D]; outside [B, T, 1] bool, undefined: nowhere.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& outside) {
    if (x.size(0) == 0 || x.size(1) == 0) return x;  // torch's layer refuses
    const torch::Tensor seen =
        outside.defined() ? x.masked_fill(outside, 0.0) : x;
    const torch::Tensor mixed = conv_(torch::constant_pad_nd(
        seen.transpose(1, 2), {left_, right_}));  // [B, D, T]
    const torch::Tensor branch = Curve(mixed).transpose(1, 2).contiguous();
    return AddResidual(branch, x, torch::Tensor(), norm_.get(),
                       ops::DrawDropout(is_training() ? dropout_ : 0.0))
        .y;
  }

 private:
  torch::Tensor Curve(const torch::Tensor& x) const {
    if (activation_ == Activation::kRelu) return torch::relu(x);
    return torch::gelu(x,
                       activation_ == Activation::kGeluTanh ? "tanh" : "none");
  }

  Activation activation_;
  double dropout_;
  int64_t left_, right_;  // zeros on each side of a sequence
  torch::nn::Conv1d conv_{nullptr};
  std::shared_ptr<NormLayer> norm_;
};
TORCH_MODULE(ConvolutionLayer);

}  // namespace

CnnModelImpl::CnnModelImpl(const ModelConfig& config)
    : ModelImpl(config),
      embedding_(*this, config_, "value_", /*shared=*/config_.tied_head) {
  if (config_.arch != Arch::kCnn) {
    throw ArgumentError("CnnModel: arch", "cnn", Name(config_.arch));
  }
  layers_ = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config_.n_layers; ++i) {
    layers_->push_back(ConvolutionLayer(config_));
  }
  predictor_ = register_module("predictor", Predictor(config_));
}

torch::Tensor CnnModelImpl::Logits(const Batch& batch) {
  torch::Tensor hidden = embedding_(kCnnModel, batch.tokens);
  const torch::Tensor key_mask = PrefixMask(kCnnModel, batch.lengths, hidden);
  const torch::Tensor outside =
      key_mask.defined() ? ~key_mask.unsqueeze(-1) : torch::Tensor();
  for (const auto& layer : *layers_) {
    hidden = layer->as<ConvolutionLayer>()->forward(hidden, outside);
  }
  if (config_.task == Task::kClassify) {
    hidden = MeanOverTokens(hidden, key_mask);
  }
  return predictor_(hidden, embedding_.weight());
}

}  // namespace tarn::nn
