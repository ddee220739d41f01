// The convolutional model: layers that each see kernel_size neighbouring
// tokens (Kim 2014 in spirit; causal as in Bai et al. 2018).
#pragma once

#include "config/model_config.h"
#include "torch_nn/layers/embedding.h"
#include "torch_nn/models/model.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// y = norm(x + drop(act(conv(x)))). Task lm: causal, all of the kernel is on
/// the left. Task classify: centred, one more token on the right where
/// kernel_size is even; logits of the mean over tokens. What is outside of a
/// sequence is 0.
class CnnModelImpl : public ModelImpl {
 public:
  /// config: of arch cnn. Convolutions U(+-1/sqrt(d_model kernel_size)), the
  /// rest as in LanguageModel.
  explicit CnnModelImpl(const ModelConfig& config);

  torch::Tensor Logits(const Batch& batch) override;

 private:
  TokenEmbedding embedding_;
  torch::nn::ModuleList layers_{nullptr};
  Predictor predictor_{nullptr};
};
TORCH_MODULE(CnnModel);

}  // namespace tarn::nn
