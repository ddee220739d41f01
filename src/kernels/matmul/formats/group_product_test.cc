// Products of formats of groups on every SIMD target: bit for bit the
// reference, and the exact twins bit for bit float32 products of the same
// weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/groups/round_group.h"
#include "core/numbers/bit_cast.h"
#include "core/rng.h"
#include "kernels/matmul/formats/byte_dot.h"
#include "kernels/matmul/group_product_ref.h"
#include "kernels/matmul/matmul.h"
#include "kernels/reversed_executor.h"
#include "kernels/simd_target.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Normals(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = static_cast<float>(rng.Normal());
  return values;
}

// Rows of blocks as a file might have them: any codes, scales of both signs.
std::vector<uint8_t> RandomBlocks(const GroupScheme& scheme, int64_t rows,
                                  int64_t inputs, uint64_t seed) {
  Rng rng(seed);
  std::vector<uint8_t> blocks(
      static_cast<size_t>(rows * scheme.RowBytes(inputs)));
  for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(rng.Below(256));
  for (size_t at = 0; at < blocks.size();
       at += static_cast<size_t>(scheme.BlockBytes())) {
    for (int64_t i = 0; i < (scheme.minimum ? 2 : 1); ++i) {
      const uint16_t bits = F32ToF16(static_cast<float>(rng.Normal()) / 16);
      std::memcpy(blocks.data() + at + 2 * i, &bits, 2);
    }
  }
  return blocks;
}

std::vector<float> Widened(const GroupScheme& scheme,
                           const std::vector<uint8_t>& blocks, int64_t rows,
                           int64_t inputs) {
  std::vector<float> values(static_cast<size_t>(rows * inputs));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < inputs; k += scheme.group) {
      DecodeGroup(scheme,
                  blocks.data() + r * scheme.RowBytes(inputs) +
                      k / scheme.group * scheme.BlockBytes(),
                  std::min(scheme.group, inputs - k),
                  values.data() + r * inputs + k);
    }
  }
  return values;
}

void ExpectSameBits(const std::vector<float>& want,
                    const std::vector<float>& got, const std::string& what) {
  ASSERT_EQ(want.size(), got.size());
  if (std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) == 0) {
    return;
  }
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(BitCast<uint32_t>(want[i]), BitCast<uint32_t>(got[i]))
        << what << ": " << i << ": want " << want[i] << ", got " << got[i];
  }
}

struct Problem {
  const WeightFormat& format;
  int64_t rows, outputs, inputs;
  std::vector<uint8_t> blocks;
  std::vector<float> x, bias;
  WeightMatrix held, exact, plain;

  Problem(const WeightFormat& format, int64_t rows, int64_t outputs,
          int64_t inputs)
      : format(format),
        rows(rows),
        outputs(outputs),
        inputs(inputs),
        blocks(RandomBlocks(*format.scheme, outputs, inputs, 11)),
        x(Normals(rows * inputs, 12)),
        bias(Normals(outputs, 13)),
        held(outputs, inputs, format),
        exact(outputs, inputs, ExactFormat(format)),
        plain(outputs, inputs, kF32Weights) {
    for (WeightMatrix* w : {&held, &exact}) {
      w->SetStoredRows(0, outputs, blocks.data());
      w->SetBias(0, outputs, bias.data());
    }
    const std::vector<float> widened =
        Widened(*format.scheme, blocks, outputs, inputs);
    plain.SetRows(0, outputs, widened.data(), bias.data());
  }

  std::vector<float> Reference() const {
    std::vector<float> y(static_cast<size_t>(rows * outputs));
    for (int64_t r = 0; r < rows; ++r) {
      GroupProductRef(*format.scheme, blocks.data(), bias.data(),
                      x.data() + r * inputs, outputs, inputs,
                      y.data() + r * outputs);
    }
    return y;
  }
  std::vector<float> Run(const WeightMatrix& w, Executor& executor,
                         int64_t from = 0, int64_t count = -1) const {
    if (count < 0) count = rows;
    std::vector<float> y(static_cast<size_t>(count * outputs), kNaN);
    PackedMatMul(x.data() + from * inputs, inputs, count, w,
                 {y.data(), outputs}, executor);
    return y;
  }
  // Row by row and panel by panel, as a step runs it.
  std::vector<float> RunSteps(const WeightMatrix& w) const {
    std::vector<float> y(static_cast<size_t>(rows * outputs), kNaN);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t p = 0; p < w.panels(); ++p) {
        PackedRowMatMul({.x = x.data() + r * inputs,
                         .w = &w,
                         .panel_begin = p,
                         .panel_end = p + 1,
                         .y = y.data() + r * outputs,
                         .next = p % 2 == 0 ? x.data() : nullptr});
      }
    }
    return y;
  }
  std::string Text() const {
    return StrCat(format.name, " ", rows, "x", outputs, "x", inputs);
  }
};

// The SIMD target, and whether byte dot products are allowed.
class GroupProductTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string target = GetParam();
    const size_t plain = target.find("_plain");
    AllowByteDot(plain == std::string::npos);
    ForceSimdTarget(target.substr(0, plain));
  }
  void TearDown() override {
    AllowByteDot(true);
    ResetSimdTarget();
  }
  SerialExecutor serial_;
};

std::vector<std::string> Targets() {
  std::vector<std::string> targets = SimdTargets();
  if (HasByteDot()) {
    for (const std::string& target : SimdTargets()) {
      if (target.starts_with("AVX3")) targets.push_back(target + "_plain");
    }
  }
  return targets;
}

TEST_P(GroupProductTest, HasTheBitsOfTheReference) {
  for (const WeightFormat* format : GroupFormats()) {
    for (const auto& [rows, outputs, inputs] :
         std::vector<std::tuple<int, int, int>>{{1, 1, 1},
                                                {2, 3, 7},
                                                {3, 16, 96},
                                                {5, 63, 97},
                                                {6, 65, 33},
                                                {7, 70, 301},
                                                {13, 130, 200},
                                                {1, 64, 512},
                                                {97, 66, 130}}) {
      const Problem p(*format, rows, outputs, inputs);
      const std::vector<float> want = p.Reference();
      ExpectSameBits(want, p.Run(p.held, serial_), p.Text());
      ExpectSameBits(want, p.RunSteps(p.held), p.Text() + " steps");
    }
  }
}

TEST_P(GroupProductTest, EveryWidth) {
  for (const WeightFormat* format : GroupFormats()) {
    for (int64_t inputs = 1; inputs <= 130; ++inputs) {
      const Problem p(*format, 3, 5, inputs);
      const std::vector<float> want = p.Reference();
      ExpectSameBits(want, p.Run(p.held, serial_), p.Text());
      ExpectSameBits(want, p.RunSteps(p.held), p.Text() + " steps");
      ExpectSameBits(p.Run(p.plain, serial_), p.Run(p.exact, serial_),
                     p.Text() + " exact");
    }
  }
}

TEST_P(GroupProductTest, ExactHasTheBitsOfItsWeightsInFloat32) {
  ThreadPool pool(3);
  for (const WeightFormat* format : GroupFormats()) {
    for (const auto& [rows, outputs, inputs] :
         std::vector<std::tuple<int, int, int>>{
             {1, 1, 1}, {2, 65, 33}, {7, 70, 301}, {50, 130, 200}}) {
      const Problem p(*format, rows, outputs, inputs);
      const std::vector<float> want = p.Run(p.plain, serial_);
      ExpectSameBits(want, p.Run(p.exact, serial_), p.Text());
      ExpectSameBits(want, p.Run(p.exact, pool), p.Text());
      ExpectSameBits(want, p.RunSteps(p.exact), p.Text());
    }
  }
}

// More inputs than are rounded at once; also the longest rows of blocks.
TEST_P(GroupProductTest, LongRows) {
  if (GetParam() == "EMU128" || GetParam() == "SCALAR") {
    GTEST_SKIP() << "slow";
  }
  for (const WeightFormat* format :
       {&kInt8Weights128, &kInt4Weights, &kInt4MinimumWeights64}) {
    const Problem p(*format, 2, 66, 16384 * 2 + 33);
    const std::vector<float> want = p.Reference();
    ExpectSameBits(want, p.Run(p.held, serial_), p.Text());
    ExpectSameBits(want, p.RunSteps(p.held), p.Text() + " steps");
  }
}

TEST_P(GroupProductTest, ThreadsAndSplitsGiveTheSameBits) {
  Rng rng(4);
  testing::ReversedExecutor reversed;
  ThreadPool two(2), three(3), eight(8);
  for (const WeightFormat* format :
       {&kInt8Weights, &kInt4Weights, &kInt4MinimumWeights}) {
    const Problem p(*format, 201, 1090, 160);
    const std::vector<float> whole = p.Run(p.held, serial_);
    for (Executor* executor :
         std::vector<Executor*>{&reversed, &two, &three, &eight}) {
      ExpectSameBits(whole, p.Run(p.held, *executor), p.Text());
    }
    for (int trial = 0; trial < 2; ++trial) {
      std::vector<float> y;
      for (int64_t m = 0; m < p.rows;) {
        const int64_t left = p.rows - m;
        const int64_t count =
            1 + static_cast<int64_t>(rng.Below(std::min<int64_t>(left, 120)));
        const std::vector<float> part = p.Run(p.held, two, m, count);
        y.insert(y.end(), part.begin(), part.end());
        m += count;
      }
      ExpectSameBits(whole, y, p.Text() + " in parts");
    }
  }
}

// What no chain of float32 numbers can hide.
TEST_P(GroupProductTest, NaNAndInfinityStayInTheirRow) {
  for (const WeightFormat* format : GroupFormats()) {
    for (const float bad : {kNaN, std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      Problem p(*format, 9, 70, 150);
      const std::vector<float> before = p.Run(p.held, serial_);
      p.x[static_cast<size_t>(3 * p.inputs + 149)] = bad;
      const std::vector<float> y = p.Run(p.held, serial_);
      for (size_t i = 0; i < y.size(); ++i) {
        if (static_cast<int64_t>(i) / p.outputs == 3) {
          EXPECT_TRUE(std::isnan(y[i])) << i;
        } else {
          EXPECT_EQ(before[i], y[i]);
        }
      }
      const std::vector<float> steps = p.RunSteps(p.held);
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(std::isnan(y[i]), std::isnan(steps[i])) << i;
      }
    }
  }
}

// The smallest and the largest inputs, and scales below float16's normal ones.
TEST_P(GroupProductTest, ExtremeNumbers) {
  for (const WeightFormat* format : GroupFormats()) {
    Problem p(*format, 8, 67, 130);
    const float sizes[] = {0,        1e-44f,          0x1p-101f, 0x1p-100f,
                           0x1p-99f, 0x1.fffffep-90f, 1e30f,     3e38f};
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t k = 0; k < p.inputs; ++k) {
        float& x = p.x[static_cast<size_t>(r * p.inputs + k)];
        x = std::clamp(x, -1.0f, 1.0f) * sizes[r];
      }
    }
    for (size_t at = 0; at < p.blocks.size();
         at += 3 * static_cast<size_t>(format->scheme->BlockBytes())) {
      p.blocks[at + 1] = 0x02;  // a subnormal scale
    }
    p.held.SetStoredRows(0, p.outputs, p.blocks.data());
    const std::vector<float> want = p.Reference();
    ExpectSameBits(want, p.Run(p.held, serial_), p.Text());
    ExpectSameBits(want, p.RunSteps(p.held), p.Text());
  }
}

// Strided rows, row pointers and finishes over panels that are not full.
TEST_P(GroupProductTest, FinishesAndRowPointers) {
  for (const WeightFormat* format : GroupFormats()) {
    const Problem p(*format, 7, 70, 65);
    const std::vector<float> product = p.Reference();
    const int64_t x_stride = 71, y_stride = 80;
    std::vector<float> x(static_cast<size_t>(p.rows * x_stride), kNaN);
    std::vector<float> y(static_cast<size_t>(p.rows * y_stride), -7.0f);
    std::vector<float*> rows;
    for (int64_t m = 0; m < p.rows; ++m) {
      std::copy_n(p.x.data() + m * p.inputs, p.inputs, x.data() + m * x_stride);
      rows.push_back(y.data() + (p.rows - 1 - m) * y_stride + 5);
    }
    PackedMatMul(x.data(), x_stride, p.rows, p.held, {.rows = rows.data()},
                 serial_, MatMulFinish::kAdd);
    for (int64_t m = 0; m < p.rows; ++m) {
      const float* row = rows[static_cast<size_t>(m)];
      for (int64_t n = 0; n < p.outputs; ++n) {
        EXPECT_EQ(product[static_cast<size_t>(m * p.outputs + n)] - 7.0f,
                  row[n]);
      }
      EXPECT_EQ(-7.0f, row[-1]);
      EXPECT_EQ(-7.0f, row[p.outputs]);
    }
  }
}

// Rows of several formats in one matrix: each has the bits of a matrix of its
// own, from all calls.
TEST_P(GroupProductTest, MatricesOfSeveralFormats) {
  ThreadPool pool(3);
  const WeightRows parts[] = {{70, &kInt8Weights},
                              {16, &kF32Weights},
                              {64, &kInt4Weights},
                              {3, &kBF16Weights},
                              {130, &ExactFormat(kInt4MinimumWeights)}};
  const int64_t inputs = 100;
  WeightMatrix all(parts, inputs);
  EXPECT_EQ(283, all.outputs());
  EXPECT_EQ(2 + 1 + 1 + 1 + 3, all.panels());
  const std::vector<float> weights = Normals(283 * inputs, 1);
  const std::vector<float> bias = Normals(283, 2);
  all.SetRows(0, 100, weights.data(), bias.data());
  all.SetRows(100, 183, weights.data() + 100 * inputs, nullptr);
  all.SetBias(100, 183, bias.data() + 100);
  int64_t bytes = 0;
  for (const int64_t rows : {1, 2, 50, 400}) {
    const std::vector<float> x = Normals(rows * inputs, 3);
    std::vector<float> want(static_cast<size_t>(rows * 283));
    bytes = 0;
    int64_t first = 0;
    for (const WeightRows& part : parts) {
      WeightMatrix own(part.rows, inputs, *part.format);
      own.SetRows(0, part.rows, weights.data() + first * inputs,
                  bias.data() + first);
      PackedMatMul(x.data(), inputs, rows, own, {want.data() + first, 283},
                   serial_);
      std::vector<float> a(inputs), b(inputs);
      for (int64_t n = 0; n < part.rows; ++n) {
        own.ReadRow(n, a.data());
        all.ReadRow(first + n, b.data());
        EXPECT_EQ(a, b);
      }
      bytes += own.bytes();
      first += part.rows;
    }
    for (Executor* executor : std::vector<Executor*>{&serial_, &pool}) {
      std::vector<float> y(want.size(), kNaN);
      PackedMatMul(x.data(), inputs, rows, all, {y.data(), 283}, *executor);
      ExpectSameBits(want, y, StrCat(rows, " rows"));
    }
    std::vector<float> y(want.size(), kNaN);
    for (int64_t r = 0; r < rows; ++r) {
      for (const auto& [begin, end] :
           std::vector<std::pair<int, int>>{{0, 1}, {1, 5}, {5, 8}}) {
        PackedRowMatMul({.x = x.data() + r * inputs,
                         .w = &all,
                         .panel_begin = begin,
                         .panel_end = end,
                         .y = y.data() + r * 283});
      }
    }
    ExpectSameBits(want, y, StrCat(rows, " rows alone"));
  }
  EXPECT_EQ(bytes, all.bytes());
  for (int64_t p = 0, next = 0; p < all.panels(); ++p) {
    EXPECT_EQ(next, all.FirstOutput(p));
    for (int64_t n = next; n < next + all.Outputs(p); ++n) {
      EXPECT_EQ(p, all.PanelOf(n));
    }
    next += all.Outputs(p);
    if (p + 1 == all.panels()) {
      EXPECT_EQ(283, next);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, GroupProductTest,
                         ::testing::ValuesIn(Targets()));

// Floats are rounded as RoundGroup says; stored blocks are not changed at all.
TEST(GroupFormatTest, HoldsBlocksAsTheyAre) {
  for (const WeightFormat* format : GroupFormats()) {
    const GroupScheme& scheme = *format->scheme;
    for (const int64_t inputs : {1, 31, 32, 100, 129, 256}) {
      const int64_t rows = 70;
      const std::vector<float> weights = Normals(rows * inputs, 5);
      std::vector<uint8_t> blocks(
          static_cast<size_t>(rows * scheme.RowBytes(inputs)));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t g = 0; g < scheme.Blocks(inputs); ++g) {
          const int64_t k = g * scheme.group;
          RoundGroup(weights.data() + r * inputs + k,
                     std::min(scheme.group, inputs - k), scheme,
                     blocks.data() + r * scheme.RowBytes(inputs) +
                         g * scheme.BlockBytes());
        }
      }
      WeightMatrix rounded(rows, inputs, *format);
      WeightMatrix stored(rows, inputs, ExactFormat(*format));
      rounded.SetRows(0, 33, weights.data(), nullptr);
      rounded.SetRows(33, rows - 33, weights.data() + 33 * inputs, nullptr);
      stored.SetStoredRows(0, 20, blocks.data());
      stored.SetStoredRows(20, rows - 20,
                           blocks.data() + 20 * scheme.RowBytes(inputs));
      const std::vector<float> want = Widened(scheme, blocks, rows, inputs);
      std::vector<float> row(static_cast<size_t>(inputs));
      for (const WeightMatrix* w : {&rounded, &stored}) {
        for (int64_t n = 0; n < rows; ++n) {
          w->ReadRow(n, row.data());
          EXPECT_EQ(0, std::memcmp(want.data() + n * inputs, row.data(),
                                   row.size() * sizeof(float)));
        }
      }
      for (int64_t p = 0; p < 2; ++p) {
        EXPECT_EQ(
            0, std::memcmp(rounded.Panel(p), stored.Panel(p),
                           static_cast<size_t>(format->panel_bytes(inputs))));
      }
    }
  }
}

TEST(GroupFormatTest, TableOfFormats) {
  std::set<int> ids = {kF32Weights.id, kBF16Weights.id};
  std::set<std::string> names;
  for (const WeightFormat* format : GroupFormats()) {
    EXPECT_TRUE(ids.insert(format->id).second) << format->name;
    EXPECT_TRUE(ids.insert(format->exact->id).second) << format->name;
    EXPECT_TRUE(names.insert(format->name).second);
    EXPECT_EQ(format, FormatOf(*format->scheme));
    EXPECT_EQ(*format->scheme, *format->exact->scheme);
    EXPECT_EQ(nullptr, format->exact->exact);
    EXPECT_STREQ(format->name, format->exact->name);
    EXPECT_EQ(format->exact, &ExactFormat(*format));
    EXPECT_EQ(format->exact, &ExactFormat(*format->exact));
  }
  EXPECT_EQ(9u, names.size());
  EXPECT_EQ(nullptr, FormatOf({8, 32, true}));
  EXPECT_EQ(&kF32Weights, &ExactFormat(kF32Weights));
  EXPECT_EQ((GroupScheme{8, 64, false}), *kInt8Weights.scheme);
  EXPECT_EQ((GroupScheme{4, 32, false}), *kInt4Weights.scheme);
  EXPECT_EQ(2, kInt8Weights.id);
  EXPECT_EQ(3, kInt4Weights.id);
  EXPECT_EQ(1 + 2.0 / 64, BytesPerWeight(kInt8Weights));
  EXPECT_EQ(0.5 + 2.0 / 32, BytesPerWeight(kInt4Weights));
  EXPECT_EQ(0.5 + 4.0 / 128, BytesPerWeight(kInt4MinimumWeights128));
}

TEST(GroupFormatTest, RefusesStoredRowsThatDoNotFit) {
  const std::vector<uint8_t> blocks(4096);
  WeightMatrix plain(3, 3, kF32Weights);
  EXPECT_THROW(plain.SetStoredRows(0, 1, blocks.data()), ArgumentError);
  const WeightRows parts[] = {{2, &kInt8Weights}, {2, &kInt4Weights}};
  WeightMatrix mixed(parts, 3);
  mixed.SetStoredRows(2, 2, blocks.data());
  EXPECT_THROW(mixed.SetStoredRows(1, 2, blocks.data()), ShapeError);
  EXPECT_THROW(mixed.SetStoredRows(3, 2, blocks.data()), ShapeError);
  EXPECT_THROW(mixed.SetStoredRows(-1, 1, blocks.data()), ShapeError);
  EXPECT_THROW(WeightMatrix(std::span<const WeightRows>(), 3), ShapeError);
  const WeightRows empty[] = {{2, &kInt8Weights}, {0, &kInt4Weights}};
  EXPECT_THROW(WeightMatrix(empty, 3), ShapeError);
}

}  // namespace
}  // namespace tarn
