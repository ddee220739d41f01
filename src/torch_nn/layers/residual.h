// Residual sums of the layers: one pass each, with the norm that follows.
#pragma once

#include "torch_nn/layers/norms.h"
#include "torch_nn/torch.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {

/// s = x + drop(branch + bias) and, with a norm, y = norm(s). An undefined bias
/// is 0.
ops::ResidualNormResult AddResidual(const torch::Tensor& branch,
                                    const torch::Tensor& x,
                                    const torch::Tensor& bias,
                                    const NormLayer* norm,
                                    const ops::Dropout& dropout);

}  // namespace tarn::nn
