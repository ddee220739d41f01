#include "kernels/row_product/row_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "kernels/row_product/row_product_ref.h"
#include "kernels/simd_target.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

std::vector<float> Poisoned(int64_t size) {
  return std::vector<float>(static_cast<size_t>(size),
                            std::numeric_limits<float>::quiet_NaN());
}

std::vector<float> Product(const std::vector<float>& x, int64_t rows,
                           int64_t inputs, const std::vector<float>& weight,
                           const std::vector<float>& bias, int64_t outputs,
                           Executor& executor) {
  std::vector<float> y = Poisoned(rows * outputs);
  const RowProductMap map = {
      weight.data(), bias.empty() ? nullptr : bias.data(), outputs, y.data()};
  RowProduct(x.data(), rows, inputs, &map, 1, executor);
  return y;
}

TEST(RowProductTest, IsTheDefinitionForEverySize) {
  SerialExecutor serial;
  ThreadPool pool(3);
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    for (const int64_t rows : {0, 1, 2, 5}) {
      for (const int64_t inputs : {0, 1, 7, 16, 33, 128, 515}) {
        for (const int64_t outputs : {0, 1, 3, 4, 9, 64, 257}) {
          const uint64_t seed =
              static_cast<uint64_t>(rows * 1000003 + inputs * 1009 + outputs);
          const std::vector<float> x = testing::Normals(rows * inputs, seed);
          const std::vector<float> w =
              testing::Normals(outputs * inputs, seed + 1);
          for (const bool with_bias : {false, true}) {
            const std::vector<float> bias =
                testing::Normals(with_bias ? outputs : 0, seed + 2);
            const std::vector<float> got =
                Product(x, rows, inputs, w, bias, outputs, serial);
            const std::vector<double> want =
                RowProductRef(x, rows, w, bias, outputs);
            ASSERT_EQ(want.size(), got.size());
            for (size_t i = 0; i < got.size(); ++i) {
              ASSERT_NEAR(want[i], got[i],
                          4e-6 * (1 + std::sqrt(static_cast<double>(inputs))))
                  << target << " " << rows << " " << inputs << " " << outputs;
            }
            const std::vector<float> shared =
                Product(x, rows, inputs, w, bias, outputs, pool);
            EXPECT_TRUE(got.empty() ||
                        std::memcmp(got.data(), shared.data(),
                                    got.size() * sizeof(float)) == 0);
          }
        }
      }
    }
  }
  ResetSimdTarget();
}

TEST(RowProductTest, RowsAndMapsHaveTheBitsTheyHaveAlone) {
  ThreadPool pool(2);
  constexpr int64_t kRows = 7, kInputs = 131, kOutputs[] = {130, 7, 64};
  const std::vector<float> x = testing::Normals(kRows * kInputs, 1);
  std::vector<std::vector<float>> weights, together;
  std::vector<RowProductMap> maps;
  for (const int64_t outputs : kOutputs) {
    weights.push_back(testing::Normals(outputs * kInputs, 2));
    together.push_back(Poisoned(kRows * outputs));
  }
  for (size_t i = 0; i < 3; ++i) {
    maps.push_back(
        {weights[i].data(), nullptr, kOutputs[i], together[i].data()});
  }
  RowProduct(x.data(), kRows, kInputs, maps.data(), 3, pool);
  for (int64_t m = 0; m < kRows; ++m) {
    const std::vector<float> row(x.begin() + m * kInputs,
                                 x.begin() + (m + 1) * kInputs);
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<float> alone =
          Product(row, 1, kInputs, weights[i], {}, kOutputs[i], pool);
      EXPECT_EQ(0,
                std::memcmp(alone.data(), together[i].data() + m * kOutputs[i],
                            alone.size() * sizeof(float)));
    }
  }
}

TEST(RowProductTest, ChecksItsArguments) {
  SerialExecutor serial;
  float y = 0;
  RowProductMap map = {nullptr, nullptr, 1, &y};
  EXPECT_THROW(RowProduct(&y, -1, 1, &map, 1, serial), ShapeError);
  EXPECT_THROW(RowProduct(&y, 1, 1, &map, 1, serial), ArgumentError);
  EXPECT_NO_THROW(RowProduct(nullptr, 0, 1, &map, 1, serial));
  RowProduct(nullptr, 1, 0, &map, 1, serial);  // an empty sum
  EXPECT_EQ(0.0f, y);
  map.outputs = -1;
  EXPECT_THROW(RowProduct(&y, 1, 1, &map, 1, serial), ShapeError);
}

}  // namespace
}  // namespace tarn
