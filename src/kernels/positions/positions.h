// Position tables that trainer and runtime share, computed in double and
// rounded once, so that both sides hold the same bits.
#pragma once

#include <cstdint>

namespace tarn {

/// The divisors (sinusoidal) or factors (rotary) that turn a position into the
/// angles: (width + 1) / 2 or d_key / 2 doubles. The powers are most of a row's
/// cost; callers that need many rows compute them once.
void SinusoidalPeriods(int64_t width, double* periods);
void RotaryFrequencies(int64_t d_key, double base, double* frequencies);

/// Sinusoidal position row (Vaswani et al. 2017): out[2i] = sin(p / base^(2i /
/// width)), out[2i+1] = cos(same), base 10000. Odd widths end in a sin.
void SinusoidalRow(int64_t position, int64_t width, float* out);
/// The same bits from SinusoidalPeriods.
void SinusoidalRow(int64_t position, int64_t width, const double* periods,
                   float* out);

/// Rotary angles (Su et al. 2021), halves form: pair (i, i + d_key/2) turns by
/// p * base^(-2i / d_key). cos, sin: d_key / 2 floats each.
void RotaryRow(int64_t position, int64_t d_key, double base, float* cos,
               float* sin);
/// The same bits from RotaryFrequencies.
void RotaryRow(int64_t position, int64_t d_key, const double* frequencies,
               float* cos, float* sin);

}  // namespace tarn
