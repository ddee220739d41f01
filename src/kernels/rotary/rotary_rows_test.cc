// Pairs as complex numbers in double, on every SIMD target.
#include "kernels/rotary/rotary_rows.h"

#include <array>
#include <complex>

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/row_tests.h"

namespace tarn::testing {
namespace {

struct RotaryShape {
  int64_t batch, tokens, heads, width, pairs;
  bool interleaved, by_batch, inverse;
};

struct RotaryTables {
  std::vector<float> cos, sin;
};

RotaryTables TablesOf(const RotaryShape& s) {
  std::mt19937_64 rng(4);
  RotaryTables tables;
  for (double angle :
       Random((s.by_batch ? s.batch : 1) * s.tokens * s.pairs, rng, 3.0)) {
    tables.cos.push_back(static_cast<float>(std::cos(angle)));
    tables.sin.push_back(static_cast<float>(std::sin(angle)));
  }
  return tables;
}

std::vector<double> RunRotary(const RotaryShape& s, DType dtype, bool spread,
                              bool in_place, const std::vector<double>& values,
                              Executor& executor) {
  const RotaryTables tables = TablesOf(s);
  GuardedTensor x(s.batch, s.tokens, s.heads, s.width, dtype, spread);
  const GuardedTensor other(s.batch, s.tokens, s.heads, s.width, dtype, false);
  const int64_t part = s.tokens * s.heads * s.width;
  for (int64_t b = 0; b < s.batch; ++b) {
    x.Fill(b, 0, {values.begin() + b * part, values.begin() + (b + 1) * part});
  }
  RotaryRowsCall call;
  call.x = x.view();
  call.cos = tables.cos.data();
  call.sin = tables.sin.data();
  call.pairs = s.pairs;
  call.by_batch = s.by_batch;
  call.interleaved = s.interleaved;
  call.inverse = s.inverse;
  const GuardedTensor& out = in_place ? x : other;
  RotateRows(call, out.view(), executor);
  EXPECT_TRUE(out.GuardsIntact());
  std::vector<double> found;
  for (int64_t b = 0; b < s.batch; ++b) {
    const std::vector<double> row = out.Read(b, 0, s.tokens);
    found.insert(found.end(), row.begin(), row.end());
  }
  return found;
}

std::vector<double> WantedRotary(const RotaryShape& s,
                                 const std::vector<double>& x) {
  const RotaryTables tables = TablesOf(s);
  std::vector<double> y = x;
  for (int64_t row = 0; row < s.batch * s.tokens * s.heads; ++row) {
    const int64_t token = row / s.heads;
    const int64_t place = (s.by_batch ? token : token % s.tokens) * s.pairs;
    for (int64_t i = 0; i < s.pairs; ++i) {
      const int64_t a = row * s.width + (s.interleaved ? 2 * i : i);
      const int64_t b = a + (s.interleaved ? 1 : s.pairs);
      std::complex<double> turn(tables.cos[place + i], tables.sin[place + i]);
      if (s.inverse) turn = std::conj(turn);
      const std::complex<double> pair = std::complex(x[a], x[b]) * turn;
      y[a] = pair.real();
      y[b] = pair.imag();
    }
  }
  return y;
}

std::vector<RotaryShape> RotaryShapes() {
  std::vector<RotaryShape> shapes;
  for (const auto& [batch, tokens, heads, width, pairs] :
       {std::array<int64_t, 5>{1, 1, 1, 2, 1},
        {2, 3, 2, 7, 3},
        {2, 3, 1, 9, 2},
        {1, 5, 3, 32, 16},
        {2, 2, 2, 70, 33},
        {1, 300, 2, 40, 20},
        {2, 0, 2, 4, 2},
        {0, 3, 1, 4, 2},
        {1, 2, 2, 5, 0}}) {
    for (int form = 0; form < 8; ++form) {
      shapes.push_back({batch, tokens, heads, width, pairs, (form & 1) != 0,
                        (form & 2) != 0, (form & 4) != 0});
    }
  }
  return shapes;
}

class RotaryRowsTest : public SimdTargetTest {};

TEST_P(RotaryRowsTest, TurnsPairsAsComplexNumbers) {
  SerialExecutor serial;
  for (const RotaryShape& s : RotaryShapes()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      std::mt19937_64 rng(1);
      const std::vector<double> x =
          RandomOf(dtype, s.batch * s.tokens * s.heads * s.width, rng);
      const std::vector<double> wanted = WantedRotary(s, x);
      for (const bool spread : {false, true}) {
        for (const bool in_place : {false, true}) {
          const std::vector<double> got =
              RunRotary(s, dtype, spread, in_place, x, serial);
          ExpectRounded(got, wanted, dtype, 1e-6, StrCat("width ", s.width));
        }
      }
    }
  }
}

TEST_P(RotaryRowsTest, ThreadsChangeNoBit) {
  SerialExecutor serial;
  const RotaryShape s = {2, 700, 3, 37, 17, true, false, false};
  std::mt19937_64 rng(1);
  const std::vector<double> x = Random(2 * 700 * 3 * 37, rng);
  const auto one = RunRotary(s, DType::kF32, false, false, x, serial);
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(one, RunRotary(s, DType::kF32, true, false, x, pool));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RotaryRowsTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(RotaryRowsArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float data[4] = {1, 2, 3, 4};
  RotaryRowsCall call;
  call.x = TensorView::Dense(data, 1, 1, 1, 4);
  call.cos = call.sin = data;
  call.pairs = 2;
  const auto message = [&](const RotaryRowsCall& c, const TensorView& out) {
    try {
      RotateRows(c, out, executor);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  RotaryRowsCall bad = call;
  bad.pairs = 3;
  EXPECT_EQ("rotary_rows: cos, sin: want at most 2 columns, got 3",
            message(bad, call.x));
  bad = call;
  bad.sin = nullptr;
  EXPECT_EQ("rotary_rows: sin: want data, got a null pointer",
            message(bad, call.x));
  EXPECT_EQ("rotary_rows: out: want [1, 1, 1, 4], got [1, 1, 2, 2]",
            message(call, TensorView::Dense(data, 1, 1, 2, 2)));
  EXPECT_EQ("rotary_rows: out: want F32, got F16",
            message(call, TensorView::Dense(data, 1, 1, 1, 4, DType::kF16)));
  EXPECT_EQ(2.0f, data[1]);
}

}  // namespace
}  // namespace tarn::testing
