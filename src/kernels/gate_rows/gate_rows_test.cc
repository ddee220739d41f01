#include "kernels/gate_rows/gate_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/simd_target.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

using testing::Normals;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// A few roundings in each function; a value that is not a normal number may
// be 0 (sigma and exp below exp(-87), times at most 104).
constexpr double kRelative = 8 * 0x1p-24, kTiny = 104 * 1.7e-38;

using Row = std::function<void(const float* x, int64_t n, float* y)>;
using Reference = std::function<double(double x)>;

// Definitions, in double. exp(-|x|) is exact to 1e-16 here, so nothing cancels
// that shows in float32.
double Sigma(double x) { return 1 / (1 + std::exp(-x)); }
double Softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
double Silu(double x) { return std::isinf(x) && x < 0 ? 0 : x * Sigma(x); }

// Both signs of every size from 1e-30 to 104, numbers in between, infinities.
std::vector<float> Arguments() {
  std::vector<float> x = {0.0f, -0.0f, kInfinity, -kInfinity, 104.0f, -104.0f};
  for (float size = 1e-30f; size < 104; size *= 1.37f) {
    x.push_back(size);
    x.push_back(-size);
  }
  for (float v : Normals(200, 1)) x.push_back(4 * v);
  for (float v : Normals(100, 2)) x.push_back(40 * v);
  return x;
}

void ExpectClose(double want, float given, const char* what, double x) {
  if (std::isinf(want) || std::fabs(want) > 3.4028235e38) {
    EXPECT_EQ(want < 0 ? -kInfinity : kInfinity, given) << what << " of " << x;
  } else {
    EXPECT_NEAR(want, given, kRelative * std::fabs(want) + kTiny)
        << what << " of " << x;
  }
}

class GateRowsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

// Values, what stands behind the row, entries alone, in place, and NaN, which
// touches no neighbour.
void ExpectRow(const char* what, const Row& row, const Reference& reference) {
  std::vector<float> x = Arguments();
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<float> y(n + 1, kNaN);
  y[n] = 77.0f;
  row(x.data(), n, y.data());
  EXPECT_EQ(77.0f, y[n]);
  for (int64_t i = 0; i < n; ++i)
    ExpectClose(reference(x[i]), y[i], what, x[i]);
  for (int64_t i = 0; i < n; ++i) {
    float alone = kNaN;
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
  bad[7] = bad[n - 1] = kNaN;
  row(bad.data(), n, bad.data());
  for (int64_t i = 0; i < n; ++i) {
    if (i == 7 || i == n - 1) {
      EXPECT_TRUE(std::isnan(bad[i])) << what;
    } else {
      EXPECT_EQ(0, std::memcmp(&bad[i], &y[i], 4)) << what << " of " << x[i];
    }
  }
}

TEST_P(GateRowsTest, Activations) {
  ExpectRow("silu", SiluRow, Silu);
  ExpectRow("sigmoid", SigmoidRow, Sigma);
  ExpectRow("tanh", TanhRow, [](double x) { return std::tanh(x); });
  ExpectRow(
      "softplus",
      [](const float* x, int64_t n, float* y) {
        SoftplusRow(x, nullptr, n, y);
      },
      Softplus);
}

// g of a row whose biases are all `bias` (none if 0) and whose heads all have
// the rate `rate`.
Row GatesOf(GateForm form, float scale, float bias, float rate, int64_t width) {
  return [=](const float* x, int64_t n, float* g) {
    // The part of the row that fills no head is a row of its own.
    for (const auto& [heads, wide] :
         {std::pair<int64_t, int64_t>{n / width, width}, {1, n % width}}) {
      const std::vector<float> biases(heads * wide, bias), rates(heads, rate);
      std::vector<float> keys(heads * wide, kNaN);
      GateRow row{
          form, heads, wide, rates.data(), bias == 0 ? nullptr : biases.data(),
          scale};
      DecayGateRow(row, x, g,
                   form == GateForm::kBounded ? keys.data() : nullptr);
      x += heads * wide;
      g += heads * wide;
    }
  };
}

TEST_P(GateRowsTest, SoftplusGates) {
  for (const int64_t width : {1, 5, 64}) {
    for (const float bias : {0.0f, -1.5f}) {
      for (const float rate : {0.0f, 0.3f, 16.0f}) {
        ExpectRow("softplus gate",
                  GatesOf(GateForm::kSoftplus, 1, bias, rate, width),
                  [=](double x) {
                    const double soft = Softplus(static_cast<float>(x) + bias);
                    return rate == 0 ? 0 : -rate * soft;
                  });
      }
    }
  }
}

TEST_P(GateRowsTest, GatesWithoutRates) {
  const float scale = 1.0f / 16;
  for (const float bias : {0.0f, 0.75f}) {
    const auto at = [=](double x) {
      return static_cast<double>(static_cast<float>(x) + bias);
    };
    ExpectRow("log sigmoid", GatesOf(GateForm::kLogSigmoid, scale, bias, 1, 8),
              [=](double x) { return -scale * Softplus(-at(x)); });
    ExpectRow("exponential", GatesOf(GateForm::kExponential, 1, bias, 1, 8),
              [=](double x) { return -std::exp(at(x)); });
    ExpectRow("sigmoid gate",
              GatesOf(GateForm::kSigmoid, 0.60653066f, bias, 1, 8),
              [=](double x) { return -0.60653066f * Sigma(at(x)); });
  }
}

TEST_P(GateRowsTest, BoundedGates) {
  for (const float l : {0.0f, 0.01f, 0.5f, 0.97f, 0.99999994f}) {
    const double rest = 1 - static_cast<double>(l);
    ExpectRow(
        "bounded", GatesOf(GateForm::kBounded, 1, l, 1, 8), [=](double x) {
          if (l == 0) return -Softplus(-x);
          const double key = rest * Sigma(-x);
          return key < 0.5 ? std::log1p(-key) : std::log(l + rest * Sigma(x));
        });
    ExpectRow(
        "bounded key",
        [=](const float* x, int64_t n, float* keys) {
          const std::vector<float> bounds(n, l), in(x, x + n);
          std::vector<float> g(n, kNaN);
          DecayGateRow({GateForm::kBounded, 1, n, nullptr, bounds.data(), 1},
                       in.data(), g.data(), keys);
        },
        [=](double x) { return rest * Sigma(-x); });
  }
}

// Every entry has its own rate and bias, wherever it stands.
TEST_P(GateRowsTest, HeadsHaveTheirOwnRatesAndBiases) {
  for (const auto& [heads, width] :
       {std::pair<int64_t, int64_t>{19, 1}, {3, 5}, {2, 33}, {0, 4}}) {
    const int64_t n = heads * width;
    const std::vector<float> x = Normals(n, 3), bias = Normals(n, 4);
    std::vector<float> rates = Normals(heads, 5), g(n, kNaN), soft(n, kNaN);
    for (float& rate : rates) rate = std::exp(rate);
    DecayGateRow(
        {GateForm::kSoftplus, heads, width, rates.data(), bias.data(), 1},
        x.data(), g.data(), nullptr);
    SoftplusRow(x.data(), bias.data(), n, soft.data());
    for (int64_t i = 0; i < n; ++i)
      EXPECT_EQ(-(rates[i / width] * soft[i]), g[i]);
  }
}

TEST_P(GateRowsTest, UnitRows) {
  for (const int64_t width : {1, 2, 7, 16, 33, 128}) {
    constexpr int64_t kHeads = 5;
    std::vector<float> x = Normals(kHeads * width, 6);
    for (int64_t i = 0; i < width; ++i) x[i] = 0;  // a head of zeros stays
    std::vector<float> y = x;
    y.push_back(77.0f);
    UnitRow(kHeads, width, 1e-6f, y.data());
    EXPECT_EQ(77.0f, y.back());
    for (int64_t h = 0; h < kHeads; ++h) {
      double squares = 1e-6f;
      std::vector<float> alone(x.begin() + h * width,
                               x.begin() + (h + 1) * width);
      for (float v : alone) squares += static_cast<double>(v) * v;
      for (int64_t i = 0; i < width; ++i) {
        EXPECT_NEAR(alone[i] / std::sqrt(squares), y[h * width + i], 5e-7);
      }
      UnitRow(1, width, 1e-6f, alone.data());
      EXPECT_EQ(0, std::memcmp(alone.data(), &y[h * width], width * 4));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, GateRowsTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn
