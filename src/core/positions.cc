#include "core/positions.h"

#include <cmath>

namespace tarn {

void SinusoidalRow(int64_t position, int64_t width, float* out) {
  for (int64_t i = 0; i < width; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(width);
    const double angle =
        static_cast<double>(position) / std::pow(10000.0, exponent);
    out[i] = static_cast<float>(std::sin(angle));
    if (i + 1 < width) out[i + 1] = static_cast<float>(std::cos(angle));
  }
}

void RotaryRow(int64_t position, int64_t d_key, double base, float* cos,
               float* sin) {
  for (int64_t i = 0; i < d_key / 2; ++i) {
    const double exponent =
        -2.0 * static_cast<double>(i) / static_cast<double>(d_key);
    const double angle =
        static_cast<double>(position) * std::pow(base, exponent);
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace tarn
