#include "torch_nn/layers/residual.h"

namespace tarn::nn {

ops::ResidualNormResult AddResidual(const torch::Tensor& branch,
                                    const torch::Tensor& x,
                                    const torch::Tensor& bias,
                                    const NormLayer* norm,
                                    const ops::Dropout& dropout) {
  ops::ResidualNormArguments a;
  a.x = branch;
  a.residual = x;
  if (bias.defined()) a.bias = bias;
  if (norm != nullptr) norm->Describe(a);
  a.dropout = dropout;
  return ops::ResidualNorm(a);
}

}  // namespace tarn::nn
