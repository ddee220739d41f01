// Position tables that trainer and runtime share, computed in double and
// rounded once, so that both sides hold the same bits.
#pragma once

#include <cstdint>

#include "core/rotary_scaling.h"

namespace tarn {

/// The divisors (sinusoidal) or factors (rotary) that turn a position into the
/// angles: (width + 1) / 2 or d_key / 2 doubles. The powers are most of a row's
/// cost; callers that need many rows compute them once.
void SinusoidalPeriods(int64_t width, double* periods);
void RotaryFrequencies(int64_t d_key, double base, double* frequencies);

/// The same for longer sequences than those of the training. With f_i =
/// base^(-2i / d_key), the factor s, the length L and the turns n_i = L f_i /
/// (2 pi) of pair i over it:
///   linear (Chen et al. 2023, arXiv 2306.15595):  f_i / s
///   llama3 (Llama 3.1):  f_i / s where n_i < low, f_i where n_i > high,
///     between them (1 - r) f_i / s + r f_i with r = (n_i - low) / (high - low)
///   yarn (Peng et al. 2023, arXiv 2309.00071):  (1 - r_i) f_i + r_i f_i / s,
///     r_i = clamp((i - a) / (b - a), 0, 1), where a and b are the i at which
///     n_i is `high` and `low`, i(n) = d_key ln(L / (2 pi n)) / (2 ln(base)),
///     rounded away from each other where `truncate`, within [0, d_key - 1].
///   proportional (Gemma 4, LFM3):  f_i / s for the first floor(d_key / 2 low)
///     pairs, 0 for the others, which do not turn
/// As in transformers (modeling_rope_utils.py). Throws nothing; ranges are the
/// caller's to check (CheckRotaryScaling).
void RotaryFrequencies(int64_t d_key, double base, const RotaryScaling& scaling,
                       double* frequencies);
/// The factor of cosines and sines: 1 but for yarn.
double RotaryMagnitude(const RotaryScaling& scaling);

/// Sinusoidal position row (Vaswani et al. 2017): out[2i] = sin(p / base^(2i /
/// width)), out[2i+1] = cos(same), base 10000. Odd widths end in a sin.
void SinusoidalRow(int64_t position, int64_t width, float* out);
/// The same bits from SinusoidalPeriods.
void SinusoidalRow(int64_t position, int64_t width, const double* periods,
                   float* out);

/// Rotary angles (Su et al. 2021), halves form: pair (i, i + d_key/2) rotates
/// by p * base^(-2i / d_key). cos, sin: d_key / 2 floats each.
void RotaryRow(int64_t position, int64_t d_key, double base, float* cos,
               float* sin);
/// The same bits from RotaryFrequencies. `magnitude`: RotaryMagnitude.
void RotaryRow(int64_t position, int64_t d_key, const double* frequencies,
               float* cos, float* sin, double magnitude = 1.0);

}  // namespace tarn
