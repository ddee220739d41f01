// The encoder that labels frames: affine map, positions, a stack that sees the
// whole sequence, head on every frame. What CTC learns with.
#pragma once

#include <torch/torch.h>

#include "core/config.h"
#include "pytorch/model.h"
#include "pytorch/modules_embedding.h"
#include "pytorch/modules_encoder.h"

namespace tarn::nn {

class FrameClassifierImpl : public ModelImpl {
 public:
  /// config: of arch encoder and task ctc. Initialised as LanguageModel.
  explicit FrameClassifierImpl(const ModelConfig& config);

  /// frames [B, T, input_dim], lengths [B] int64 (undefined: T) -> logits
  /// [B, T, n_classes]; those past a row's length are unspecified. Throws
  /// ShapeError, DTypeError or ArgumentError naming the argument.
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
