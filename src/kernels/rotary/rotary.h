// Rotary positions (Su et al. 2021, arXiv 2104.09864), halves form: the pair
// (i, i + d_key / 2) of a head is rotated by the angle of its position,
//   x'[i]       = x[i] cos_i - x[i + h] sin_i
//   x'[i + h]   = x[i + h] cos_i + x[i] sin_i,   h = d_key / 2.
#pragma once

#include <cstdint>

namespace tarn {

/// Turns every head of one token in place. row: [heads, d_key], d_key even;
/// cos, sin: [d_key / 2], as kernels/positions/positions.h gives them.
void RotateRow(const float* cos, const float* sin, int64_t heads, int64_t d_key,
               float* row);

}  // namespace tarn
