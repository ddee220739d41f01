// The oracle of unit_norm.h: one row at a time, in double, by definition.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// x: rows of `width` numbers, heads side by side or not.
std::vector<double> UnitNorm(const std::vector<double>& x, int64_t width,
                             double eps);

std::vector<double> UnitNormBackward(const std::vector<double>& x,
                                     const std::vector<double>& grad_y,
                                     int64_t width, double eps);

}  // namespace tarn::reference
