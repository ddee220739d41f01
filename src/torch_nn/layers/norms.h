// Norms over the last axis as modules, by config.norm_kind.
#pragma once

#include <memory>

#include "config/model_config.h"
#include "torch_nn/torch.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {

/// A norm of d_model entries. It owns its weights and describes itself to
/// ops::ResidualNorm, so that a residual sum and the norm after it are one
/// pass.
class NormLayer : public torch::nn::Module {
 public:
  /// y = norm(x), x [..., d_model].
  torch::Tensor forward(const torch::Tensor& x) const;
  /// Sets gamma, beta, eps and kind.
  virtual void Describe(ops::ResidualNormArguments& arguments) const = 0;
};

/// The norm of config.norm_kind with config.norm_eps: `layer` owns weight (1)
/// and bias (0), `rms` weight (1) alone. The factor of an entry is its weight
/// and config.norm_offset, which the first weights are less. A new kind is a
/// row in norms.cc.
std::shared_ptr<NormLayer> MakeNorm(const ModelConfig& config);

}  // namespace tarn::nn
