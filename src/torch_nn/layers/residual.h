// Residual sums of the layers and the norms around their parts.
#pragma once

#include <memory>
#include <vector>

#include "torch_nn/layers/norms.h"
#include "torch_nn/torch.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {

/// s = x + drop(branch + bias) and, with a norm, y = norm(s), in one pass. An
/// undefined bias is 0.
ops::ResidualNormResult AddResidual(const torch::Tensor& branch,
                                    const torch::Tensor& x,
                                    const torch::Tensor& bias,
                                    const NormLayer* norm,
                                    const ops::Dropout& dropout);

/// The norms of a layer's parts, by config.norm:
///   x = closing(x + config.residual_factor drop(after(part(before(x)))))
/// where `pre` has the norm before, `post` the closing one, `after` and `both`
/// those of their names. Immutable once made.
class ResidualSums {
 public:
  /// Registers norm1 to norm{parts} with `owner`, then, for `both`,
  /// norm1_after to norm{parts}_after.
  ResidualSums(torch::nn::Module& owner, const ModelConfig& config, int parts);

  /// Whether a sum is x + drop(part(x)) with one norm before or after it: then
  /// the fused operators compute it.
  bool plain() const { return plain_; }
  bool pre() const { return pre_; }
  /// norm{part + 1}; null without norms.
  const NormLayer* norm(int part) const { return At(norms_, part); }
  /// The norm of what a part reads; null where it reads x.
  const NormLayer* before(int part) const {
    return pre_ ? At(norms_, part) : nullptr;
  }
  /// What a part reads of x [B, T, d_model].
  torch::Tensor Input(int part, const torch::Tensor& x) const;
  /// x after the part whose result, before the bias, is `branch`. An undefined
  /// bias is 0.
  torch::Tensor Add(int part, const torch::Tensor& x,
                    const torch::Tensor& branch, const torch::Tensor& bias,
                    double dropout) const;

 private:
  using Norms = std::vector<std::shared_ptr<NormLayer>>;
  static const NormLayer* At(const Norms& norms, int part) {
    return norms.empty() ? nullptr : norms[static_cast<size_t>(part)].get();
  }

  bool plain_, pre_, post_;
  double factor_;
  Norms norms_, after_;  // by part; empty: none
};

}  // namespace tarn::nn
