#include "kernels/positions/positions.h"

#include <cmath>
#include <vector>

namespace tarn {

void SinusoidalPeriods(int64_t width, double* periods) {
  for (int64_t i = 0; i < width; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(width);
    periods[i / 2] = std::pow(10000.0, exponent);
  }
}

void RotaryFrequencies(int64_t d_key, double base, double* frequencies) {
  for (int64_t i = 0; i < d_key / 2; ++i) {
    const double exponent =
        -2.0 * static_cast<double>(i) / static_cast<double>(d_key);
    frequencies[i] = std::pow(base, exponent);
  }
}

void SinusoidalRow(int64_t position, int64_t width, const double* periods,
                   float* out) {
  for (int64_t i = 0; i < width; i += 2) {
    const double angle = static_cast<double>(position) / periods[i / 2];
    out[i] = static_cast<float>(std::sin(angle));
    if (i + 1 < width) out[i + 1] = static_cast<float>(std::cos(angle));
  }
}

void SinusoidalRow(int64_t position, int64_t width, float* out) {
  std::vector<double> periods(static_cast<size_t>((width + 1) / 2));
  SinusoidalPeriods(width, periods.data());
  SinusoidalRow(position, width, periods.data(), out);
}

void RotaryRow(int64_t position, int64_t d_key, const double* frequencies,
               float* cos, float* sin) {
  for (int64_t i = 0; i < d_key / 2; ++i) {
    const double angle = static_cast<double>(position) * frequencies[i];
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
}

void RotaryRow(int64_t position, int64_t d_key, double base, float* cos,
               float* sin) {
  std::vector<double> frequencies(static_cast<size_t>(d_key / 2));
  RotaryFrequencies(d_key, base, frequencies.data());
  RotaryRow(position, d_key, frequencies.data(), cos, sin);
}

}  // namespace tarn
