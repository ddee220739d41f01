// The packed product against a double sum, on every SIMD target, and its
// promise that a row has the same bits in any batch.
#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/half.h"
#include "core/rng.h"
#include "kernels/activation/activation.h"
#include "kernels/reversed_executor.h"
#include "kernels/simd_target.h"
#include "kernels/swiglu/swiglu.h"

namespace tarn {
namespace {

std::vector<float> Normals(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>(rng.Normal());
  return values;
}

// Nearest bfloat16 by trying both neighbours: independent of the bit trick.
float NearestBF16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t low_bits = bits & 0xFFFF0000u, high_bits = low_bits + 0x10000u;
  float low, high;
  std::memcpy(&low, &low_bits, 4);
  std::memcpy(&high, &high_bits, 4);
  const double down = std::fabs(double{x} - low);
  const double up = std::fabs(double{high} - x);
  if (down != up) return down < up ? low : high;
  return (low_bits & 0x10000u) == 0 ? low : high;
}

struct Problem {
  int64_t rows, outputs, inputs;
  std::vector<float> x, weights, bias;
  WeightMatrix packed;

  Problem(int64_t rows, int64_t outputs, int64_t inputs,
          const WeightFormat& format)
      : rows(rows),
        outputs(outputs),
        inputs(inputs),
        x(Normals(rows * inputs, 1)),
        weights(Normals(outputs * inputs, 2)),
        bias(Normals(outputs, 3)),
        packed(outputs, inputs, format) {
    packed.SetRows(0, outputs, weights.data(), bias.data());
  }

  std::vector<float> Run(Executor& executor) const {
    std::vector<float> y(rows * outputs,
                         std::numeric_limits<float>::quiet_NaN());
    PackedMatMul(x.data(), inputs, rows, packed, {y.data(), outputs}, executor);
    return y;
  }
};

using tarn::testing::ReversedExecutor;

class MatMulTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
  SerialExecutor serial_;
};

void ExpectNearReference(const Problem& p, const std::vector<float>& y) {
  const bool rounded = &p.packed.FormatAt(0) == &kBF16Weights;
  for (int64_t m = 0; m < p.rows; ++m) {
    for (int64_t n = 0; n < p.outputs; ++n) {
      double sum = p.bias[n], size = std::fabs(p.bias[n]);
      for (int64_t k = 0; k < p.inputs; ++k) {
        const float w = p.weights[n * p.inputs + k];
        const double term =
            double{p.x[m * p.inputs + k]} * (rounded ? NearestBF16(w) : w);
        sum += term;
        size += std::fabs(term);
      }
      // The bound allows one rounding of 2^-24, of at most `size`, for each of
      // K links; they add up at random, hence the root (with a margin of 4).
      const double bound =
          4 * std::sqrt(p.inputs + 1.0) * std::ldexp(size, -24);
      ASSERT_NEAR(sum, y[m * p.outputs + n], bound)
          << "row " << m << " output " << n << " of " << p.rows << "x"
          << p.outputs << "x" << p.inputs;
    }
  }
}

// What a finish does comes after the product and changes none of its bits.
TEST_P(MatMulTest, FinishesAreThePassesTheySave) {
  ReversedExecutor reversed;
  for (const WeightFormat* format : WeightFormats()) {
    for (const int64_t rows : {1, 3, 8, 50}) {
      const Problem p(rows, 130, 70, *format);
      const std::vector<float> product = p.Run(serial_);
      const std::vector<float> before = Normals(rows * p.outputs, 9);
      for (const MatMulFinish finish :
           {MatMulFinish::kRelu, MatMulFinish::kGelu, MatMulFinish::kGeluTanh,
            MatMulFinish::kAdd, MatMulFinish::kSwiglu}) {
        std::vector<float> want = product;
        for (int64_t m = 0; m < rows; ++m) {
          float* row = want.data() + m * p.outputs;
          if (finish == MatMulFinish::kRelu) ReluRow(row, p.outputs, row);
          if (finish == MatMulFinish::kGelu) GeluRow(row, p.outputs, row);
          if (finish == MatMulFinish::kGeluTanh) {
            GeluTanhRow(row, p.outputs, row);
          }
          if (finish == MatMulFinish::kAdd) {
            AddToRow(before.data() + m * p.outputs, p.outputs, row);
          }
          if (finish == MatMulFinish::kSwiglu) {
            SwigluForward({}, 1, p.outputs, row, before.data() + m * p.outputs,
                          row, serial_);
          }
        }
        for (Executor* executor : std::vector<Executor*>{&serial_, &reversed}) {
          std::vector<float> y = before;
          PackedMatMul(p.x.data(), p.inputs, rows, p.packed,
                       {y.data(), p.outputs}, *executor, finish);
          EXPECT_EQ(0, std::memcmp(y.data(), want.data(), y.size() * 4))
              << "finish " << static_cast<int>(finish) << " rows " << rows;
        }
      }
    }
  }
}

// SwiGLU in one place: the product with W3 stored, the one with W1 finished
// over it; rows together and row by row, panel by panel, give the same bits.
TEST_P(MatMulTest, SwigluIsTwoProductsInOnePlace) {
  for (const WeightFormat* format : WeightFormats()) {
    const Problem w3(50, 130, 70, *format);
    Problem w1(50, 130, 70, *format);  // the same rows, other weights
    w1.packed.SetRows(0, 130, Normals(130 * 70, 8).data(), nullptr);
    const std::vector<float> gate = w1.Run(serial_), up = w3.Run(serial_);
    std::vector<float> want(gate.size()), together = up;
    std::vector<float> alone(gate.size(),
                             std::numeric_limits<float>::quiet_NaN());
    SwigluForward({}, 50, 130, gate.data(), up.data(), want.data(), serial_);
    PackedMatMul(w1.x.data(), 70, 50, w1.packed, {together.data(), 130},
                 serial_, MatMulFinish::kSwiglu);
    EXPECT_EQ(want, together);
    for (int64_t row = 0; row < 50; ++row) {
      float* y = alone.data() + row * 130;
      for (int64_t panel = 0; panel < w1.packed.panels(); ++panel) {
        for (const auto& [p, finish] :
             {std::pair{&w3, MatMulFinish::kStore},
              std::pair{&std::as_const(w1), MatMulFinish::kSwiglu}}) {
          PackedRowMatMul({.x = w3.x.data() + row * 70,
                           .w = &p->packed,
                           .panel_begin = panel,
                           .panel_end = panel + 1,
                           .y = y,
                           .finish = finish,
                           .residual = y});
        }
      }
    }
    EXPECT_EQ(want, alone);
  }
}

TEST(WeightArenaTest, HoldsMatricesOneAfterTheOther) {
  const Problem own(3, 70, 40, kBF16Weights);
  const int64_t bytes = WeightMatrix::Bytes(70, 40, kBF16Weights);
  EXPECT_EQ(128 * 40 * 2 + 128 * 4, bytes);  // two panels and their bias
  auto arena = std::make_shared<WeightArena>();
  WeightMatrix first(70, 40, kBF16Weights, arena);
  WeightMatrix second(70, 40, kBF16Weights, arena);
  EXPECT_EQ(first.Panel(0) + bytes, second.Panel(0));
  EXPECT_EQ(2 * bytes, arena->bytes());
  EXPECT_THROW(arena->Take(-1), std::bad_alloc);
  arena.reset();  // the matrices keep it
  second.SetRows(0, 70, own.weights.data(), own.bias.data());
  EXPECT_EQ(0, std::memcmp(own.packed.Panel(0), second.Panel(0),
                           static_cast<size_t>(128 * 40 * 2)));
  // The panel with padding is cleared.
  for (int64_t b = 0; b < 64 * 40 * 2; ++b) ASSERT_EQ(0, first.Panel(1)[b]);
}

// What was taken stays where it is, however much is taken after it.
TEST(WeightArenaTest, GrowsWithoutMovingAnything) {
  WeightArena arena;
  std::vector<std::pair<uint8_t*, int64_t>> taken;
  int64_t sum = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const int64_t bytes = i == 200 ? 9'000'000 : i * 997;
    uint8_t* at = arena.Take(bytes);
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(at) % 64);
    std::memset(at, static_cast<int>(i % 255 + 1), static_cast<size_t>(bytes));
    taken.emplace_back(at, bytes);
    sum += (bytes + 63) / 64 * 64;
    EXPECT_EQ(sum, arena.bytes());
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    for (int64_t b = 0; b < taken[i].second; ++b) {
      ASSERT_EQ(i % 255 + 1, taken[i].first[b]);
    }
  }
}

TEST_P(MatMulTest, OddSizesMatchTheDoubleSum) {
  for (const WeightFormat* format : {&kF32Weights, &kBF16Weights}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 49}) {
      for (const auto& [outputs, inputs] : std::vector<std::pair<int, int>>{
               {1, 1}, {3, 7}, {16, 96}, {63, 97}, {65, 33}, {130, 200}}) {
        const Problem p(rows, outputs, inputs, *format);
        ExpectNearReference(p, p.Run(serial_));
      }
    }
  }
}

TEST_P(MatMulTest, AnySplitOfRowsGivesTheSameBits) {
  Rng rng(4);
  ReversedExecutor reversed;
  ThreadPool pool(3);
  for (const WeightFormat* format : WeightFormats()) {
    const Problem p(101, 197, 310, *format);
    const std::vector<float> whole = p.Run(serial_);
    const size_t bytes = whole.size() * sizeof(float);
    EXPECT_EQ(0, std::memcmp(whole.data(), p.Run(reversed).data(), bytes));
    EXPECT_EQ(0, std::memcmp(whole.data(), p.Run(pool).data(), bytes));
    for (int trial = 0; trial < 5; ++trial) {
      std::vector<float> y(whole.size());
      for (int64_t m = 0; m < p.rows;) {
        const int64_t left = p.rows - m;
        const int64_t most = trial == 0 ? 1 : std::min<int64_t>(left, 60);
        const int64_t rows = 1 + static_cast<int64_t>(rng.Below(most));
        PackedMatMul(p.x.data() + m * p.inputs, p.inputs, rows, p.packed,
                     {y.data() + m * p.outputs, p.outputs}, reversed);
        m += rows;
      }
      EXPECT_EQ(0, std::memcmp(whole.data(), y.data(), bytes));
    }
  }
}

// Any range of panels, whatever is fetched after it and with a residual
// elsewhere, has the bits of the whole product.
TEST_P(MatMulTest, PanelsOfARowAreThoseOfTheProduct) {
  for (const WeightFormat* format : WeightFormats()) {
    for (const auto& [outputs, inputs] : std::vector<std::pair<int, int>>{
             {1, 1}, {70, 15}, {64, 16}, {197, 310}}) {
      const Problem p(1, outputs, inputs, *format);
      const std::vector<float> residual = Normals(outputs, 5);
      for (const MatMulFinish finish :
           {MatMulFinish::kStore, MatMulFinish::kRelu, MatMulFinish::kAdd,
            MatMulFinish::kSwiglu}) {
        std::vector<float> want = residual;
        PackedMatMul(p.x.data(), inputs, 1, p.packed, {want.data(), outputs},
                     serial_, finish);
        std::vector<float> y(static_cast<size_t>(outputs), -7.0f);
        for (int64_t panel = 0; panel < p.packed.panels(); ++panel) {
          PackedRowMatMul({.x = p.x.data(),
                           .w = &p.packed,
                           .panel_begin = panel,
                           .panel_end = panel + 1,
                           .y = y.data(),
                           .finish = finish,
                           .residual = residual.data(),
                           .next = panel == 1 ? p.x.data() : nullptr});
          const size_t written = static_cast<size_t>(
              std::min<int64_t>(outputs, (panel + 1) * WeightMatrix::kPanel));
          for (size_t i = written; i < y.size(); ++i) EXPECT_EQ(-7.0f, y[i]);
        }
        EXPECT_EQ(0, std::memcmp(want.data(), y.data(), y.size() * 4));
        std::fill(y.begin(), y.end(), -7.0f);
        PackedRowMatMul({.x = p.x.data(),
                         .w = &p.packed,
                         .panel_end = p.packed.panels(),
                         .y = y.data(),
                         .finish = finish,
                         .residual = residual.data()});
        EXPECT_EQ(0, std::memcmp(want.data(), y.data(), y.size() * 4));
      }
    }
  }
}

TEST_P(MatMulTest, RowPointersAndStridesTouchNothingElse) {
  const Problem p(4, 70, 40, kF32Weights);
  const std::vector<float> want = p.Run(serial_);
  const int64_t x_stride = 45;
  std::vector<float> x(p.rows * x_stride,
                       std::numeric_limits<float>::quiet_NaN());
  for (int64_t m = 0; m < p.rows; ++m) {
    std::copy_n(p.x.data() + m * p.inputs, p.inputs, x.data() + m * x_stride);
  }
  const float guard = -12345.0f;
  std::vector<float> y(p.rows * 80, guard);
  std::vector<float*> rows;
  for (int64_t m = 0; m < p.rows; ++m) {
    rows.push_back(y.data() + (p.rows - 1 - m) * 80 + 5);
  }
  PackedMatMul(x.data(), x_stride, p.rows, p.packed, {.rows = rows.data()},
               serial_);
  for (int64_t m = 0; m < p.rows; ++m) {
    EXPECT_EQ(0, std::memcmp(rows[m], want.data() + m * p.outputs,
                             p.outputs * sizeof(float)));
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(guard, rows[m][i - 5]);
    for (int64_t i = 70; i < 75; ++i) EXPECT_EQ(guard, rows[m][i]);
  }
}

TEST_P(MatMulTest, NaNStaysInItsRowAndItsOutput) {
  Problem p(9, 70, 12, kF32Weights);
  p.x[3 * p.inputs + 5] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y = p.Run(serial_);
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(static_cast<int64_t>(i) / p.outputs == 3, std::isnan(y[i])) << i;
  }
}

TEST_P(MatMulTest, NoRowsIsNothing) {
  const Problem p(1, 70, 12, kF32Weights);
  PackedMatMul(p.x.data(), p.inputs, 0, p.packed, {}, serial_);
  EXPECT_THROW(PackedMatMul(p.x.data(), p.inputs, -1, p.packed, {}, serial_),
               ShapeError);
}

TEST_P(MatMulTest, RowsOfHalvesAreTakenAsTheyAre) {
  std::mt19937_64 rng(6);
  for (int64_t outputs : {1, 8, 63, 64, 150}) {
    for (int64_t inputs : {1, 7, 8, 40, 101}) {
      std::vector<uint16_t> numbers(static_cast<size_t>(outputs * inputs));
      for (uint16_t& x : numbers) {
        x = F32ToBF16(static_cast<float>(rng() % 4001) - 2000.0f);
      }
      const auto* bytes = reinterpret_cast<const uint8_t*>(numbers.data());
      const int64_t part = outputs / 3;  // two calls, at any column
      WeightMatrix matrix(outputs, inputs, kBF16Weights);
      matrix.SetStoredRows(0, part, bytes);
      matrix.SetStoredRows(part, outputs - part, bytes + 2 * part * inputs);
      std::vector<float> row(static_cast<size_t>(inputs));
      for (int64_t n = 0; n < outputs; ++n) {
        matrix.ReadRow(n, row.data());
        for (int64_t k = 0; k < inputs; ++k) {
          EXPECT_EQ(BF16ToF32(numbers[static_cast<size_t>(n * inputs + k)]),
                    row[static_cast<size_t>(k)])
              << outputs << " x " << inputs << ": " << n << ", " << k;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, MatMulTest,
                         ::testing::ValuesIn(SimdTargets()));

TEST(WeightMatrixTest, RowsComeBackAndMayBeSetInParts) {
  for (const WeightFormat* format : WeightFormats()) {
    const Problem whole(1, 150, 37, *format);
    WeightMatrix parts(150, 37, *format);
    parts.SetRows(0, 70, whole.weights.data(), whole.bias.data());
    parts.SetRows(70, 80, whole.weights.data() + 70 * 37,
                  whole.bias.data() + 70);
    std::vector<float> a(37), b(37);
    for (int64_t n = 0; n < 150; ++n) {
      whole.packed.ReadRow(n, a.data());
      parts.ReadRow(n, b.data());
      EXPECT_EQ(a, b);
      for (int64_t k = 0; k < 37 && format->scheme == nullptr; ++k) {
        const float w = whole.weights[n * 37 + k];
        EXPECT_EQ(format == &kF32Weights ? w : NearestBF16(w), a[k]);
      }
    }
    EXPECT_EQ(WeightMatrix::Bytes(150, 37, *format), parts.bytes());
    if (format->scheme != nullptr) continue;
    // The zeros after the last output count.
    EXPECT_EQ(192 * 37 * BytesPerWeight(*format) + 192 * 4, parts.bytes());
  }
}

TEST(WeightMatrixTest, BF16TiesNaNAndInfinity) {
  const auto widen = [](float x) {
    WeightMatrix matrix(1, 1, kBF16Weights);
    matrix.SetRows(0, 1, &x, nullptr);
    float y;
    matrix.ReadRow(0, &y);
    return y;
  };
  EXPECT_EQ(1.0f, widen(1.0f + 0x1p-8f));              // tie, down to even
  EXPECT_EQ(1.0f + 0x1p-6f, widen(1.0f + 0x1.8p-7f));  // tie, up to even
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(infinity, widen(infinity));
  EXPECT_EQ(infinity, widen(std::numeric_limits<float>::max()));
  uint32_t low_payload = 0x7F800001u;
  float nan;
  std::memcpy(&nan, &low_payload, 4);
  EXPECT_TRUE(std::isnan(widen(nan)));
}

TEST(WeightMatrixTest, RefusesWhatDoesNotFit) {
  EXPECT_THROW(WeightMatrix(0, 3, kF32Weights), ShapeError);
  EXPECT_THROW(WeightMatrix(int64_t{1} << 40, int64_t{1} << 40, kF32Weights),
               ShapeError);
  WeightMatrix small(3, 3, kF32Weights);
  const std::vector<float> w(9);
  EXPECT_THROW(small.SetRows(1, 3, w.data(), nullptr), ShapeError);
  EXPECT_THROW(small.SetRows(-1, 1, w.data(), nullptr), ShapeError);
}

}  // namespace
}  // namespace tarn
