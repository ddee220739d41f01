#include "kernels/positions/positions.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace tarn {
namespace {

void StretchYarn(int64_t d_key, double base, const RotaryScaling& s,
                 double* frequencies) {
  const auto pair_at = [&](double turns) {
    return static_cast<double>(d_key) *
           std::log(static_cast<double>(s.original_positions) /
                    (turns * 2 * std::numbers::pi)) /
           (2 * std::log(base));
  };
  double first = pair_at(s.HighTurns()), last = pair_at(s.low);
  if (s.truncate) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(d_key - 1));
  if (first == last) last += 0.001;  // a ramp needs a width
  for (int64_t i = 0; i < d_key / 2; ++i) {
    const double r =
        std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    frequencies[i] = (1 - r) * frequencies[i] + r * (frequencies[i] / s.factor);
  }
}

}  // namespace

void SinusoidalPeriods(int64_t width, double* periods) {
  for (int64_t i = 0; i < width; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(width);
    periods[i / 2] = std::pow(10000.0, exponent);
  }
}

void RotaryFrequencies(int64_t d_key, double base, double* frequencies) {
  for (int64_t i = 0; i < d_key / 2; ++i) {
    frequencies[i] = RotaryFrequency(i, d_key, base);
  }
}

void RotaryFrequencies(int64_t d_key, double base, const RotaryScaling& scaling,
                       double* frequencies) {
  RotaryFrequencies(d_key, base, frequencies);
  switch (scaling.kind) {
    case RotaryScalingKind::kNone:
      return;
    case RotaryScalingKind::kLinear:
      for (int64_t i = 0; i < d_key / 2; ++i) frequencies[i] /= scaling.factor;
      return;
    case RotaryScalingKind::kLlama3:
      for (int64_t i = 0; i < d_key / 2; ++i) {
        frequencies[i] = Llama3Frequency(frequencies[i], scaling);
      }
      return;
    case RotaryScalingKind::kYarn:
      return StretchYarn(d_key, base, scaling, frequencies);
    case RotaryScalingKind::kProportional: {
      const double turning = static_cast<double>(d_key) * scaling.low / 2;
      for (int64_t i = 0; i < d_key / 2; ++i) {
        frequencies[i] = static_cast<double>(i + 1) <= turning
                             ? frequencies[i] / scaling.factor
                             : 0.0;
      }
      return;
    }
  }
}

double RotaryMagnitude(const RotaryScaling& scaling) {
  if (scaling.kind != RotaryScalingKind::kYarn) return 1.0;
  if (scaling.magnitude > 0) return scaling.magnitude;
  return scaling.factor <= 1 ? 1.0 : 0.1 * std::log(scaling.factor) + 1.0;
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
               float* cos, float* sin, double magnitude) {
  for (int64_t i = 0; i < d_key / 2; ++i) {
    const double angle = static_cast<double>(position) * frequencies[i];
    cos[i] = static_cast<float>(magnitude * std::cos(angle));
    sin[i] = static_cast<float>(magnitude * std::sin(angle));
  }
}

void RotaryRow(int64_t position, int64_t d_key, double base, float* cos,
               float* sin) {
  std::vector<double> frequencies(static_cast<size_t>(d_key / 2));
  RotaryFrequencies(d_key, base, frequencies.data());
  RotaryRow(position, d_key, frequencies.data(), cos, sin);
}

}  // namespace tarn
