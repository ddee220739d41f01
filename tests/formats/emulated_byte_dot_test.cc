// Products on emulated byte dot products have the bits of those without them.
#include "emulated_byte_dot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "kernels/matmul/formats/byte_dot.h"
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

class EmulatedByteDotTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ForceSimdTarget(GetParam());
    AllowByteDot(false);
  }
  void TearDown() override {
    AllowByteDot(true);
    ResetSimdTarget();
  }
};

TEST_P(EmulatedByteDotTest, HasTheBitsOfTheOtherDots) {
  ThreadPool pool(3);
  SerialExecutor serial;
  for (const auto& [emulated, plain] :
       {std::pair{&kEmulatedInt8, &kInt8Weights},
        std::pair{&kEmulatedInt4, &kInt4Weights},
        std::pair{&kEmulatedInt4Minimum, &kInt4MinimumWeights128}}) {
    for (const auto& [rows, outputs, inputs] :
         std::vector<std::tuple<int, int, int>>{
             {1, 1, 1}, {2, 65, 33}, {7, 130, 301}, {99, 600, 130}}) {
      const std::vector<float> weights = Normals(outputs * inputs, 1);
      const std::vector<float> bias = Normals(outputs, 2);
      const std::vector<float> x = Normals(rows * inputs, 3);
      WeightMatrix a(outputs, inputs, *emulated), b(outputs, inputs, *plain);
      a.SetRows(0, outputs, weights.data(), bias.data());
      b.SetRows(0, outputs, weights.data(), bias.data());
      std::vector<float> want(static_cast<size_t>(rows * outputs));
      PackedMatMul(x.data(), inputs, rows, b, {want.data(), outputs}, serial);
      for (Executor* executor : std::vector<Executor*>{&serial, &pool}) {
        std::vector<float> y(want.size(),
                             std::numeric_limits<float>::quiet_NaN());
        PackedMatMul(x.data(), inputs, rows, a, {y.data(), outputs}, *executor);
        EXPECT_EQ(want, y) << emulated->name << " " << rows << " " << outputs
                           << " " << inputs;
      }
      std::vector<float> y(static_cast<size_t>(outputs));
      PackedRowMatMul(
          {.x = x.data(), .w = &a, .panel_end = a.panels(), .y = y.data()});
      EXPECT_EQ(0, std::memcmp(want.data(), y.data(), y.size() * 4));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EmulatedByteDotTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn::testing
