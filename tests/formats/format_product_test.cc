// Products with a format that product code does not know, on every SIMD target:
// the bits of float32 products with the same weights, alone and among others.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "int8_groups.h"
#include "kernels/matmul/matmul.h"
#include "kernels/simd_target.h"

namespace tarn::testing {
namespace {

std::vector<float> Normals(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = static_cast<float>(rng.Normal());
  return values;
}

class FormatProductTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(FormatProductTest, HasTheBitsOfItsWeightsInFloat32) {
  ThreadPool pool(3);
  SerialExecutor serial;
  for (const auto& [outputs, inputs] : std::vector<std::pair<int, int>>{
           {1, 1}, {3, 31}, {64, 32}, {65, 33}, {130, 200}, {70, 301}}) {
    const std::vector<float> weights = Normals(outputs * inputs, 1);
    const std::vector<float> bias = Normals(outputs, 2);
    const std::vector<float> rounded =
        RoundedToInt8Groups(weights, outputs, inputs);
    WeightMatrix held(outputs, inputs, kInt8Groups);
    WeightMatrix plain(outputs, inputs, kF32Weights);
    held.SetRows(0, outputs, weights.data(), bias.data());
    plain.SetRows(0, outputs, rounded.data(), bias.data());
    for (const int64_t rows : {1, 2, 3, 6, 7, 13, 50}) {
      const std::vector<float> x = Normals(rows * inputs, 3);
      std::vector<float> want(static_cast<size_t>(rows * outputs));
      PackedMatMul(x.data(), inputs, rows, plain, {want.data(), outputs},
                   serial, MatMulFinish::kGelu);
      for (Executor* executor : std::vector<Executor*>{&serial, &pool}) {
        std::vector<float> y(want.size(),
                             std::numeric_limits<float>::quiet_NaN());
        PackedMatMul(x.data(), inputs, rows, held, {y.data(), outputs},
                     *executor, MatMulFinish::kGelu);
        EXPECT_EQ(want, y) << rows << " " << outputs << " " << inputs;
      }
      for (int64_t row = 0; row < rows; ++row) {  // as a step runs it
        std::vector<float> y(static_cast<size_t>(outputs));
        PackedRowMatMul({.x = x.data() + row * inputs,
                         .w = &held,
                         .panel_end = held.panels(),
                         .y = y.data(),
                         .finish = MatMulFinish::kGelu});
        EXPECT_EQ(0, std::memcmp(want.data() + row * outputs, y.data(),
                                 y.size() * sizeof(float)));
      }
    }
    std::vector<float> row(static_cast<size_t>(inputs));
    for (int64_t n = 0; n < outputs; ++n) {
      held.ReadRow(n, row.data());
      EXPECT_EQ(0, std::memcmp(rounded.data() + n * inputs, row.data(),
                               row.size() * sizeof(float)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FormatProductTest,
                         ::testing::ValuesIn(SimdTargets()));

TEST(FormatTest, TakesAboutOneByteForEachWeight) {
  EXPECT_EQ(1.125, BytesPerWeight(kInt8Groups));
  EXPECT_EQ(2304 + 256, WeightMatrix::Bytes(64, 32, kInt8Groups));
  EXPECT_EQ(2 * 2304 + 256, WeightMatrix::Bytes(64, 33, kInt8Groups));
}

}  // namespace
}  // namespace tarn::testing
