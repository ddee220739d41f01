// Elementwise functions of one row: activations, the feature map, residuals.
// Every entry's bits depend on that entry alone.
#pragma once

#include <cstdint>

#include "core/feature_map.h"

namespace tarn {

/// y = max(x, 0); NaN stays NaN. x, y: [width]; y may be x, in all of these.
void ReluRow(const float* x, int64_t width, float* y);

/// y = x Phi(x) = x (1 + erf(x / sqrt(2))) / 2, the exact form of GELU, with
/// |error of Phi| < 3e-7 (Abramowitz and Stegun 1964, 7.1.26).
void GeluRow(const float* x, int64_t width, float* y);

/// y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, GELU's other form.
void GeluTanhRow(const float* x, int64_t width, float* y);

/// y = phi(x) for an elementwise map, for example elu(x) + 1: x + 1 for x > 0,
/// exp(x) otherwise (Katharopoulos et al. 2020, eq. (7)), in the arithmetic of
/// the linear attention kernels. Nothing is written for other maps.
void FeatureMapRow(FeatureMap map, const float* x, int64_t width, float* y);

/// y += x.
void AddToRow(const float* x, int64_t width, float* y);
/// y += factor x.
void AddScaledRow(const float* x, float factor, int64_t width, float* y);
/// y *= factor.
void ScaleRow(float factor, int64_t width, float* y);

}  // namespace tarn
