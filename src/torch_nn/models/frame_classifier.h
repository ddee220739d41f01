// The encoder that labels frames (task ctc): projection of the frames,
// positions, a stack that sees the whole sequence, a head on every frame.
#pragma once

#include "config/model_config.h"
#include "torch_nn/layers/embedding.h"
#include "torch_nn/layers/encoder.h"
#include "torch_nn/models/model.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

class FrameClassifierImpl : public ModelImpl {
 public:
  /// config: of arch encoder, task ctc. Initialised as LanguageModel, the
  /// projection as torch::nn::Linear. Throws ArgumentError naming the key.
  explicit FrameClassifierImpl(const ModelConfig& config);

  /// frames [B, T, input_dim] in the dtype of the weights, lengths [B] int64
  /// (undefined: T) -> logits [B, T, n_classes], of which the first lengths[b]
  /// rows count. What is past them, NaN included, has no influence. Throws
  /// ShapeError, DTypeError, ArgumentError naming the field.
  torch::Tensor forward(const torch::Tensor& frames,
                        const torch::Tensor& lengths = {});
  torch::Tensor Logits(const Batch& batch) override;

 private:
  FrameEmbedding embedding_;
  Encoder encoder_{
      nullptr};  // its children are registered, as in LanguageModel
  Predictor predictor_{nullptr};
};
TORCH_MODULE(FrameClassifier);

}  // namespace tarn::nn
