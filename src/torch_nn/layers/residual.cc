#include "torch_nn/layers/residual.h"

namespace tarn::nn {

torch::nn::LayerNorm MakeNorm(const ModelConfig& config) {
  return torch::nn::LayerNorm(
      torch::nn::LayerNormOptions({config.d_model}).eps(config.norm_eps));
}

torch::Tensor Normalise(const torch::nn::LayerNorm& norm,
                        const torch::Tensor& x) {
  ops::ResidualNormArguments a;
  a.x = x;
  a.gamma = norm->weight;
  a.beta = norm->bias;
  a.eps = norm->options.eps();
  return ops::ResidualNorm(a).y;
}

ops::ResidualNormResult AddResidual(const torch::Tensor& branch,
                                    const torch::Tensor& x,
                                    const torch::Tensor& bias,
                                    const torch::nn::LayerNorm* norm,
                                    const ops::Dropout& dropout) {
  ops::ResidualNormArguments a;
  a.x = branch;
  a.residual = x;
  if (bias.defined()) a.bias = bias;
  if (norm != nullptr) {
    a.gamma = (*norm)->weight;
    a.beta = (*norm)->bias;
    a.eps = (*norm)->options.eps();
  }
  a.dropout = dropout;
  return ops::ResidualNorm(a);
}

}  // namespace tarn::nn
