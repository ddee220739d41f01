// Optimisers as plain functions on tensors, and the state they carry.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/options.h"

namespace tarn::train {

struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.01;  // decoupled: parameters shrink by lr * this
};

/// One update of `parameter` in place; m, v: running means of the gradient and
/// its square, same shape, zeros before update k = 1. Call under NoGradGuard.
///
/// Loshchilov and Hutter 2019, algorithm 2, as torch.optim.AdamW computes it:
///   p -= lr wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
///   p -= lr / (1-b1^k) * m / (sqrt(v) / sqrt(1-b2^k) + eps)
void AdamWUpdate(torch::Tensor parameter, const torch::Tensor& gradient,
                 torch::Tensor m, torch::Tensor v, int64_t k,
                 const AdamOptions& options);

/// Liu et al. 2020, algorithm 2, in the variant of the linear transformer
/// paper's code: eps is added to sqrt(v) before v's bias is corrected.
///   rho_inf = 2/(1-b2) - 1;  rho_k = rho_inf - 2 k b2^k / (1-b2^k)
///   p -= lr wd p;  m, v as above
///   rho_k >= 5: p -= lr m / (sqrt(v)+eps) / (1-b1^k) * sqrt((1-b2^k)
///     (rho_k-4)(rho_k-2) rho_inf / ((rho_inf-4)(rho_inf-2) rho_k))
///   else: p -= lr m / (1-b1^k)
void RAdamUpdate(torch::Tensor parameter, const torch::Tensor& gradient,
                 torch::Tensor m, torch::Tensor v, int64_t k,
                 const AdamOptions& options);

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Norm over all gradients, accumulated in double; parameters without a
/// gradient count as zero.
double GradientNorm(const NamedTensors& parameters);
/// Scales all gradients by one factor so that their norm is at most
/// `largest`. norm: what GradientNorm returned.
void ClipTogether(const NamedTensors& parameters, double norm, double largest);
/// Scales each tensor's gradient so that its own norm is at most `largest`.
void ClipEach(const NamedTensors& parameters, double largest);

/// Parameters with their optimiser state. One thread at a time.
class Optimizer {
 public:
  /// parameters: name and leaf tensor, float32. clip: 0 is off; AdamW clips
  /// the norm over all gradients, RAdam that of each tensor (the paper's code).
  Optimizer(NamedTensors parameters, OptimizerKind kind, double weight_decay,
            double clip);

  /// Applies the gradients held by the parameters and clears them. Returns
  /// their norm before clipping. When that is not finite nothing is changed.
  double Step(double lr);
  int64_t updates() const { return updates_; }

  /// The state as a weight file: tensors "m.<name>" and "v.<name>", the number
  /// of updates as metadata. Load throws FormatError when a tensor is missing,
  /// has another shape, or is one too many.
  void Save(const std::string& path) const;
  void Load(const std::string& path);

 private:
  NamedTensors parameters_;
  std::vector<torch::Tensor> m_, v_;  // parallel to parameters_
  OptimizerKind kind_;
  double weight_decay_, clip_;
  int64_t updates_ = 0;
};

}  // namespace tarn::train
