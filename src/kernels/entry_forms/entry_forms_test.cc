// Both passes against the double reference, on every SIMD target.
#include "kernels/entry_forms/entry_forms.h"

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/entry_forms/entry_forms_ref.h"
#include "kernels/row_tests.h"
#include "kernels/test_vectors.h"

namespace tarn::testing {
namespace {

using reference::EntryFormProblem;

constexpr EntryForm kEntryForms[] = {
    EntryForm::kSiluGate,  EntryForm::kSigmoidGate, EntryForm::kPowerGate,
    EntryForm::kElu1,      EntryForm::kSigmoid,     EntryForm::kLogSigmoid,
    EntryForm::kMixedGate, EntryForm::kGelu,        EntryForm::kSquareRelu,
};

EntryFormProblem MakeEntries(EntryForm form, int64_t rows, int64_t width,
                             DType dtype, bool weight = true) {
  std::mt19937_64 rng(rows + 100 * width);
  EntryFormProblem p;
  p.form = form;
  if (form == EntryForm::kLogSigmoid) p.scale = 0.25;
  if (form == EntryForm::kPowerGate) p.scale = 2.5;
  p.x = RandomOf(dtype, rows * width, rng, 3.0);
  if (TakesGated(form)) p.y = RandomOf(dtype, rows * width, rng);
  if (TakesWeight(form) && weight) {
    p.weight = RandomOf(DType::kF32, width, rng);
  }
  return p;
}

struct EntryOutcome {
  std::vector<double> out, dx, dy;
  std::vector<float> dw;
  bool operator==(const EntryOutcome&) const = default;
};

// spread: rows with gaps, misaligned; results begin as NaN, between guards.
EntryOutcome RunEntries(const EntryFormProblem& p,
                        const std::vector<double>& flow, int64_t rows,
                        int64_t width, DType dtype, bool spread,
                        Executor& executor) {
  const auto tensor = [&](const std::vector<double>& values) {
    GuardedTensor x(1, rows, 1, width, dtype, spread);
    x.Fill(0, 0, values);
    return x;
  };
  const auto view = [](const GuardedTensor& x) {
    return EntryRows{x.view().data, x.view().stride[1]};
  };
  const GuardedTensor x = tensor(p.x), y = tensor(p.y), dout = tensor(flow);
  const GuardedTensor out = tensor({}), dx = tensor({}), dy = tensor({});
  const std::vector<float> weight(p.weight.begin(), p.weight.end());
  EntryFormCall call;
  call.form = p.form;
  call.dtype = dtype;
  call.rows = rows;
  call.width = width;
  call.scale = static_cast<float>(p.scale);
  call.x = view(x);
  if (TakesGated(p.form)) call.y = view(y);
  call.weight = weight.empty() ? nullptr : weight.data();
  EntryFormForward(call, view(out), executor);
  EntryOutcome r;
  r.dw.assign(weight.size(), NAN);
  EntryFormGradients g{view(dout), view(dx), {}, nullptr};
  if (TakesGated(p.form)) g.grad_y = view(dy);
  if (!weight.empty()) g.grad_weight = r.dw.data();
  const Workspace workspace =
      MakeWorkspace(EntryFormGradientBytes(call, !weight.empty()));
  EntryFormBackward(call, g, executor, workspace.get());
  for (const auto& [tensor, values] :
       {std::pair{&out, &r.out}, {&dx, &r.dx}, {&dy, &r.dy}}) {
    EXPECT_TRUE(tensor->GuardsIntact());
    if (tensor != &dy || TakesGated(p.form)) *values = tensor->Read(0, 0, rows);
  }
  return r;
}

void CheckEntries(EntryForm form, int64_t rows, int64_t width, DType dtype,
                  bool spread, bool weight = true) {
  const EntryFormProblem p = MakeEntries(form, rows, width, dtype, weight);
  std::mt19937_64 rng(9);
  const std::vector<double> flow = RandomOf(dtype, rows * width, rng);
  SerialExecutor serial;
  const EntryOutcome got =
      RunEntries(p, flow, rows, width, dtype, spread, serial);
  const auto grad = reference::EntryFormsBackward(p, flow);
  const std::string what = StrCat(" of form ", static_cast<int>(form));
  ExpectRounded(got.out, reference::EntryForms(p), dtype, 2e-6, "out" + what);
  ExpectRounded(got.dx, grad.x, dtype, 2e-6, "dx" + what);
  ExpectRounded(got.dy, grad.y, dtype, 2e-6, "dy" + what);
  ExpectClose(Widen(got.dw), grad.weight, width, 3e-6, 1e-4, "dw" + what, 1);
}

TEST(EntryFormReference, AgreesWithFiniteDifferences) {
  for (const EntryForm form : kEntryForms) {
    EntryFormProblem p = MakeEntries(form, 3, 4, DType::kF32);
    std::mt19937_64 rng(1);
    const std::vector<double> flow = Random(12, rng);
    const auto g = reference::EntryFormsBackward(p, flow);
    const auto value = [&] { return Dot(reference::EntryForms(p), flow); };
    ExpectSlopes(value, p.x, g.x);
    ExpectSlopes(value, p.y, g.y);
    ExpectSlopes(value, p.weight, g.weight);
  }
}

class EntryFormTest : public SimdTargetTest {};

TEST_P(EntryFormTest, EveryFormMatchesTheReference) {
  for (const EntryForm form : kEntryForms) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t width : {1, 3, 16, 17, 64, 100}) {
        for (const int64_t rows : {0, 1, 5}) {
          CheckEntries(form, rows, width, dtype, false);
          CheckEntries(form, rows, width, dtype, true);
        }
      }
    }
    CheckEntries(form, 1000, 37, DType::kF32, false);
    CheckEntries(form, 3, 20000, DType::kBF16, false);
  }
  CheckEntries(EntryForm::kGelu, 1000, 37, DType::kF16, false, false);
}

TEST_P(EntryFormTest, ThreadsAndLayoutChangeNoBit) {
  SerialExecutor serial;
  for (const EntryForm form : kEntryForms) {
    const EntryFormProblem p = MakeEntries(form, 1500, 37, DType::kF32);
    std::mt19937_64 rng(5);
    const std::vector<double> flow = Random(1500 * 37, rng);
    const EntryOutcome one =
        RunEntries(p, flow, 1500, 37, DType::kF32, false, serial);
    ExpectSameBits(one, [&](Executor& executor, bool spread) {
      return RunEntries(p, flow, 1500, 37, DType::kF32, spread, executor);
    });
  }
}

// In a pair of vectors and in the part after it, as x or as y.
TEST_P(EntryFormTest, NaNStaysInItsEntry) {
  SerialExecutor serial;
  constexpr int64_t kWidth = 83;
  for (const EntryForm form : kEntryForms) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      EntryFormProblem p = MakeEntries(form, 2, kWidth, dtype, false);
      if (form == EntryForm::kMixedGate) p.weight.assign(kWidth, 0.5);
      const std::vector<double> flow(p.x.size(), 1.0);
      const auto run = [&] {
        return RunEntries(p, flow, 2, kWidth, dtype, false, serial);
      };
      const EntryOutcome clean = run();
      for (std::vector<double>* part : {&p.x, &p.y}) {
        for (const size_t at : {size_t{7}, p.x.size() - 1}) {
          if (part->empty()) continue;
          const double kept = (*part)[at];
          (*part)[at] = std::nan("");
          const EntryOutcome got = run();
          (*part)[at] = kept;
          for (size_t i = 0; i < p.x.size(); ++i) {
            if (i == at) {
              EXPECT_TRUE(std::isnan(got.out[i])) << static_cast<int>(form);
            } else {
              EXPECT_EQ(clean.out[i], got.out[i]);
              EXPECT_EQ(clean.dx[i], got.dx[i]);
            }
          }
        }
      }
    }
  }
}

// Every number of bfloat16 between -86 and 86: no absolute error hides that of
// small results.
TEST_P(EntryFormTest, LogisticCurveKeepsItsDigits) {
  SerialExecutor serial;
  EntryFormProblem p;
  p.form = EntryForm::kSigmoid;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = BF16ToF32(static_cast<uint16_t>(bits));
    if (std::abs(x) <= 86) p.x.push_back(x);
  }
  const int64_t count = static_cast<int64_t>(p.x.size());
  ASSERT_GT(count, 30000);
  const std::vector<double> flow(p.x.size(), 1.0);
  const auto slopes = reference::EntryFormsBackward(p, flow);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const EntryOutcome got =
        RunEntries(p, flow, 1, count, dtype, false, serial);
    ExpectRounded(got.out, reference::EntryForms(p), dtype, 0, "sigma");
    ExpectRounded(got.dx, slopes.x, dtype, 0, "slope");
  }
}

// Far from 0 values are those of the limits, and slopes are finite.
TEST_P(EntryFormTest, TailsAreExact) {
  SerialExecutor serial;
  const double far = 1e30;
  const struct {
    EntryForm form;
    double low, high, low_slope, high_slope;
  } cases[] = {
      {EntryForm::kSiluGate, 0, far, 0, 1},
      {EntryForm::kSigmoidGate, 0, 1, 0, 0},
      {EntryForm::kPowerGate, 0, 1, 0, 0},
      {EntryForm::kElu1, 0, far, 0, 1},
      {EntryForm::kSigmoid, 0, 1, 0, 0},
      {EntryForm::kLogSigmoid, -far, 0, 1, 0},
      {EntryForm::kGelu, 0, far, 0, 1},
  };
  for (const auto& c : cases) {
    EntryFormProblem p;
    p.form = c.form;
    p.x = {-far, far};
    if (TakesGated(c.form)) p.y = {1, 1};
    const EntryOutcome run =
        RunEntries(p, {1, 1}, 1, 2, DType::kF32, false, serial);
    const auto same = [](double a, double b) {
      return static_cast<float>(a) == static_cast<float>(b);
    };
    EXPECT_TRUE(same(run.out[0], c.low) && same(run.out[1], c.high))
        << static_cast<int>(c.form) << " " << run.out[0] << " " << run.out[1];
    EXPECT_EQ(c.low_slope, run.dx[0]) << static_cast<int>(c.form);
    // That of the power falls as ln(x) / x^1.5.
    EXPECT_NEAR(c.high_slope, run.dx[1], 1e-37) << static_cast<int>(c.form);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EntryFormTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(EntryFormArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float data = 1.0f, result = 5.0f;
  const EntryRows rows = {&data, 1}, out = {&result, 1};
  const auto where = [&](EntryFormCall call, const EntryRows& to) {
    return ErrorOf([&] { EntryFormForward(call, to, executor); }).where();
  };
  EntryFormCall call;
  call.rows = call.width = 1;
  call.x = call.y = rows;
  EntryFormCall bad = call;
  bad.rows = -1;
  EXPECT_EQ("entry_form: x", where(bad, out));
  bad = call;
  bad.x = {};
  EXPECT_EQ("entry_form: x", where(bad, out));
  bad = call;
  bad.y = {};
  EXPECT_EQ("entry_form: y", where(bad, out));
  bad.form = EntryForm::kMixedGate;
  bad.y = rows;
  EXPECT_EQ("entry_form: weight", where(bad, out));
  EXPECT_EQ("entry_form: out", where(call, {}));
  const auto backward = [&](const EntryFormGradients& g) {
    return ErrorOf([&] { EntryFormBackward(call, g, executor, nullptr); })
        .where();
  };
  EXPECT_EQ("entry_form: grad_out", backward({{}, out, out, nullptr}));
  EXPECT_EQ("entry_form: grad_x", backward({rows, {}, out, nullptr}));
  EXPECT_EQ("entry_form: grad_y", backward({rows, out, {}, nullptr}));
  EXPECT_EQ(5.0f, result);
}

}  // namespace
}  // namespace tarn::testing
