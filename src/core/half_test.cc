#include "core/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/numbers/bit_cast.h"

namespace tarn {
namespace {

// One format, its conversions and the numbers that describe it.
struct Format {
  const char* name;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
  int mantissa_bits;
  int bias;
};

class HalfFormats : public ::testing::TestWithParam<Format> {
 protected:
  int ExponentMask() const { return (1 << (15 - format_.mantissa_bits)) - 1; }
  uint16_t Infinity() const {
    return static_cast<uint16_t>(ExponentMask() << format_.mantissa_bits);
  }
  // The value the bits stand for, from the definition of the format.
  double Value(int bits) const {
    const int mantissa = bits & ((1 << format_.mantissa_bits) - 1);
    const int exponent = bits >> format_.mantissa_bits & ExponentMask();
    const double sign = bits & 0x8000 ? -1 : 1;
    const double fraction = std::ldexp(mantissa, -format_.mantissa_bits);
    if (exponent == 0) {
      return sign * std::ldexp(fraction, 1 - format_.bias);
    }
    return sign * std::ldexp(1 + fraction, exponent - format_.bias);
  }
  const Format format_ = GetParam();
};

INSTANTIATE_TEST_SUITE_P(
    Formats, HalfFormats,
    ::testing::Values(Format{"F16", F16ToF32, F32ToF16, 10, 15},
                      Format{"BF16", BF16ToF32, F32ToBF16, 7, 127}),
    [](const auto& info) { return info.param.name; });

TEST_P(HalfFormats, EveryNumberWidensToItsValueAndBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    if ((bits & 0x7fff) >= Infinity()) continue;
    const auto half = static_cast<uint16_t>(bits);
    const float wide = format_.widen(half);
    ASSERT_EQ(wide, Value(bits)) << bits;
    ASSERT_EQ(std::signbit(wide), bits >= 0x8000) << bits;
    ASSERT_EQ(format_.narrow(wide), half) << bits;
  }
}

TEST_P(HalfFormats, InfinityAndEveryNaNStayThemselves) {
  for (const int sign : {0, 0x8000}) {
    const auto infinity = static_cast<uint16_t>(sign | Infinity());
    const float wide = format_.widen(infinity);
    EXPECT_TRUE(std::isinf(wide));
    EXPECT_EQ(std::signbit(wide), sign != 0);
    EXPECT_EQ(format_.narrow(wide), infinity);
    const int quiet = 1 << (format_.mantissa_bits - 1);
    for (int bits = infinity + 1; bits <= (sign | 0x7fff); ++bits) {
      const float nan = format_.widen(static_cast<uint16_t>(bits));
      ASSERT_TRUE(std::isnan(nan)) << bits;
      ASSERT_EQ(format_.narrow(nan), bits | quiet) << bits;
    }
  }
  // A payload in the lower bits only must not turn into infinity.
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu}) {
    const uint16_t half = format_.narrow(BitCast<float>(bits));
    EXPECT_TRUE(std::isnan(format_.widen(half)));
    EXPECT_EQ(half >> 15, bits >> 31);
  }
}

// Narrowing is a step function; its steps are half way between neighbours. The
// midpoint itself and the floats on both sides of it fix every step.
TEST_P(HalfFormats, EveryStepIsToNearestTiesToEven) {
  for (int bits = 0; bits + 1 < Infinity(); ++bits) {
    const auto middle = static_cast<float>((Value(bits) + Value(bits + 1)) / 2);
    if (middle == 0.0f) continue;  // below float32's own smallest subnormal
    const int even = bits % 2 == 0 ? bits : bits + 1;
    const float below = std::nextafter(middle, 0.0f);
    const float above =
        std::nextafter(middle, std::numeric_limits<float>::infinity());
    ASSERT_EQ(format_.narrow(middle), even) << bits;
    ASSERT_EQ(format_.narrow(below), bits) << bits;
    ASSERT_EQ(format_.narrow(above), bits + 1) << bits;
    ASSERT_EQ(format_.narrow(-middle), even | 0x8000) << bits;
    ASSERT_EQ(format_.narrow(-below), bits | 0x8000) << bits;
    ASSERT_EQ(format_.narrow(-above), (bits + 1) | 0x8000) << bits;
  }
}

TEST_P(HalfFormats, OverflowBeginsHalfAStepPastTheLargest) {
  const int largest = Infinity() - 1;
  const double step = Value(largest) - Value(largest - 1);
  const auto limit = static_cast<float>(Value(largest) + step / 2);
  EXPECT_EQ(format_.narrow(limit), Infinity());
  EXPECT_EQ(format_.narrow(std::nextafter(limit, 0.0f)), largest);
  EXPECT_EQ(format_.narrow(std::numeric_limits<float>::max()), Infinity());
}

static_assert(F32ToF16(1.0f) == 0x3c00 && F32ToF16(-2.0f) == 0xc000);
static_assert(F32ToBF16(1.0f) == 0x3f80 && F16ToF32(0x7bff) == 65504.0f);

}  // namespace
}  // namespace tarn
