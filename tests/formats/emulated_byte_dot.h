// Formats of groups on the byte dot products of AVX-512 VNNI, emulated: what
// product code does with them then runs on every SIMD target.
#pragma once

#include "kernels/matmul/weight_format.h"

namespace tarn::testing {

extern const WeightFormat kEmulatedInt8, kEmulatedInt4, kEmulatedInt4Minimum;

}  // namespace tarn::testing
