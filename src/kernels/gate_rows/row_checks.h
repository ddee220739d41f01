// Checks of functions of one row of floats, for tests: values against a double
// reference over all sizes, entries alone, in place, and NaN.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/test_vectors.h"

namespace tarn::testing {

inline constexpr float kRowNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kRowInfinity = std::numeric_limits<float>::infinity();
// A few roundings in each function; a value that is not a normal number may
// be 0 (sigma and exp below exp(-87), times at most 104).
inline constexpr double kRowRelative = 8 * 0x1p-24, kRowTiny = 104 * 1.7e-38;

using RowFunction = std::function<void(const float* x, int64_t n, float* y)>;
using RowReference = std::function<double(double x)>;

// Both signs of every size from 1e-30 to 104, numbers in between, infinities.
inline std::vector<float> RowArguments() {
  std::vector<float> x = {0.0f,          -0.0f,  kRowInfinity,
                          -kRowInfinity, 104.0f, -104.0f};
  for (float size = 1e-30f; size < 104; size *= 1.37f) {
    x.push_back(size);
    x.push_back(-size);
  }
  for (float v : Normals(200, 1)) x.push_back(4 * v);
  for (float v : Normals(100, 2)) x.push_back(40 * v);
  return x;
}

inline void ExpectRowClose(double want, float given, const char* what,
                           double x) {
  if (std::isinf(want) || std::fabs(want) > 3.4028235e38) {
    EXPECT_EQ(want < 0 ? -kRowInfinity : kRowInfinity, given)
        << what << " of " << x;
  } else {
    EXPECT_NEAR(want, given, kRowRelative * std::fabs(want) + kRowTiny)
        << what << " of " << x;
  }
}

// Values, what follows the row, entries alone, in place, and NaN, which
// touches no neighbour.
inline void ExpectRow(const char* what, const RowFunction& row,
                      const RowReference& reference) {
  std::vector<float> x = RowArguments();
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<float> y(n + 1, kRowNaN);
  y[n] = 77.0f;
  row(x.data(), n, y.data());
  EXPECT_EQ(77.0f, y[n]);
  for (int64_t i = 0; i < n; ++i)
    ExpectRowClose(reference(x[i]), y[i], what, x[i]);
  for (int64_t i = 0; i < n; ++i) {
    float alone = kRowNaN;
    row(&x[i], 1, &alone);
    EXPECT_EQ(0, std::memcmp(&alone, &y[i], 4)) << what << " of " << x[i];
  }
  for (int64_t first = 0; first < 40; first += 3) {
    const int64_t count = 37 - first / 2;
    std::vector<float> part(count);
    row(&x[first], count, part.data());
    EXPECT_EQ(0, std::memcmp(part.data(), &y[first], count * 4)) << what;
  }
  std::vector<float> bad = x;
  bad[7] = bad[n - 1] = kRowNaN;
  row(bad.data(), n, bad.data());
  for (int64_t i = 0; i < n; ++i) {
    if (i == 7 || i == n - 1) {
      EXPECT_TRUE(std::isnan(bad[i])) << what;
    } else {
      EXPECT_EQ(0, std::memcmp(&bad[i], &y[i], 4)) << what << " of " << x[i];
    }
  }
}

}  // namespace tarn::testing
