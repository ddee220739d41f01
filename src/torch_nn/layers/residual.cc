#include "torch_nn/layers/residual.h"

#include "core/text.h"

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

ResidualSums::ResidualSums(torch::nn::Module& owner, const ModelConfig& config,
                           int parts)
    : plain_(config.HasPlainSums()),
      pre_(config.norm == Norm::kPre || config.norm == Norm::kBoth),
      post_(config.norm == Norm::kPost),
      factor_(config.residual_factor) {
  const auto add = [&](const char* ending) {
    Norms norms;
    for (int i = 1; i <= parts; ++i) {
      norms.push_back(
          owner.register_module(StrCat("norm", i, ending), MakeNorm(config)));
    }
    return norms;
  };
  if (config.norm == Norm::kNone) return;
  norms_ = add("");
  if (config.norm == Norm::kBoth) after_ = add("_after");
  if (config.norm == Norm::kAfter) after_ = norms_;
}

torch::Tensor ResidualSums::Input(int part, const torch::Tensor& x) const {
  const NormLayer* norm = before(part);
  return norm == nullptr ? x : norm->forward(x);
}

torch::Tensor ResidualSums::Add(int part, const torch::Tensor& x,
                                const torch::Tensor& branch,
                                const torch::Tensor& bias,
                                double dropout) const {
  const NormLayer* closing = post_ ? norm(part) : nullptr;
  const auto sum = [&](const torch::Tensor& rows, const torch::Tensor& added) {
    const auto result =
        AddResidual(rows, x, added, closing, ops::DrawDropout(dropout));
    return closing == nullptr ? result.s : result.y;
  };
  if (plain_) return sum(branch, bias);
  torch::Tensor rows = bias.defined() ? branch + bias : branch;
  if (const NormLayer* after = At(after_, part)) rows = after->forward(rows);
  if (factor_ != 1.0) rows = rows * factor_;
  return sum(rows, {});
}

}  // namespace tarn::nn
