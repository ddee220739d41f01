// How rotary frequencies are stretched for sequences longer than those of the
// training, or set to zero for some channels: the words and numbers that
// kernels, configuration and operators share. kernels/positions/positions.h has
// the formulas.
#pragma once

#include <cstdint>

namespace tarn {

enum class RotaryScalingKind { kNone, kLinear, kLlama3, kYarn, kProportional };

inline constexpr const char* kRotaryScalingWords[] = {
    "none", "linear", "llama3", "yarn", "proportional"};

struct RotaryScaling {
  RotaryScalingKind kind = RotaryScalingKind::kNone;
  double factor = 1.0;             // longer by
  int64_t original_positions = 0;  // length of the training; llama3, yarn
  // Turns of a pair over that length: pairs of fewer than `low` are stretched,
  // those of more than `high` are not. high 0: 4 for llama3, 32 for yarn.
  // proportional: `low` is the part of the pairs that turn at all, up to 1.
  double low = 1.0, high = 0.0;
  double magnitude = 0.0;  // yarn: of cosines and sines; 0: 0.1 ln(factor) + 1
  bool truncate = true;    // yarn: the ends of its ramp are whole pairs

  bool operator==(const RotaryScaling&) const = default;
  /// `high`, or the usual number of the kind where it is 0.
  double HighTurns() const {
    if (high > 0) return high;
    return kind == RotaryScalingKind::kYarn ? 32.0 : 4.0;
  }
};

/// The frequency of pair `pair` of `d_key` channels: base^(-2 pair / d_key).
double RotaryFrequency(int64_t pair, int64_t d_key, double base);
/// A frequency as llama3's scaling stretches it.
double Llama3Frequency(double frequency, const RotaryScaling& scaling);

/// Throws ArgumentError, `where` before the name, for numbers out of range or
/// base 1, for which yarn has no ramp.
void CheckRotaryScaling(const char* where, double base,
                        const RotaryScaling& scaling);

}  // namespace tarn
