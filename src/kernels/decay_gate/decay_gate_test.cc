// Values of one row over all sizes of numbers, both passes against the double
// reference on every SIMD target, and the arguments.
#include "kernels/decay_gate/decay_gate.h"

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/decay_gate/decay_gate_ref.h"
#include "kernels/decay_gate/depth_bounds.h"
#include "kernels/gate_rows/row_checks.h"
#include "kernels/row_tests.h"

namespace tarn::testing {
namespace {

using Problem = reference::DecayGateProblem;

constexpr GateForm kGateForms[] = {GateForm::kSoftplus, GateForm::kLogSigmoid,
                                   GateForm::kBounded, GateForm::kExponential,
                                   GateForm::kSigmoid};

class DecayGateTest : public SimdTargetTest {};

// The row function with one rate and one bias for all entries; `second`: its
// second result.
RowFunction GatesOf(GateForm form, float scale, float bias, float rate,
                    bool second = false) {
  return [=](const float* x, int64_t n, float* y) {
    const std::vector<float> biases(n, bias), rates(n, rate);
    std::vector<float> other(n, kRowNaN), in(x, x + n);
    const GateRow gate = {
        form, n, rate == 1 ? nullptr : rates.data(),
        bias == 0 && form != GateForm::kBounded ? nullptr : biases.data(),
        scale};
    if (second) return DecayGateRow(gate, in.data(), other.data(), y);
    // In place, as the runtime does it.
    if (x != y) std::copy(in.begin(), in.end(), y);
    DecayGateRow(gate, y, y, HasSecond(form) ? other.data() : nullptr);
  };
}

// u = x + bias is rounded to float32 by the kernel.
RowReference ReferenceOf(GateForm form, float scale, float bias, float rate,
                         bool second = false) {
  return [=](double x) {
    const bool bounded = form == GateForm::kBounded;
    const float u = static_cast<float>(x) + bias;
    Problem p = {form,
                 scale,
                 {bounded ? x : static_cast<double>(u)},
                 {bounded ? static_cast<double>(bias) : 0.0},
                 {}};
    if (rate == 0) return 0.0;
    if (form == GateForm::kSigmoid) p.x[0] = rate * u;
    if (form == GateForm::kSoftplus) p.log_rates = {std::log(rate)};
    const reference::DecayGateResult found = reference::DecayGate(p);
    return second ? found.second[0] : found.gates[0];
  };
}

TEST_P(DecayGateTest, RowsOfAllSizes) {
  const auto check = [](GateForm form, float scale, float bias, float rate) {
    ExpectRow("gate", GatesOf(form, scale, bias, rate),
              ReferenceOf(form, scale, bias, rate));
    if (HasSecond(form) && rate != 0) {
      ExpectRow("second", GatesOf(form, scale, bias, rate, true),
                ReferenceOf(form, scale, bias, rate, true));
    }
  };
  for (const float bias : {0.0f, -1.5f, 0.75f}) {
    for (const float rate : {0.0f, 0.3f, 1.0f, 16.0f}) {
      check(GateForm::kSoftplus, 1, bias, rate);
    }
    check(GateForm::kLogSigmoid, 1.0f / 16, bias, 1);
    check(GateForm::kExponential, 1, bias, 1);
    check(GateForm::kSigmoid, 0.60653066f, bias, 1);
    check(GateForm::kSigmoid, 5, bias, 0.25f);
  }
  for (const float l : {0.0f, 0.5f, 0.97f}) check(GateForm::kBounded, 1, l, 1);
}

// A bound whose logarithm of f takes a separate form: near 0 and near 1.
TEST_P(DecayGateTest, BoundsNearTheEnds) {
  for (const float l : {0.01f, 0.99999994f}) {
    const double rest = 1 - static_cast<double>(l);
    ExpectRow("bounded", GatesOf(GateForm::kBounded, 1, l, 1), [=](double x) {
      const double key = rest / (1 + std::exp(x));
      return key < 0.5 ? std::log1p(-key)
                       : std::log(l + rest / (1 + std::exp(-x)));
    });
  }
}

Problem MakeGates(GateForm form, int64_t rows, int64_t count, DType dtype,
                  bool rates) {
  std::mt19937_64 rng(rows + 10 * count);
  Problem p;
  p.form = form;
  p.scale = 0.75;
  p.x = RandomOf(dtype, rows * count, rng, 2);
  p.bias = RandomOf(DType::kF32, count, rng);
  if (form == GateForm::kBounded) {
    for (double& l : p.bias) l = Round(1 / (1 + std::exp(l)), DType::kF32);
    p.bias[0] = 0;
  }
  if (rates) p.log_rates = RandomOf(DType::kF32, count, rng);
  return p;
}

struct GateOutcome {
  std::vector<float> gates, bias, rates;
  std::vector<double> second, x;
  bool operator==(const GateOutcome&) const = default;
};

// In rows apart (spread) or dense; results begin as NaN.
GateOutcome RunGates(const Problem& p, const std::vector<double>& dg,
                     const std::vector<double>& ds, DType dtype,
                     Executor& executor, bool spread) {
  const int64_t count = static_cast<int64_t>(p.bias.size());
  const int64_t rows = static_cast<int64_t>(p.x.size()) / count;
  const DType second_type = p.form == GateForm::kBounded ? dtype : DType::kF32;
  const auto tensor = [&](const std::vector<double>& values, DType type,
                          bool apart) {
    GuardedTensor x(1, rows, 1, count, type, apart);
    x.Fill(0, 0, values);
    return x;
  };
  const GuardedTensor x = tensor(p.x, dtype, spread),
                      second = tensor({}, second_type, false),
                      d_second = tensor(ds, second_type, false),
                      d_x = tensor({}, dtype, false);
  const std::vector<float> bias(p.bias.begin(), p.bias.end());
  std::vector<float> rates(count, kRowNaN);
  for (size_t i = 0; i < p.log_rates.size(); ++i) {
    rates[i] = static_cast<float>(std::exp(p.log_rates[i]));
  }
  const std::vector<float> flow(dg.begin(), dg.end());
  DecayGateCall call;
  call.gate = {p.form,
               count,
               p.log_rates.empty() ? nullptr : rates.data(),
               bias.data(),
               static_cast<float>(p.scale),
               static_cast<float>(p.least),
               static_cast<float>(p.most)};
  call.dtype = dtype;
  call.rows = rows;
  call.x = x.view().data;
  call.stride = x.view().stride[1];
  GateOutcome found;
  found.gates.assign(rows * count, kRowNaN);
  found.bias.assign(count, kRowNaN);
  found.rates.assign(count, kRowNaN);
  const bool two = HasSecond(p.form);
  DecayGateForward(call, found.gates.data(), two ? second.view().data : nullptr,
                   executor);
  const Workspace workspace = MakeWorkspace(DecayGateGradientBytes(call));
  DecayGateBackward(
      call,
      {flow.data(), two ? d_second.view().data : nullptr, d_x.view().data,
       found.bias.data(), TakesRates(p.form) ? found.rates.data() : nullptr},
      executor, workspace.get());
  EXPECT_TRUE(second.GuardsIntact() && d_x.GuardsIntact());
  if (two) found.second = second.Read(0, 0, rows);
  found.x = d_x.Read(0, 0, rows);
  if (!TakesRates(p.form) || p.log_rates.empty()) found.rates.clear();
  return found;
}

void CheckGates(GateForm form, int64_t rows, int64_t count, DType dtype,
                bool rates, bool spread, double least = 0,
                double most = INFINITY) {
  Problem p = MakeGates(form, rows, count, dtype, rates);
  p.least = least;
  p.most = most;
  std::mt19937_64 rng(7);
  const std::vector<double> dg = RandomOf(DType::kF32, rows * count, rng);
  const std::vector<double> ds = RandomOf(
      form == GateForm::kBounded ? dtype : DType::kF32, rows * count, rng);
  SerialExecutor serial;
  const GateOutcome got = RunGates(p, dg, ds, dtype, serial, spread);
  const reference::DecayGateResult wanted = reference::DecayGate(p);
  const Problem d = reference::DecayGateBackward(
      p, dg, HasSecond(form) ? ds : std::vector<double>());
  const auto near = [&](const auto& x, const std::vector<double>& right,
                        DType type, const char* what) {
    const std::vector<double> numbers(x.begin(), x.end());
    const double size = Rms(right.data(), static_cast<int64_t>(right.size()));
    ExpectRounded(numbers, right, type, 3e-6 * (1 + size), what);
  };
  near(got.gates, wanted.gates, DType::kF32, "gates");
  near(got.second, wanted.second,
       form == GateForm::kBounded ? dtype : DType::kF32, "second");
  near(got.x, d.x, dtype, "x");
  near(got.bias, d.bias, DType::kF32, "bias");
  if (TakesRates(form)) near(got.rates, d.log_rates, DType::kF32, "rates");
}

TEST(DecayGateReference, AgreesWithFiniteDifferences) {
  for (const GateForm form : kGateForms) {
    Problem p = MakeGates(form, 3, 5, DType::kF32, TakesRates(form));
    if (form == GateForm::kBounded) p.bias[0] = 0.25;  // no form for below 0
    std::mt19937_64 rng(1);
    const std::vector<double> dg = Random(15, rng);
    const std::vector<double> ds =
        HasSecond(form) ? Random(15, rng) : std::vector<double>();
    if (form == GateForm::kSoftplus) p.least = 0.5, p.most = 1.5;
    const Problem d = reference::DecayGateBackward(p, dg, ds);
    const auto value = [&] {
      const reference::DecayGateResult found = reference::DecayGate(p);
      return Dot(found.gates, dg) + Dot(found.second, ds);
    };
    // exp(u) of some entries is hundreds.
    ExpectSlopes(value, p.x, d.x, 1e-6);
    ExpectSlopes(value, p.bias, d.bias, 1e-6);
    ExpectSlopes(value, p.log_rates, d.log_rates);
  }
}

TEST_P(DecayGateTest, MatchesTheReference) {
  for (const GateForm form : kGateForms) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t count : {1, 3, 17, 64, 300}) {
        for (const int64_t rows : {0, 1, 5}) {
          CheckGates(form, rows, count, dtype, TakesRates(form), rows == 5);
        }
      }
      CheckGates(form, 900, 37, dtype, false, true);
    }
  }
}

TEST_P(DecayGateTest, StepsKeepToTheirLimits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t count : {1, 17, 300}) {
      CheckGates(GateForm::kSoftplus, 5, count, dtype, true, true, 0.25);
      CheckGates(GateForm::kSoftplus, 5, count, dtype, false, false, 0, 1.5);
      CheckGates(GateForm::kSoftplus, 5, count, dtype, true, false, 0.5, 0.75);
    }
  }
  const float x[] = {NAN, -INFINITY, INFINITY, -3, 3};
  float g[5], steps[5];
  DecayGateRow({.count = 5, .least = 0.25f, .most = 2}, x, g, steps);
  EXPECT_TRUE(std::isnan(steps[0]) && std::isnan(g[0]));
  const std::vector<float> wanted = {0.25f, 2, 0.25f, 2};
  EXPECT_EQ(wanted, std::vector<float>(steps + 1, steps + 5));
  for (int i = 1; i < 5; ++i) EXPECT_EQ(-steps[i], g[i]);
}

TEST_P(DecayGateTest, ThreadsChangeNoBit) {
  for (const GateForm form : kGateForms) {
    const Problem p = MakeGates(form, 900, 74, DType::kF32, TakesRates(form));
    std::mt19937_64 rng(5);
    const std::vector<double> dg = Random(900 * 74, rng);
    SerialExecutor serial;
    ExpectSameBits(RunGates(p, dg, dg, DType::kF32, serial, false),
                   [&](Executor& executor, bool spread) {
                     return RunGates(p, dg, dg, DType::kF32, executor, spread);
                   });
  }
}

// Where the logistic curve or its slope is 0 and a factor infinite.
TEST_P(DecayGateTest, GradientsAtTheEndsAreNumbers) {
  SerialExecutor serial;
  for (const GateForm form : kGateForms) {
    Problem p = MakeGates(form, 1, 6, DType::kF32, TakesRates(form));
    p.x = {-1e30, 1e30, -200, 200, -INFINITY, 0};
    std::vector<double> dg(6, 1.0);
    if (form == GateForm::kExponential) dg[1] = dg[3] = 0;  // exp is infinite
    if (form == GateForm::kBounded) p.bias.assign(6, 0.25);
    const GateOutcome found = RunGates(p, dg, std::vector<double>(6, 1.0),
                                       DType::kF32, serial, false);
    for (const double v : found.x) EXPECT_FALSE(std::isnan(v));
    for (const float v : found.bias) EXPECT_FALSE(std::isnan(v));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DecayGateTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(DecayGateArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  DecayGateCall call;
  call.gate.count = 1;
  call.rows = 1;
  call.x = &x;
  const auto where = [&](const DecayGateCall& given, float* gates) {
    return ErrorOf([&] { DecayGateForward(given, gates, nullptr, executor); })
        .where();
  };
  DecayGateCall bad = call;
  bad.rows = -1;
  EXPECT_EQ("decay_gate: x", where(bad, &y));
  bad = call;
  bad.x = nullptr;
  EXPECT_EQ("decay_gate: x", where(bad, &y));
  bad = call;
  bad.gate.form = GateForm::kBounded;
  EXPECT_EQ("decay_gate: bias", where(bad, &y));
  bad = call;
  bad.gate.least = 2;
  bad.gate.most = 1;
  EXPECT_EQ("decay_gate: least", where(bad, &y));
  EXPECT_EQ("decay_gate: gates", where(call, nullptr));
  EXPECT_EQ("decay_gate: grad_x", ErrorOf([&] {
                                    DecayGateBackward(call, {&x}, executor,
                                                      nullptr);
                                  }).where());
  EXPECT_EQ(5.0f, y);
}

// By the definition, a channel at a time, and in place.
TEST(DepthBoundsTest, RiseOverTheLayers) {
  constexpr int64_t kLayers = 5, kCount = 7;
  Rng rng(3);
  std::vector<float> logits(kLayers * kCount), bounds(logits.size(), NAN);
  for (float& logit : logits) logit = static_cast<float>(2 * rng.Normal());
  DepthBounds(logits.data(), kLayers, kCount, bounds.data());
  for (int64_t c = 0; c < kCount; ++c) {
    double all = 0, below = 0;
    for (int64_t i = 0; i < kLayers; ++i) {
      all += std::exp(double{logits[i * kCount + c]});
    }
    for (int64_t i = 0; i < kLayers; ++i) {
      if (i > 0) below += std::exp(double{logits[i * kCount + c]});
      EXPECT_NEAR(below / all, bounds[i * kCount + c], 1e-7);
    }
  }
  DepthBounds(logits.data(), kLayers, kCount, logits.data());
  EXPECT_EQ(bounds, logits);
  DepthBounds(nullptr, kLayers, 0, nullptr);
}

TEST(DepthBoundsTest, TakeLogitsOfAnySize) {
  std::vector<float> bounds = {-3e38f, 3e38f, 3e38f, -3e38f};
  DepthBounds(bounds.data(), 4, 1, bounds.data());
  EXPECT_EQ((std::vector<float>{0, 0.5f, 1, 1}), bounds);
  float one = 7;
  DepthBounds(&one, 1, 1, &one);
  EXPECT_EQ(0.0f, one);
}

}  // namespace
}  // namespace tarn::testing
