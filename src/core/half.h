// Scalar conversions between float32 and the two 16-bit formats. Kernels have
// vector forms of their own; these serve files, tables and tests.
#pragma once

#include <cstdint>

#include "core/numbers/bit_cast.h"

namespace tarn {

namespace half_internal {

/// x / 2^shift, rounded to nearest, ties to even. 1 <= shift <= 31.
constexpr uint32_t RoundShift(uint32_t x, int shift) {
  const uint32_t odd = (x >> shift) & 1;
  return (x + (uint32_t{1} << (shift - 1)) - 1 + odd) >> shift;
}

}  // namespace half_internal

/// bfloat16 bits to float32: exact, NaN payloads kept.
constexpr float BF16ToF32(uint16_t bits) {
  return BitCast<float>(static_cast<uint32_t>(bits) << 16);
}

/// float32 to bfloat16 bits, to nearest, ties to even; overflow gives infinity,
/// NaN stays NaN (quiet, sign and upper payload kept).
constexpr uint16_t F32ToBF16(float value) {
  const auto bits = BitCast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return static_cast<uint16_t>(bits >> 16 | 0x0040);
  }
  return static_cast<uint16_t>(half_internal::RoundShift(bits, 16));
}

/// float16 (IEEE binary16) bits to float32: exact, subnormals included, NaN
/// payloads kept.
constexpr float F16ToF32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return BitCast<float>(sign | BitCast<uint32_t>(magnitude));
  }
  // 112 = 127 - 15, the difference of the biases; all ones stay all ones.
  const uint32_t wide = exponent == 0x1f ? 0xff : exponent + 112;
  return BitCast<float>(sign | wide << 23 | mantissa << 13);
}

/// float32 to float16 bits, to nearest, ties to even; from 65520 on infinity,
/// below 2^-14 subnormal; NaN as in F32ToBF16.
constexpr uint16_t F32ToF16(float value) {
  const auto bits = BitCast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half;
  if (magnitude > 0x7f800000) {
    half = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x477ff000) {  // 65520 rounds past the largest
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // 2^-14: the smallest normal
    half = half_internal::RoundShift(magnitude - (uint32_t{112} << 23), 13);
  } else if (magnitude > 0x33000000) {  // above 2^-25: subnormal
    const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    const int shift = 126 - static_cast<int>(magnitude >> 23);
    half = half_internal::RoundShift(mantissa, shift);
  } else {  // 2^-25 itself is a tie and goes to the even zero
    half = 0;
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace tarn
