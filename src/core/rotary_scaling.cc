#include "core/rotary_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "core/error.h"

namespace tarn {

double RotaryFrequency(int64_t pair, int64_t d_key, double base) {
  const double exponent =
      -2.0 * static_cast<double>(pair) / static_cast<double>(d_key);
  return std::pow(base, exponent);
}

double Llama3Frequency(double frequency, const RotaryScaling& s) {
  const double turns = static_cast<double>(s.original_positions) * frequency /
                       (2 * std::numbers::pi);
  const double kept =
      std::clamp((turns - s.low) / (s.HighTurns() - s.low), 0.0, 1.0);
  return (1 - kept) * (frequency / s.factor) + kept * frequency;
}

void CheckRotaryScaling(const char* where, double base,
                        const RotaryScaling& s) {
  const auto refuse = [&](const char* name, const std::string& wanted,
                          double given) {
    throw ArgumentError(StrCat(where, name), wanted, StrCat(given));
  };
  if (s.kind == RotaryScalingKind::kNone) return;
  // Written so that NaN is refused.
  if (!(s.factor >= 1 && std::isfinite(s.factor))) {
    refuse("factor", "1 or more", s.factor);
  }
  if (s.kind == RotaryScalingKind::kLinear) return;
  if (s.kind == RotaryScalingKind::kProportional) {
    if (!(s.low > 0 && s.low <= 1)) {
      refuse("low", "a part of the pairs, above 0 and up to 1", s.low);
    }
    return;
  }
  if (s.original_positions < 1) {
    refuse("original_positions", "1 or more",
           static_cast<double>(s.original_positions));
  }
  if (!(s.low > 0 && s.low < s.HighTurns() && std::isfinite(s.HighTurns()))) {
    refuse("low", StrCat("a number between 0 and high = ", s.HighTurns()),
           s.low);
  }
  if (s.kind == RotaryScalingKind::kLlama3) return;
  if (!(s.magnitude >= 0 && std::isfinite(s.magnitude))) {
    refuse("magnitude", "0 or more", s.magnitude);
  }
  if (!(base > 1)) refuse("base", "more than 1", base);
}

}  // namespace tarn
