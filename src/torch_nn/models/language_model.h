// The decoder-only language model as a torch::nn module: token embedding,
// positions, causal stack, head. For task image it reads the bytes of a picture
// and its head gives mixtures of logistics.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "config/model_config.h"
#include "torch_nn/layers/embedding.h"
#include "torch_nn/layers/encoder.h"
#include "torch_nn/models/model.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

class LanguageModelImpl : public ModelImpl {
 public:
  /// config: of arch decoder. Initialised from torch's default generator as
  /// PyTorch does: linear maps U(+-1/sqrt(inputs)), norms 1 and 0, token
  /// embedding N(0, 1). Two departures, both for trainability: a tied head
  /// reads the embedding as its weight, so that is N(0, 0.02^2); and so is the
  /// learned position table, which reaches a given loss later when it is as
  /// large as the tokens. Throws ArgumentError naming the key.
  explicit LanguageModelImpl(const ModelConfig& config);

  /// tokens [B, T] int64 in [0, vocab_size) -> logits [B, T, config.Outputs()],
  /// the dtype of the weights (float32 unless converted). T and B may be 0.
  /// Throws ShapeError, DTypeError, ArgumentError for a token outside the
  /// vocabulary (checked on the CPU; on other devices torch's embedding
  /// asserts).
  torch::Tensor forward(const torch::Tensor& tokens);
  torch::Tensor Logits(const Batch& batch) override;

  /// The recurrent form: a state that has seen nothing, and logits [B, T,
  /// Outputs()] of tokens that follow a state, of which the first lengths[b]
  /// count (undefined: all). T = 1 is a step. Throws ArgumentError with the
  /// reason for a kind of attention that has none.
  StackState InitialState(int64_t batch) const;
  StackState EmptyState() const override {
    const torch::NoGradGuard no_grad;
    return InitialState(0);
  }
  std::pair<torch::Tensor, StackState> Prefill(
      const torch::Tensor& tokens, const StackState& state,
      const torch::Tensor& lengths = {});

 private:
  TokenEmbedding embedding_;
  // Not registered itself: its children are, as `layers` and `norm`, because
  // the keys of a model file have no prefix for the stack.
  Encoder encoder_{nullptr};
  Predictor predictor_{nullptr};
};
TORCH_MODULE(LanguageModel);

inline void SaveWeights(
    const LanguageModel& model, const std::string& path,
    const std::map<std::string, std::string>& metadata = {}) {
  SaveWeights(*model, path, metadata);
}
inline void LoadWeights(LanguageModel& model, const std::string& path) {
  LoadWeights(*model, path);
}

}  // namespace tarn::nn
