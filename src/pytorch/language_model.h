// The decoder-only language model as a torch::nn module: token embedding,
// positions, causal encoder stack, head. Parameters carry the names of
// WeightShapes() in core/config.h, so that files serve both sides.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>

#include "core/config.h"
#include "pytorch/modules_encoder.h"

namespace tarn::nn {

/// The affine map to logits. Untied it owns `weight` [vocab, D] and `bias`
/// [vocab]; tied it owns the bias and reads the token embedding's weight.
class PredictorImpl : public torch::nn::Module {
 public:
  explicit PredictorImpl(const ModelConfig& config);
  /// x [B, T, D] -> logits [B, T, vocab]. `embedding` [vocab, D] is read by the
  /// tied form only.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& embedding);

  torch::Tensor weight;  // undefined when tied
  torch::Tensor bias;
};
TORCH_MODULE(Predictor);

/// Not thread-safe while training; in eval mode under NoGradGuard any number of
/// threads may call forward.
class LanguageModelImpl : public torch::nn::Module {
 public:
  /// config: as FinishConfig leaves it (it is finished again here, which checks
  /// it; throws ArgumentError naming the key). Initialised from torch's default
  /// generator as PyTorch does: linear maps U(+-1/sqrt(inputs)), norms 1 and 0,
  /// token embedding N(0, 1). Two departures, both for trainability: a tied
  /// head reads the embedding as its weight, so that is N(0, 0.02^2); and so is
  /// the learned position table, which reaches a given loss later when it is as
  /// large as the tokens.
  explicit LanguageModelImpl(const ModelConfig& config);

  /// tokens [B, T] int64 in [0, vocab_size) -> logits [B, T, vocab_size], the
  /// dtype of the weights (float32 unless converted). T and B may be 0. Throws
  /// ShapeError, DTypeError, ArgumentError for a token outside the vocabulary
  /// (checked on the CPU; on other devices torch's embedding asserts).
  torch::Tensor forward(const torch::Tensor& tokens);
  const ModelConfig& config() const { return config_; }

 private:
  // tokens [B, T] -> [B, T, D]: token and position embedding.
  torch::Tensor Embed(const torch::Tensor& tokens);

  ModelConfig config_;
  torch::nn::Embedding value_embedding_{nullptr};
  torch::nn::Embedding pos_embedding_{nullptr};  // learned positions only
  // Not registered itself: its children are, as `layers` and `norm`, because
  // the keys of a model file have no prefix for the stack.
  Encoder encoder_{nullptr};
  Predictor predictor_{nullptr};
  std::shared_ptr<PositionTables> tables_ = std::make_shared<PositionTables>();
};
TORCH_MODULE(LanguageModel);

/// Writes every parameter as F32 under its name (WriteSafetensors: by rename,
/// same bytes for the same weights). Throws IoError.
void SaveWeights(LanguageModel& model, const std::string& path,
                 const std::map<std::string, std::string>& metadata = {});

/// Reads a weight file into the model; every tensor of WeightShapes() must be
/// there with its shape and nothing else. F32, BF16 and F16 are widened. Throws
/// FormatError naming file and tensor, or IoError, with the model untouched.
void LoadWeights(LanguageModel& model, const std::string& path);

}  // namespace tarn::nn
