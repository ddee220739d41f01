// The encoder classifier: token embedding, positions, a stack that sees the
// whole sequence, the mean over its tokens, head.
#pragma once

#include "config/model_config.h"
#include "torch_nn/layers/embedding.h"
#include "torch_nn/layers/encoder.h"
#include "torch_nn/models/model.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

class ClassifierImpl : public ModelImpl {
 public:
  /// config: of arch encoder, task classify. Initialised as LanguageModel.
  explicit ClassifierImpl(const ModelConfig& config);

  /// tokens [B, T] int64, lengths [B] int64 (undefined: T) -> logits
  /// [B, n_classes] = predictor(mean of the stack's output over the first
  /// lengths[b] tokens); the mean of no tokens is 0. Errors as
  /// LanguageModel::forward.
  torch::Tensor forward(const torch::Tensor& tokens,
                        const torch::Tensor& lengths = {});
  torch::Tensor Logits(const Batch& batch) override;

 private:
  TokenEmbedding embedding_;
  Encoder encoder_{
      nullptr};  // its children are registered, as in LanguageModel
  Predictor predictor_{nullptr};
};
TORCH_MODULE(Classifier);

/// hidden [B, T, D] -> [B, D], the mean over tokens that key_mask [B, T] keeps
/// (undefined: all), 0 where there are none. What is not kept is skipped.
torch::Tensor MeanOverTokens(const torch::Tensor& hidden,
                             const torch::Tensor& key_mask);

}  // namespace tarn::nn
