// Root-mean-square normalisation of one row (Zhang and Sennrich 2019, eq. (4)).
//   y = x / sqrt(mean(x^2) + eps) * gamma
// with eps inside the root (as torch.nn.RMSNorm); no mean is subtracted and no
// bias added.
#pragma once

#include <cstdint>

namespace tarn {

/// x, gamma, y: [width], width >= 1; y may be x. The sum runs in one order that
/// depends on width and SIMD target alone, and the bits are those of
/// ResidualNormForward for the same row. Allocates nothing, thread-safe,
/// O(width).
void RmsNormRow(const float* x, int64_t width, const float* gamma, float eps,
                float* y);

}  // namespace tarn
