// Both passes against the double reference, on every SIMD target.
#include "kernels/unit_norm/unit_norm.h"

#include <cstring>

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/row_tests.h"
#include "kernels/test_vectors.h"
#include "kernels/unit_norm/unit_norm_ref.h"

namespace tarn::testing {
namespace {

constexpr double kUnitNormEps = 1e-6f;

struct UnitShape {
  int64_t rows, heads, width;
  DType dtype;
  int64_t count() const { return rows * heads * width; }
};

struct UnitOutcome {
  std::vector<double> y, grad_x;
  bool operator==(const UnitOutcome&) const = default;
};

UnitOutcome RunUnitNorm(const std::vector<double>& x,
                        const std::vector<double>& flow, const UnitShape& s,
                        Executor& executor, bool spread) {
  const int64_t width = s.heads * s.width;
  const auto tensor = [&](const std::vector<double>& values, bool apart) {
    GuardedTensor made(1, s.rows, 1, width, s.dtype, apart);
    made.Fill(0, 0, values);
    return made;
  };
  const GuardedTensor given = tensor(x, spread), dy = tensor(flow, false),
                      y = tensor({}, false), dx = tensor({}, false);
  const UnitNormCall call = {s.dtype,
                             s.rows,
                             s.heads,
                             s.width,
                             given.view().data,
                             given.view().stride[1],
                             1e-6f};
  UnitNormForward(call, y.view().data, executor);
  UnitNormBackward(call, dy.view().data, dx.view().data, executor);
  EXPECT_TRUE(y.GuardsIntact() && dx.GuardsIntact());
  return {y.Read(0, 0, s.rows), dx.Read(0, 0, s.rows)};
}

void CheckUnitNorm(const UnitShape& s, double size, bool spread) {
  std::mt19937_64 rng(s.rows + 10 * s.heads + 100 * s.width);
  std::vector<double> x = RandomOf(s.dtype, s.count(), rng, size);
  // The first row is of zeros, which stay.
  for (int64_t i = 0; i < s.width && s.rows > 1; ++i) x[i] = 0;
  std::vector<double> flow = RandomOf(s.dtype, s.count(), rng);
  for (int64_t i = 0; i < s.width && s.rows > 1; ++i) flow[i] = 0;
  SerialExecutor serial;
  const UnitOutcome got = RunUnitNorm(x, flow, s, serial, spread);
  const std::vector<double> y = reference::UnitNorm(x, s.width, kUnitNormEps);
  const std::vector<double> dx =
      reference::UnitNormBackward(x, flow, s.width, kUnitNormEps);
  ExpectRounded(got.y, y, s.dtype, 1e-6, "y");
  // What is along x cancels in a row's gradient, all of it where width is 1:
  // errors are those of its two terms.
  for (size_t begin = 0; begin < dx.size(); begin += s.width) {
    double squares = kUnitNormEps, most = 0;
    for (size_t i = begin; i < begin + s.width; ++i) {
      squares += x[i] * x[i];
      most = std::max(most, std::abs(flow[i]));
    }
    const auto row = [&](const std::vector<double>& all) {
      return std::vector<double>(all.begin() + begin,
                                 all.begin() + begin + s.width);
    };
    ExpectRounded(row(got.grad_x), row(dx), s.dtype,
                  2e-6 * most / std::sqrt(squares), "grad_x");
  }
}

TEST(UnitNormReference, AgreesWithFiniteDifferences) {
  std::mt19937_64 rng(1);
  std::vector<double> x = Random(15, rng);
  const std::vector<double> flow = Random(15, rng);
  const std::vector<double> dx = reference::UnitNormBackward(x, flow, 5, 0.1);
  ExpectSlopes([&] { return Dot(reference::UnitNorm(x, 5, 0.1), flow); }, x,
               dx);
}

class UnitNormTest : public SimdTargetTest {};

TEST_P(UnitNormTest, MatchesTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t width : {1, 3, 16, 17, 64, 100}) {
      for (const int64_t rows : {0, 1, 5}) {
        CheckUnitNorm({rows, 1, width, dtype}, 1, false);
        CheckUnitNorm({rows, 3, width, dtype}, 1, true);
      }
    }
    CheckUnitNorm({700, 2, 37, dtype}, 1, true);
  }
  CheckUnitNorm({5, 2, 64, DType::kF32}, 1e-5, false);  // eps is most of it
  CheckUnitNorm({5, 2, 64, DType::kF32}, 1e6, false);
}

TEST_P(UnitNormTest, ThreadsChangeNoBit) {
  const UnitShape s = {900, 2, 37, DType::kF32};
  std::mt19937_64 rng(5);
  const std::vector<double> x = Random(s.count(), rng),
                            flow = Random(s.count(), rng);
  SerialExecutor serial;
  ExpectSameBits(RunUnitNorm(x, flow, s, serial, false),
                 [&](Executor& executor, bool spread) {
                   return RunUnitNorm(x, flow, s, executor, spread);
                 });
}

// The runtime's function has the bits of the pass, and of a head by itself.
TEST_P(UnitNormTest, OneRowInPlace) {
  for (const int64_t width : {1, 2, 7, 16, 33, 128}) {
    constexpr int64_t kHeads = 5;
    std::vector<float> x = Normals(kHeads * width, 6), passed(x.size());
    std::vector<float> y = x;
    y.push_back(77.0f);
    UnitRow(kHeads, width, 1e-6f, y.data());
    EXPECT_EQ(77.0f, y.back());
    SerialExecutor serial;
    UnitNormForward({DType::kF32, kHeads, 1, width, x.data(), width, 1e-6f},
                    passed.data(), serial);
    EXPECT_EQ(0, std::memcmp(passed.data(), y.data(), x.size() * 4));
  }
}

TEST_P(UnitNormTest, NaNStaysInItsHead) {
  const UnitShape s = {3, 2, 19, DType::kF32};
  std::vector<double> x(s.count(), 0.5);
  const std::vector<double> flow(s.count(), 1.0);
  SerialExecutor serial;
  const UnitOutcome clean = RunUnitNorm(x, flow, s, serial, false);
  x[40] = std::nan("");
  const UnitOutcome run = RunUnitNorm(x, flow, s, serial, false);
  for (int64_t i = 0; i < s.count(); ++i) {
    if (i / 19 == 2) {
      EXPECT_TRUE(std::isnan(run.y[i]) && std::isnan(run.grad_x[i]));
    } else {
      EXPECT_EQ(clean.y[i], run.y[i]);
      EXPECT_EQ(clean.grad_x[i], run.grad_x[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, UnitNormTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(UnitNormArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  const UnitNormCall call = {DType::kF32, 1, 1, 1, &x, 1, 1e-6f};
  const auto where = [&](const UnitNormCall& given, void* out) {
    return ErrorOf([&] { UnitNormForward(given, out, executor); }).where();
  };
  UnitNormCall bad = call;
  bad.width = -1;
  EXPECT_EQ("unit_norm: x", where(bad, &y));
  bad = call;
  bad.x = nullptr;
  EXPECT_EQ("unit_norm: x", where(bad, &y));
  EXPECT_EQ("unit_norm: y", where(call, nullptr));
  EXPECT_EQ(
      "unit_norm: grad_x",
      ErrorOf([&] { UnitNormBackward(call, &x, nullptr, executor); }).where());
  EXPECT_EQ(5.0f, y);
}

}  // namespace
}  // namespace tarn::testing
