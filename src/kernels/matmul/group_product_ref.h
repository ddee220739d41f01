// The products of formats of groups by their definition: plain loops over
// canonical blocks, no SIMD, nothing shared with the kernels but the blocks.
#pragma once

#include <cstdint>

#include "core/groups/group_scheme.h"

namespace tarn {

/// One group of inputs, rounded to 8 bits: s = max|x| / 127, q = x (127 /
/// max|x|) to nearest, ties to even. A maximum below 2^-100 gives zeros; a NaN
/// or an infinity among them a scale of NaN with codes of zero.
struct RoundedInputs {
  float scale;
  int8_t codes[kMostGroup];
};
RoundedInputs RoundInputsRef(const float* x, int64_t count);

/// y[n] for one row x [inputs] and weights in blocks [outputs, Blocks(inputs)]:
/// from bias[n] (null: 0), for each group in order
///   y = fma(d s, sum q_w q_x, y), q_w the code less its offset,
///   y = fma(m, s sum q_x, y) with a minimum,
/// sums in integers, the two products and the conversions in float32.
void GroupProductRef(const GroupScheme& scheme, const uint8_t* blocks,
                     const float* bias, const float* x, int64_t outputs,
                     int64_t inputs, float* y);

}  // namespace tarn
