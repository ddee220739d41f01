// Layer norm and residual sums as the layers use them: one pass each.
#pragma once

#include <torch/torch.h>

#include <functional>

#include "config/model_config.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {

/// LayerNorm over d_model with the config's eps.
torch::nn::LayerNorm MakeNorm(const ModelConfig& config);

/// norm(x).
torch::Tensor Normalise(const torch::nn::LayerNorm& norm,
                        const torch::Tensor& x);

/// s = x + drop(branch + bias) and, with a norm, y = norm(s). An undefined bias
/// is 0.
ops::ResidualNormResult AddResidual(const torch::Tensor& branch,
                                    const torch::Tensor& x,
                                    const torch::Tensor& bias,
                                    const torch::nn::LayerNorm* norm,
                                    const ops::Dropout& dropout);

/// A part of a layer without its last bias, which the residual adds.
using Branch = std::function<torch::Tensor(const torch::Tensor&)>;

}  // namespace tarn::nn
