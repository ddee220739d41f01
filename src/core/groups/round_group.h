// Rounds numbers to the blocks of a GroupScheme.
#pragma once

#include <cstdint>

#include "core/groups/group_scheme.h"

namespace tarn {

/// Scale and minimum of a group, float16 bits. The minimum is 0 without one.
struct GroupFit {
  uint16_t scale = 0, minimum = 0;
  bool operator==(const GroupFit&) const = default;
};

/// The scale (and minimum) with which rounding to nearest has a small squared
/// error. 8 bits: the largest number on 127. 4 bits: the number of the largest
/// magnitude on -8 (the scale takes its sign); with a minimum, smallest and
/// largest number on 0 and 15; then the best of 17 narrower ranges down to 0.65
/// of this one, refitted by least squares. Scales below float16's normal
/// numbers are those that fit best among the subnormal ones; a group of numbers
/// too small for them gets scale 0. A group with a NaN, an infinity or a number
/// past the scheme's range (127 * 65504 with 8 bits) gets a scale of NaN, so
/// that every product with it is NaN. 1 <= count <= scheme.group. Bits depend
/// on neither compiler nor machine.
GroupFit FitGroup(const float* numbers, int64_t count,
                  const GroupScheme& scheme);

/// The code whose value is nearest to `number`: 8 bits -127..127, 4 bits 0..15.
/// For a scale of zero or NaN, the code of zero.
int NearestCode(const GroupScheme& scheme, float scale, float minimum,
                float number);

/// Writes scale and minimum of a block and the code of zero for all its
/// numbers.
void StartGroup(const GroupScheme& scheme, GroupFit fit, uint8_t* block);

/// The block of `count` numbers: FitGroup's scale and nearest codes. False: the
/// scale is NaN (see FitGroup), which a caller may report.
bool RoundGroup(const float* numbers, int64_t count, const GroupScheme& scheme,
                uint8_t* block);

}  // namespace tarn
