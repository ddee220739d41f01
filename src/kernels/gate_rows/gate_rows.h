// Activations of one row around the recurrences with decay: of queries, keys,
// steps and output gates.
//
// An entry's bits depend on that entry alone, never on its position or on
// the length of the row. Values are exact to a few ulp over all floats, but
// sigma(x) and exp(x) below exp(-87) are 0. NaN stays NaN. Nothing allocates,
// everything is thread-safe.
#pragma once

#include <cstdint>

namespace tarn {

/// y = x sigma(x), 0 at minus infinity. x, y: [n]; y may be x, in all of these.
void SiluRow(const float* x, int64_t n, float* y);

/// y = sigma(x) = 1 / (1 + exp(-x)).
void SigmoidRow(const float* x, int64_t n, float* y);

/// y = log(1 + exp(x + bias)); bias: [n], null means zeros.
void SoftplusRow(const float* x, const float* bias, int64_t n, float* y);

void TanhRow(const float* x, int64_t n, float* y);

/// y = max(x, 0)^2.
void SquareReluRow(const float* x, int64_t n, float* y);

}  // namespace tarn
