#include "kernels/dropout/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "core/test_util.h"
#include "kernels/simd_target.h"

namespace tarn {
namespace {

class DropoutTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

// One element by the definition in dropout.h.
float Definition(const DropoutOptions& options, int64_t width, int64_t row,
                 int64_t i) {
  const int64_t blocks = (width + 127) / 128;
  const int64_t block = row * blocks + i / 128, e = i % 128;
  const auto words =
      Philox(options.seed, 0, static_cast<uint64_t>(16 * block + e % 16));
  const int64_t half = e / 16;
  const uint32_t bits = words[half / 2] >> (half % 2 == 0 ? 0 : 16) & 0xFFFF;
  const double threshold = std::round(options.probability * 65536);
  if (bits < threshold) return 0.0f;
  return 65536.0f / static_cast<float>(65536 - threshold);
}

TEST_P(DropoutTest, FollowsItsDefinition) {
  SerialExecutor executor;
  for (const int64_t width : {1, 3, 15, 16, 17, 100, 127, 128, 129, 300}) {
    for (const double p : {0.0, 0.1, 0.9}) {
      const DropoutOptions options = {p, 0xFEDCBA9876543210u + width};
      const int64_t rows = 3;
      std::vector<float> scales(rows * width + 1,
                                std::numeric_limits<float>::quiet_NaN());
      scales.back() = 77.0f;
      DropoutScales(options, rows, width, scales.data(), executor);
      EXPECT_EQ(77.0f, scales.back());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < width; ++i) {
          ASSERT_EQ(Definition(options, width, row, i), scales[row * width + i])
              << width << ' ' << row << ' ' << i;
        }
      }
    }
  }
}

TEST_P(DropoutTest, AnyExecutorDrawsTheSame) {
  const DropoutOptions options = {0.25, 9};
  const int64_t rows = 300, width = 40;
  SerialExecutor serial;
  std::vector<float> wanted(rows * width);
  DropoutScales(options, rows, width, wanted.data(), serial);
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    std::vector<float> given(rows * width, -1.0f);
    DropoutScales(options, rows, width, given.data(), pool);
    EXPECT_EQ(wanted, given);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DropoutTest,
                         ::testing::ValuesIn(SimdTargets()));

TEST(DropoutOptionsTest, KeepsTheShareItSays) {
  SerialExecutor executor;
  constexpr int64_t kRows = 1000, kWidth = 1000;
  std::vector<float> scales(kRows * kWidth);
  for (const double p : {0.1, 0.5}) {
    DropoutScales({p, 1}, kRows, kWidth, scales.data(), executor);
    double sum = 0;
    int64_t pairs = 0;
    for (size_t i = 0; i < scales.size(); ++i) {
      sum += scales[i];
      pairs += scales[i] == 0 && scales[(i + 1) % scales.size()] == 0;
    }
    const double n = static_cast<double>(scales.size());
    // Five standard deviations of the mean of n scaled coins.
    EXPECT_NEAR(1.0, sum / n, 5 * std::sqrt(p / (1 - p) / n));
    EXPECT_NEAR(p * p, pairs / n, 5 * p / std::sqrt(n));
  }
}

TEST(DropoutOptionsTest, SeedsDiffer) {
  SerialExecutor executor;
  std::vector<float> a(1000), b(1000);
  DropoutScales({0.5, 1}, 1, 1000, a.data(), executor);
  DropoutScales({0.5, uint64_t{1} << 32}, 1, 1000, b.data(), executor);
  EXPECT_NE(a, b);
}

TEST(DropoutOptionsTest, RefusesBeforeWork) {
  SerialExecutor executor;
  for (const double p : {-0.1, 1.0, 0.999999, std::nan("")}) {
    const Error error = ErrorOf([&] {
      DropoutScales({p, 1}, 1, 1, nullptr, executor);
    });
    EXPECT_EQ(ErrorCode::kArgument, error.code()) << p;
    EXPECT_EQ("dropout: probability", error.where());
  }
  EXPECT_EQ(ErrorCode::kShape,
            ErrorOf([&] {
              DropoutScales({0.1, 1}, -1, 1, nullptr, executor);
            }).code());
  DropoutScales({0.1, 1}, 0, 5, nullptr, executor);
  DropoutScales({0.1, 1}, 5, 0, nullptr, executor);
}

}  // namespace
}  // namespace tarn
