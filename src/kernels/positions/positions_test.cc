#include "kernels/positions/positions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/rotary_scaling.h"

namespace tarn {
namespace {

// Bounds: one rounding to float of a value of at most 1, plus the double
// error of the angle, which grows with it (position * 2^-52).
double Tolerance(int64_t position) {
  return 0x1p-24 + 0x1p-50 * static_cast<double>(position);
}

// Oracle in long double, through exp and log instead of pow.
long double Angle(int64_t position, long double base, long double exponent) {
  return static_cast<long double>(position) *
         std::exp(-exponent * std::log(base));
}

TEST(Sinusoidal, MatchesTheFormula) {
  for (int64_t width : {1, 2, 3, 5, 16, 127, 512}) {
    for (int64_t position : {0, 1, 2, 77, 4096, 1000000}) {
      std::vector<float> row(width + 1, -9.0f);
      SinusoidalRow(position, width, row.data());
      for (int64_t i = 0; i < width; ++i) {
        const long double angle =
            Angle(position, 10000, static_cast<long double>(i / 2 * 2) / width);
        const long double want = i % 2 == 0 ? std::sin(angle) : std::cos(angle);
        EXPECT_NEAR(row[i], static_cast<double>(want), Tolerance(position))
            << "width " << width << " position " << position << " i " << i;
      }
      EXPECT_EQ(row[width], -9.0f) << "wrote past the row";
    }
  }
}

TEST(Sinusoidal, PositionZeroAlternatesZeroAndOne) {
  std::vector<float> row(6);
  SinusoidalRow(0, 6, row.data());
  EXPECT_EQ(row, (std::vector<float>{0, 1, 0, 1, 0, 1}));
}

TEST(Rotary, MatchesTheFormulaAndStaysOnTheCircle) {
  for (int64_t d_key : {2, 4, 6, 32, 64}) {
    for (double base : {10000.0, 500000.0, 1.0}) {
      for (int64_t position : {0, 1, 255, 65536}) {
        std::vector<float> cos(d_key / 2), sin(d_key / 2);
        RotaryRow(position, d_key, base, cos.data(), sin.data());
        for (int64_t i = 0; i < d_key / 2; ++i) {
          const long double angle =
              Angle(position, base, 2.0L * i / static_cast<long double>(d_key));
          EXPECT_NEAR(cos[i], static_cast<double>(std::cos(angle)),
                      Tolerance(position));
          EXPECT_NEAR(sin[i], static_cast<double>(std::sin(angle)),
                      Tolerance(position));
          EXPECT_NEAR(double{cos[i]} * cos[i] + double{sin[i]} * sin[i], 1,
                      2.5e-7);
        }
      }
    }
  }
}

// Oracles in long double; transformers' own numbers are held by
// tests/python/operators/test_rotary_scaling.py.
long double Stretched(int64_t i, int64_t d_key, long double base,
                      const RotaryScaling& s) {
  const long double f = Angle(1, base, 2.0L * i / d_key);
  const long double pi = std::acos(-1.0L);
  const long double length = s.original_positions, short_f = f / s.factor;
  if (s.kind == RotaryScalingKind::kLinear) return short_f;
  if (s.kind == RotaryScalingKind::kProportional) {
    return i < static_cast<int64_t>(d_key * s.low) / 2 ? short_f : 0;
  }
  if (s.kind == RotaryScalingKind::kLlama3) {
    const long double wave = 2 * pi / f, high = s.high > 0 ? s.high : 4;
    if (wave > length / s.low) return short_f;
    if (wave < length / high) return f;
    const long double smooth = (length / wave - s.low) / (high - s.low);
    return (1 - smooth) * short_f + smooth * f;
  }
  const auto find = [&](long double turns) {
    return d_key * std::log(length / (2 * pi * turns)) / (2 * std::log(base));
  };
  long double a = find(s.high > 0 ? s.high : 32), b = find(s.low);
  if (s.truncate) a = std::floor(a), b = std::ceil(b);
  a = std::max(a, 0.0L);
  b = std::min(b, static_cast<long double>(d_key - 1));
  if (i <= a) return f;
  if (i >= b) return short_f;
  return f + (i - a) / (b - a) * (short_f - f);
}

TEST(RotaryScaling, MatchesTheFormulas) {
  using enum RotaryScalingKind;
  for (const RotaryScaling& s :
       std::vector<RotaryScaling>{{kLinear, 4},
                                  {kLlama3, 8, 8192},
                                  {kLlama3, 32, 512, 2, 16},
                                  {kYarn, 4, 4096},
                                  {kYarn, 40, 4096, 1, 32, 1.25, false},
                                  {kYarn, 16, 64, 2, 8},
                                  {kProportional, 1, 0, 0.5},
                                  {kProportional, 3, 0, 0.3},
                                  {kProportional, 1, 0, 1.0}}) {
    for (const int64_t d_key : {2, 6, 64, 128}) {
      for (const double base : {10000.0, 500000.0}) {
        std::vector<double> got(d_key / 2);
        CheckRotaryScaling("", base, s);
        RotaryFrequencies(d_key, base, s, got.data());
        for (int64_t i = 0; i < d_key / 2; ++i) {
          const auto want = static_cast<double>(Stretched(i, d_key, base, s));
          EXPECT_NEAR(got[i], want, 1e-12 * want) << d_key << " pair " << i;
        }
      }
    }
  }
}

TEST(RotaryScaling, YarnStretchesCosinesAndSines) {
  RotaryScaling s = {RotaryScalingKind::kYarn, 4, 4096};
  EXPECT_DOUBLE_EQ(RotaryMagnitude(s), 0.1 * std::log(4.0) + 1);
  s.magnitude = 1.5;
  EXPECT_EQ(RotaryMagnitude(s), 1.5);
  double frequency;
  RotaryFrequencies(2, 10000, s, &frequency);
  float cos, sin;
  RotaryRow(3, 2, &frequency, &cos, &sin, RotaryMagnitude(s));
  EXPECT_NEAR(std::hypot(cos, sin), 1.5, 1e-6);
  s.kind = RotaryScalingKind::kLinear;
  EXPECT_EQ(RotaryMagnitude(s), 1.0);
}

TEST(RotaryScaling, RefusesNumbersOutOfRange) {
  using enum RotaryScalingKind;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CheckRotaryScaling("", 1.0, {kNone, -1});
  for (const RotaryScaling& s :
       std::vector<RotaryScaling>{{kLinear, 0.5},
                                  {kLinear, nan},
                                  {kLlama3, 8, 0},
                                  {kLlama3, 8, 64, 4},
                                  {kLlama3, 8, 64, 0},
                                  {kYarn, 8, 64, 40},
                                  {kYarn, 8, 64, nan},
                                  {kYarn, 8, 64, 1, 32, -1},
                                  {kProportional, 0.5, 0, 0.5},
                                  {kProportional, 1, 0, 0},
                                  {kProportional, 1, 0, 1.5},
                                  {kProportional, 1, 0, nan}}) {
    EXPECT_THROW(CheckRotaryScaling("", 10000, s), ArgumentError);
  }
  EXPECT_THROW(CheckRotaryScaling("", 1.0, {kYarn, 8, 64}), ArgumentError);
}

// The property that rotary positions exist for: the product of two rotated rows
// depends on the distance alone.
TEST(Rotary, ProductsDependOnDistanceOnly) {
  const int64_t d_key = 8, half = d_key / 2;
  const double query[8] = {1, -2, .5, .25, 3, 1, -1, 2};
  const double key[8] = {.5, 1, 2, -1, 1, .25, 3, -2};
  const auto product = [&](int64_t query_position, int64_t key_position) {
    float qc[4], qs[4], kc[4], ks[4];
    RotaryRow(query_position, d_key, 10000, qc, qs);
    RotaryRow(key_position, d_key, 10000, kc, ks);
    double sum = 0;
    for (int64_t i = 0; i < half; ++i) {
      const double q0 = query[i] * qc[i] - query[i + half] * qs[i];
      const double q1 = query[i + half] * qc[i] + query[i] * qs[i];
      const double k0 = key[i] * kc[i] - key[i + half] * ks[i];
      const double k1 = key[i + half] * kc[i] + key[i] * ks[i];
      sum += q0 * k0 + q1 * k1;
    }
    return sum;
  };
  EXPECT_NEAR(product(5, 2), product(1005, 1002), 1e-5);
  EXPECT_GT(std::abs(product(5, 2) - product(5, 3)), 1e-2);
}

}  // namespace
}  // namespace tarn
