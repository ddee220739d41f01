// The mixture of experts as a module (feed_forward/moe_form.h).
#pragma once

#include <memory>

#include "torch_nn/layers/feed_forward.h"

namespace tarn::nn {

/// A module whose call leaves a loss that training adds to its own.
class WithLoss {
 public:
  virtual ~WithLoss() = default;
  /// The loss of the last call in training mode, which is then forgotten;
  /// undefined without one.
  virtual torch::Tensor TakeLoss() = 0;
};

/// The sum over all modules of the model; undefined where none has a loss.
torch::Tensor TakeLosses(torch::nn::Module& model);

std::unique_ptr<FeedForward> MakeMoe(torch::nn::Module& owner,
                                     const ModelConfig& layer,
                                     const MixerPlace& place);

}  // namespace tarn::nn
