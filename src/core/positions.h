// Position tables shared by trainer and runtime, computed in double and
// rounded once, so that both sides hold the same bits.
#pragma once

#include <cstdint>

namespace tarn {

/// Sinusoidal position row (Vaswani et al. 2017): out[2i] = sin(p / base^(2i /
/// width)), out[2i+1] = cos(same), base 10000. Odd widths end in a sin.
void SinusoidalRow(int64_t position, int64_t width, float* out);

/// Rotary angles (Su et al. 2021), halves form: pair (i, i + d_key/2) turns by
/// p * base^(-2i / d_key). cos, sin: d_key / 2 floats each.
void RotaryRow(int64_t position, int64_t d_key, double base, float* cos,
               float* sin);

}  // namespace tarn
