// Layer normalisation of one row.
//   y = (x - mean) / sqrt(var + eps) * gamma + beta
// with the biased variance and eps inside the root (as torch.nn.LayerNorm).
#pragma once

#include <cstdint>

namespace tarn {

/// x, gamma, beta, y: [width], width >= 1; y may be x. The sums run in an order
/// that depends on width and SIMD target alone. Allocates nothing, thread-safe,
/// O(width).
void LayerNormRow(const float* x, int64_t width, const float* gamma,
                  const float* beta, float eps, float* y);

}  // namespace tarn
