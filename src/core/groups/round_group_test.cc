// Blocks of groups byte by byte, and rounding to them against a search over all
// float16 scales and against the errors that such schemes are known for.
#include "core/groups/round_group.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/rng.h"

namespace tarn {
namespace {

std::vector<GroupScheme> Schemes() {
  std::vector<GroupScheme> schemes;
  for (const int64_t group : {32, 64, 128}) {
    schemes.push_back({8, group, false});
    schemes.push_back({4, group, false});
    schemes.push_back({4, group, true});
  }
  return schemes;
}

std::vector<float> Normals(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = static_cast<float>(rng.Normal());
  return values;
}

std::vector<float> Decoded(const GroupScheme& scheme,
                           const std::vector<uint8_t>& block, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  DecodeGroup(scheme, block.data(), count, values.data());
  return values;
}

std::vector<float> Rounded(const GroupScheme& scheme,
                           const std::vector<float>& values) {
  std::vector<uint8_t> block(static_cast<size_t>(scheme.BlockBytes()), 0xA5);
  const int64_t count = static_cast<int64_t>(values.size());
  EXPECT_TRUE(RoundGroup(values.data(), count, scheme, block.data()));
  return Decoded(scheme, block, count);
}

double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  }
  return sum;
}

// The bytes of GGUF's Q8_0, Q4_0 and Q4_1, and what they stand for.
TEST(GroupSchemeTest, BlocksAreThoseOfGguf) {
  const GroupScheme q8 = {8, 32, false}, q4 = {4, 32, false},
                    q41 = {4, 32, true};
  EXPECT_EQ(34, q8.BlockBytes());
  EXPECT_EQ(18, q4.BlockBytes());
  EXPECT_EQ(20, q41.BlockBytes());
  EXPECT_EQ(2 * 132, (GroupScheme{8, 128, false}.RowBytes(129) + 4));
  EXPECT_EQ(0, q8.RowBytes(0));
  const uint16_t half = F32ToF16(0.5f), three = F32ToF16(-3.0f);
  std::vector<uint8_t> block(34);
  std::memcpy(block.data(), &half, 2);
  block[2] = 0x80;  // -128
  block[33] = 127;
  std::vector<float> values = Decoded(q8, block, 32);
  EXPECT_EQ(-64.0f, values[0]);
  EXPECT_EQ(0.0f, values[1]);
  EXPECT_EQ(63.5f, values[31]);
  block.assign(18, 0x88);  // zeros
  std::memcpy(block.data(), &half, 2);
  block[2] = 0xF0;   // numbers 0 and 16
  block[17] = 0x1F;  // numbers 15 and 31
  values = Decoded(q4, block, 32);
  EXPECT_EQ(-4.0f, values[0]);
  EXPECT_EQ(0.0f, values[1]);
  EXPECT_EQ(3.5f, values[15]);
  EXPECT_EQ(3.5f, values[16]);
  EXPECT_EQ(-3.5f, values[31]);
  block.assign(20, 0);
  std::memcpy(block.data(), &half, 2);
  std::memcpy(block.data() + 2, &three, 2);
  block[4] = 0x2F;
  values = Decoded(q41, block, 32);
  EXPECT_EQ(4.5f, values[0]);
  EXPECT_EQ(-3.0f, values[1]);
  EXPECT_EQ(-2.0f, values[16]);
}

TEST(GroupSchemeTest, CodesComeBack) {
  for (const GroupScheme& scheme : Schemes()) {
    std::vector<uint8_t> block(static_cast<size_t>(scheme.BlockBytes()), 0x5A);
    const int span = scheme.HighestCode() - scheme.LowestCode() + 1;
    const auto code = [&](int64_t j) {
      return scheme.LowestCode() + static_cast<int>(j * 37 % span);
    };
    for (int64_t j = scheme.group - 1; j >= 0; --j) {
      SetGroupCode(scheme, j, code(j), block.data());
    }
    for (int64_t j = 0; j < scheme.group; ++j) {
      EXPECT_EQ(code(j), GroupCode(scheme, block.data(), j));
    }
    EXPECT_EQ(0x5A, block[0]);
    EXPECT_EQ(0x5A, block[static_cast<size_t>(scheme.HeadBytes()) - 1]);
  }
}

// A short group is stored whole: what it lacks is the code of zero, and does
// not change the rest.
TEST(RoundGroupTest, ShortGroupsAreFilledWithZeros) {
  for (const GroupScheme& scheme : Schemes()) {
    for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{17},
                                scheme.group - 1, scheme.group}) {
      const std::vector<float> values = Normals(count, 3);
      std::vector<uint8_t> block(static_cast<size_t>(scheme.BlockBytes()),
                                 0xFF);
      ASSERT_TRUE(RoundGroup(values.data(), count, scheme, block.data()));
      for (int64_t j = count; j < scheme.group; ++j) {
        EXPECT_EQ(scheme.Offset(), GroupCode(scheme, block.data(), j));
      }
      const float scale = GroupScale(block.data());
      const float minimum = GroupMinimum(scheme, block.data());
      for (int64_t j = 0; j < count; ++j) {
        const float value = values[static_cast<size_t>(j)];
        EXPECT_EQ(NearestCode(scheme, scale, minimum, value),
                  GroupCode(scheme, block.data(), j));
        // Nearest: no other code is nearer.
        const auto error = [&](int code) {
          return std::fabs(double{value} -
                           GroupValue(scheme, scale, minimum, code));
        };
        const int chosen = GroupCode(scheme, block.data(), j);
        const int low = scheme.bits == 8 ? -127 : 0;
        for (int code = low; code <= scheme.HighestCode(); ++code) {
          EXPECT_LE(error(chosen), error(code) * (1 + 1e-5) + 1e-7);
        }
      }
    }
  }
}

// Numbers that blocks hold already stay as they are.
TEST(RoundGroupTest, WhatABlockHoldsComesBack) {
  Rng rng(5);
  for (const GroupScheme& scheme : Schemes()) {
    if (scheme.minimum) continue;  // several pairs may hold the same numbers
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<uint8_t> block(static_cast<size_t>(scheme.BlockBytes()));
      const float size = std::ldexp(1.0f, static_cast<int>(rng.Below(20)) - 16);
      StartGroup(scheme, {F32ToF16(size * (1 + trial / 64.0f)), 0},
                 block.data());
      for (int64_t j = 0; j < scheme.group; ++j) {
        // 8 bits: the largest code is 127; 4 bits: one is 0, that is -8.
        const int code =
            static_cast<int>(rng.Below(scheme.bits == 8 ? 255 : 16));
        SetGroupCode(scheme, j, scheme.bits == 8 ? code - 127 : code,
                     block.data());
      }
      SetGroupCode(scheme, 7, scheme.bits == 8 ? 127 : 0, block.data());
      const std::vector<float> values = Decoded(scheme, block, scheme.group);
      EXPECT_EQ(values, Rounded(scheme, values));
    }
  }
}

// The best of all float16 scales of either sign, with nearest codes, in double.
double LeastError(const GroupScheme& scheme, const std::vector<float>& values) {
  double least = std::numeric_limits<double>::infinity();
  const int low = scheme.bits == 8 ? -127 : -8;
  const int high = scheme.bits == 8 ? 127 : 7;
  float largest = 0;
  for (const float w : values) largest = std::max(largest, std::fabs(w));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float scale = F16ToF32(static_cast<uint16_t>(bits));
    const float reach = std::fabs(scale) * static_cast<float>(high);
    if (!(reach > 0.4f * largest && reach < 2 * largest)) continue;
    double error = 0;
    for (const float w : values) {
      const double q = std::clamp(std::nearbyint(double{w} / scale),
                                  double(low), double(high));
      error += (w - q * scale) * (w - q * scale);
    }
    least = std::min(least, error);
  }
  return least;
}

TEST(RoundGroupTest, IsNearTheBestScale) {
  for (const GroupScheme& scheme : Schemes()) {
    if (scheme.minimum) continue;
    double found = 0, best = 0;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const std::vector<float> values = Normals(scheme.group, 100 + seed);
      found += SquaredError(values, Rounded(scheme, values));
      best += LeastError(scheme, values);
    }
    // 8 bits take the range, without a search.
    const double most = scheme.bits == 8 ? 1.35 : 1.05;
    EXPECT_LE(found, most * best) << scheme.bits << " " << scheme.group;
    EXPECT_GE(found, best * (1 - 1e-6));
  }
}

// Relative errors in percent of rounding normal numbers with such schemes, with
// searched scales for 4 bits.
TEST(RoundGroupTest, HasTheErrorsOfItsScheme) {
  struct Known {
    GroupScheme scheme;
    double percent;
  };
  const std::vector<Known> table = {
      {{8, 32, false}, 0.54}, {{8, 64, false}, 0.60}, {{8, 128, false}, 0.65},
      {{4, 32, false}, 8.2},  {{4, 64, false}, 9.0},  {{4, 128, false}, 9.7},
      {{4, 32, true}, 7.3},   {{4, 64, true}, 8.5},   {{4, 128, true}, 9.4}};
  for (const Known& known : table) {
    double error = 0, size = 0;
    for (uint64_t i = 0; i < 400; ++i) {
      const std::vector<float> values = Normals(known.scheme.group, 1000 + i);
      error += SquaredError(values, Rounded(known.scheme, values));
      for (const float w : values) size += double{w} * w;
    }
    const double percent = 100 * std::sqrt(error / size);
    EXPECT_LE(percent, known.percent * 1.03)
        << known.scheme.bits << " " << known.scheme.group;
    EXPECT_GE(percent, known.percent * 0.9)
        << known.scheme.bits << " " << known.scheme.group;
  }
}

TEST(RoundGroupTest, ZerosAndEqualNumbers) {
  for (const GroupScheme& scheme : Schemes()) {
    for (const float value : {0.0f, -0.0f, 0.25f, -3.0f}) {
      const std::vector<float> values(static_cast<size_t>(scheme.group), value);
      // 127 steps of a float16 scale need not end at the number.
      const float bound = scheme.bits == 8 ? std::fabs(value) * 0x1p-11f : 0;
      for (const float got : Rounded(scheme, values)) {
        EXPECT_NEAR(value, got, bound);
      }
    }
  }
}

// Scales below 2^-14 have fewer bits, and below 2^-25 none: the error stays
// within half a step of the scale, and no code clips.
TEST(RoundGroupTest, SmallNumbersUseSubnormalScales) {
  for (const GroupScheme& scheme : Schemes()) {
    const float steps = scheme.bits == 8 ? 254 : 15;
    for (int exponent = -40; exponent <= 0; ++exponent) {
      std::vector<float> values = Normals(scheme.group, 7);
      for (float& w : values) w = std::ldexp(w, exponent);
      const std::vector<float> got = Rounded(scheme, values);
      const auto [low, high] =
          std::minmax_element(values.begin(), values.end());
      const float largest = std::max(-*low, *high);
      // A step of the range, of the scale's rounding, or the whole number.
      const float bound = std::max(2 * largest / steps, 0x1p-25f * (steps + 1));
      double worst = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        worst = std::max(worst, std::fabs(double{values[i]} - got[i]));
      }
      // Searched scales clip the largest numbers.
      EXPECT_LE(worst, (scheme.bits == 8 ? 1.0 : 3.0) * bound)
          << scheme.bits << " " << scheme.group << " 2^" << exponent;
    }
  }
}

TEST(RoundGroupTest, WhatASchemeCannotHoldBecomesNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const GroupScheme& scheme : Schemes()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity,
                            -infinity, 1e9f, -3e38f}) {
      std::vector<float> values = Normals(20, 1);
      values[13] = bad;
      std::vector<uint8_t> block(static_cast<size_t>(scheme.BlockBytes()));
      EXPECT_FALSE(RoundGroup(values.data(), 20, scheme, block.data()));
      for (const float got : Decoded(scheme, block, scheme.group)) {
        EXPECT_TRUE(std::isnan(got));
      }
    }
    const float most = 65504.0f * (scheme.bits == 8 ? 127.0f
                                   : scheme.minimum ? 14.0f
                                                    : 7.5f);
    for (const float got : Rounded(scheme, {most, most / 2, 0.0f})) {
      EXPECT_TRUE(std::isfinite(got));
    }
  }
}

}  // namespace
}  // namespace tarn
