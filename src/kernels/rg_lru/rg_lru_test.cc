// Both passes against the double reference on every SIMD target, values over
// all sizes of numbers, and the arguments.
#include "kernels/rg_lru/rg_lru.h"

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/gate_rows/row_checks.h"
#include "kernels/rg_lru/rg_lru_ref.h"
#include "kernels/row_tests.h"

namespace tarn::testing {
namespace {

using Problem = reference::RgLruProblem;

class RgLruTest : public SimdTargetTest {};

std::vector<float> FloatsOf(const std::vector<double>& x) {
  return std::vector<float>(x.begin(), x.end());
}

// Every third row begins a sequence and every fifth one is not kept, of
// several.
Problem MakeLru(int64_t rows, int64_t count, DType dtype, bool marked) {
  std::mt19937_64 rng(rows + 10 * count);
  Problem p;
  p.x = RandomOf(dtype, rows * count, rng);
  p.p_i = RandomOf(dtype, rows * count, rng, 2);
  p.p_r = RandomOf(dtype, rows * count, rng, 2);
  p.Lambda = RandomOf(DType::kF32, count, rng, 2);
  p.b_i = RandomOf(DType::kF32, count, rng);
  p.b_r = RandomOf(DType::kF32, count, rng);
  for (int64_t row = 0; marked && row < rows; ++row) {
    p.begins.push_back(row % 3 == 0);
    p.kept.push_back(row % 5 != 1);
  }
  return p;
}

struct LruOutcome {
  std::vector<float> inputs, gates, Lambda, b_i, b_r;
  std::vector<double> x, p_i, p_r;
  bool operator==(const LruOutcome&) const = default;
};

// In rows apart (spread) or dense; results begin as NaN, as do the rows that
// are not kept.
LruOutcome RunLru(const Problem& p, const std::vector<double>& dy,
                  const std::vector<double>& dg, DType dtype,
                  Executor& executor, bool spread) {
  const int64_t count = static_cast<int64_t>(p.Lambda.size());
  const int64_t rows = static_cast<int64_t>(p.x.size()) / count;
  const auto tensor = [&](std::vector<double> values, bool apart) {
    GuardedTensor x(1, rows, 1, count, dtype, apart);
    for (size_t n = 0; n < values.size() && !p.kept.empty(); ++n) {
      if (!p.kept[n / p.Lambda.size()]) values[n] = NAN;
    }
    x.Fill(0, 0, values);
    return x;
  };
  const GuardedTensor x = tensor(p.x, spread), p_i = tensor(p.p_i, false),
                      p_r = tensor(p.p_r, spread), d_x = tensor({}, false),
                      d_i = tensor({}, false), d_r = tensor({}, false);
  const std::vector<float> Lambda = FloatsOf(p.Lambda), b_i = FloatsOf(p.b_i),
                           b_r = FloatsOf(p.b_r), flow_y = FloatsOf(dy),
                           flow_g = FloatsOf(dg);
  std::vector<float> rates(count, kRowNaN);
  RgLruRates(Lambda.data(), count, rates.data());
  const std::unique_ptr<bool[]> begins(new bool[rows + 1]()),
      kept(new bool[rows + 1]());
  for (int64_t row = 0; row < rows && !p.begins.empty(); ++row) {
    begins[row] = p.begins[row];
    kept[row] = p.kept[row];
  }
  RgLruCall call;
  call.channels = {count, rates.data(), b_i.data(), b_r.data(),
                   static_cast<float>(p.most_slope)};
  call.dtype = dtype;
  call.rows = rows;
  call.x = x.view().data;
  call.input_gates = p_i.view().data;
  call.recurrence_gates = p_r.view().data;
  call.x_stride = x.view().stride[1];
  call.input_stride = p_i.view().stride[1];
  call.recurrence_stride = p_r.view().stride[1];
  if (!p.begins.empty()) {
    call.begins = begins.get();
    call.kept = kept.get();
  }
  LruOutcome found;
  for (auto* numbers : {&found.inputs, &found.gates}) {
    numbers->assign(rows * count, kRowNaN);
  }
  for (auto* numbers : {&found.Lambda, &found.b_i, &found.b_r}) {
    numbers->assign(count, kRowNaN);
  }
  RgLruGatesForward(call, found.inputs.data(), found.gates.data(), executor);
  const Workspace workspace = MakeWorkspace(RgLruGradientBytes(call));
  RgLruGatesBackward(call,
                     {flow_y.data(), flow_g.data(), d_x.view().data,
                      d_i.view().data, d_r.view().data, found.Lambda.data(),
                      found.b_i.data(), found.b_r.data()},
                     executor, workspace.get());
  RgLruRatesBackward(Lambda.data(), found.Lambda.data(), count,
                     found.Lambda.data());
  EXPECT_TRUE(d_x.GuardsIntact() && d_i.GuardsIntact() && d_r.GuardsIntact());
  found.x = d_x.Read(0, 0, rows);
  found.p_i = d_i.Read(0, 0, rows);
  found.p_r = d_r.Read(0, 0, rows);
  return found;
}

void CheckLru(int64_t rows, int64_t count, DType dtype, bool marked,
              double most_slope = INFINITY) {
  Problem p = MakeLru(rows, count, dtype, marked);
  p.most_slope = most_slope;
  std::mt19937_64 rng(7);
  const std::vector<double> dy = RandomOf(DType::kF32, rows * count, rng);
  const std::vector<double> dg = RandomOf(DType::kF32, rows * count, rng);
  SerialExecutor serial;
  const LruOutcome got = RunLru(p, dy, dg, dtype, serial, rows == 5);
  const reference::RgLruResult wanted = reference::RgLruGates(p);
  const Problem d = reference::RgLruGatesBackward(p, dy, dg);
  const auto near = [&](const auto& x, const std::vector<double>& right,
                        DType type, const char* what) {
    const std::vector<double> numbers(x.begin(), x.end());
    const double size = Rms(right.data(), static_cast<int64_t>(right.size()));
    ExpectRounded(numbers, right, type, 3e-6 * (1 + size), what);
  };
  near(got.inputs, wanted.inputs, DType::kF32, "inputs");
  for (int64_t n = 0; n < rows * count; ++n) {  // infinities among them
    if (wanted.gates[n] == got.gates[n]) continue;
    ASSERT_NEAR(wanted.gates[n], got.gates[n],
                3e-6 * (1 + std::fabs(wanted.gates[n])));
  }
  near(got.x, d.x, dtype, "x");
  near(got.p_i, d.p_i, dtype, "input gates");
  near(got.p_r, d.p_r, dtype, "recurrence gates");
  near(got.Lambda, d.Lambda, DType::kF32, "Lambda");
  near(got.b_i, d.b_i, DType::kF32, "input bias");
  near(got.b_r, d.b_r, DType::kF32, "recurrence bias");
}

TEST(RgLruReference, AgreesWithFiniteDifferences) {
  Problem p = MakeLru(6, 5, DType::kF32, true);
  std::mt19937_64 rng(1);
  const std::vector<double> dy = Random(30, rng), dg = Random(30, rng);
  const Problem d = reference::RgLruGatesBackward(p, dy, dg);
  const auto value = [&] {
    const reference::RgLruResult found = reference::RgLruGates(p);
    double sum = Dot(found.inputs, dy);
    for (size_t n = 0; n < dg.size(); ++n) {
      if (std::isfinite(found.gates[n])) sum += found.gates[n] * dg[n];
    }
    return sum;
  };
  ExpectSlopes(value, p.x, d.x);
  ExpectSlopes(value, p.p_i, d.p_i);
  ExpectSlopes(value, p.p_r, d.p_r, 1e-6);
  ExpectSlopes(value, p.Lambda, d.Lambda, 1e-6);
  ExpectSlopes(value, p.b_i, d.b_i);
  ExpectSlopes(value, p.b_r, d.b_r, 1e-6);
}

TEST_P(RgLruTest, MatchesTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t count : {1, 3, 17, 64, 300}) {
      for (const int64_t rows : {0, 1, 5}) {
        CheckLru(rows, count, dtype, false);
        CheckLru(rows, count, dtype, true);
      }
    }
    CheckLru(900, 37, dtype, true);
    CheckLru(5, 37, dtype, true, 0.75);  // less than half of the slopes
  }
}

// Gates and roots of one channel over all sizes of p_r: the root of 1 - a^2
// where a is near 1 too.
TEST_P(RgLruTest, RowsOfAllSizes) {
  for (const float Lambda : {-30.0f, -4.0f, 0.5f, 20.0f}) {
    const auto results = [=](bool gates) {
      return [=](const float* x, int64_t n, float* y) {
        std::vector<float> rates(n, Lambda), ones(n, 1.0f), large(n, 40.0f),
            other(n);
        RgLruRates(rates.data(), n, rates.data());
        RgLruGatesRow({n, rates.data()}, false, ones.data(), large.data(), x,
                      gates ? other.data() : y, gates ? y : other.data());
      };
    };
    const auto gate = [=](double x) {
      const double soft = Lambda > 0 ? Lambda + std::log1p(std::exp(-Lambda))
                                     : std::log1p(std::exp(double{Lambda}));
      return -8 * soft * (x > -87 ? 1 / (1 + std::exp(-x)) : 0);
    };
    ExpectRow("gate", results(true), gate);
    ExpectRow("root", results(false), [=](double x) {
      return std::sqrt(std::fmax(-std::expm1(2 * gate(x)), 1e-30));
    });
  }
}

TEST_P(RgLruTest, ThreadsChangeNoBit) {
  const Problem p = MakeLru(900, 74, DType::kF32, true);
  std::mt19937_64 rng(5);
  const std::vector<double> dy = Random(900 * 74, rng);
  SerialExecutor serial;
  ExpectSameBits(RunLru(p, dy, dy, DType::kF32, serial, false),
                 [&](Executor& executor, bool spread) {
                   return RunLru(p, dy, dy, DType::kF32, executor, spread);
                 });
}

// A row of a call has the bits of the row alone, in place too.
TEST_P(RgLruTest, ARowHasTheBitsOfTheCall) {
  const Problem p = MakeLru(1, 37, DType::kF32, false);
  const std::vector<double> none(37);
  SerialExecutor serial;
  const LruOutcome found = RunLru(p, none, none, DType::kF32, serial, false);
  std::vector<float> rates = FloatsOf(p.Lambda), x = FloatsOf(p.x),
                     p_i = FloatsOf(p.p_i), p_r = FloatsOf(p.p_r);
  const std::vector<float> b_i = FloatsOf(p.b_i), b_r = FloatsOf(p.b_r);
  RgLruRates(rates.data(), 37, rates.data());
  RgLruGatesRow({37, rates.data(), b_i.data(), b_r.data()}, false, x.data(),
                p_i.data(), p_r.data(), p_i.data(), p_r.data());
  EXPECT_EQ(found.inputs, p_i);
  EXPECT_EQ(found.gates, p_r);
}

// Where the gates are closed, the root is 0 and its slope would be infinite.
TEST_P(RgLruTest, GradientsAtTheEndsAreNumbers) {
  Problem p = MakeLru(1, 6, DType::kF32, false);
  p.p_r = {-1e30, 1e30, -200, 200, -INFINITY, 0};
  p.p_i = {1e30, -1e30, INFINITY, -INFINITY, 5, -200};
  p.Lambda = {-200, 200, -INFINITY, 0, 1, -1e30};
  p.x.assign(6, 1.0);
  const std::vector<double> ones(6, 1.0);
  SerialExecutor serial;
  const LruOutcome found = RunLru(p, ones, ones, DType::kF32, serial, false);
  for (const auto* numbers : {&found.x, &found.p_i, &found.p_r}) {
    for (const double v : *numbers) EXPECT_TRUE(std::isfinite(v));
  }
  for (const float v : found.Lambda) EXPECT_TRUE(std::isfinite(v));
}

INSTANTIATE_TEST_SUITE_P(Targets, RgLruTest, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(RgLruArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  RgLruCall call;
  call.channels = {1, &x};
  call.rows = 1;
  call.x = call.input_gates = call.recurrence_gates = &x;
  const auto where = [&](const RgLruCall& given, float* to) {
    return ErrorOf([&] { RgLruGatesForward(given, to, &y, executor); }).where();
  };
  RgLruCall bad = call;
  bad.rows = -1;
  EXPECT_EQ("rg_lru: inputs", where(bad, &y));
  bad = call;
  bad.x = nullptr;
  EXPECT_EQ("rg_lru: inputs", where(bad, &y));
  bad = call;
  bad.input_gates = nullptr;
  EXPECT_EQ("rg_lru: input_gates", where(bad, &y));
  bad = call;
  bad.recurrence_gates = nullptr;
  EXPECT_EQ("rg_lru: recurrence_gates", where(bad, &y));
  bad = call;
  bad.channels.rates = nullptr;
  EXPECT_EQ("rg_lru: rates", where(bad, &y));
  bad = call;
  bad.channels.most_slope = 0;
  EXPECT_EQ("rg_lru: most_slope", where(bad, &y));
  EXPECT_EQ("rg_lru: gated inputs", where(call, nullptr));
  EXPECT_EQ("rg_lru: grad_x", ErrorOf([&] {
                                RgLruGatesBackward(call, {}, executor, nullptr);
                              }).where());
  EXPECT_EQ(5.0f, y);
}

}  // namespace
}  // namespace tarn::testing
