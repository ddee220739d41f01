// Adam and related optimisers in one pass over all parameters, and the norms of
// their gradients in one pass.
//   g = gradient * gradient_scale
//   p -= lr * weight_decay * p;  m += (1 - beta1) (g - m)
//   v = beta2 v + (1 - beta2) g^2
//   AdamW (Loshchilov and Hutter 2019, algorithm 2, as torch.optim.AdamW):
//     p -= lr / (1 - beta1^k) * m / (sqrt(v) / sqrt(1 - beta2^k) + eps)
//   RAdam (Liu et al. 2020, algorithm 2, in the variant of the linear
//   transformer paper's code: eps joins sqrt(v) before v's bias is corrected):
//     rho_inf = 2 / (1 - beta2) - 1
//     rho_k = rho_inf - 2 k beta2^k / (1 - beta2^k)
//     rho_k >= 5: p -= lr m / (sqrt(v) + eps) / (1 - beta1^k) * sqrt((1 -
//       beta2^k) (rho_k - 4) (rho_k - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2)
//       rho_k))
//     else: p -= lr m / (1 - beta1^k)
#pragma once

#include <cstdint>
#include <vector>

#include "core/executor.h"

namespace tarn {

enum class AdamKind { kAdamW, kRAdam };

struct AdamStepOptions {
  AdamKind kind = AdamKind::kAdamW;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.01;  // decoupled: parameters shrink by lr * this
  int64_t update = 1;          // k, counted from 1
};

/// The factors of one update, which every element shares:
///   p = p * decay - rate * m / (sqrt(v) * root_factor + eps)   (adaptive)
///   p = p * decay - rate * m                                   (otherwise)
struct AdamFactors {
  double decay, rate, root_factor, eps, beta1, beta2;
  bool adaptive;
};

/// Throws ArgumentError for update < 1, rates below 0 and betas outside [0, 1).
AdamFactors MakeAdamFactors(const AdamStepOptions& options);

/// One parameter, dense; m, v: zeros before the first update.
struct AdamTensor {
  float* parameter = nullptr;
  const float* gradient = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  int64_t size = 0;
  float gradient_scale = 1.0f;  // from clipping
};

/// Updates all tensors in place, each element once. Throws ArgumentError for
/// null data before any work. Same bits for any executor.
void AdamStep(const AdamStepOptions& options,
              const std::vector<AdamTensor>& tensors, Executor& executor);

struct GradientView {
  const float* data = nullptr;
  int64_t size = 0;
};

/// The sum of squares of each tensor: in float32 over runs of 16,384 elements,
/// in double over the runs, in a fixed order. Infinite where a square overflows
/// float32.
std::vector<double> SquaredNorms(const std::vector<GradientView>& tensors,
                                 Executor& executor);

}  // namespace tarn
