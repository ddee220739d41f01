// Both passes against the double reference, on every SIMD target.
#include "kernels/entry_forms/entry_forms.h"

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/entry_forms/entry_forms_ref.h"
#include "kernels/linear_attention/test_problem.h"

namespace tarn::testing {
namespace {

using reference::EntryFormProblem;

constexpr EntryForm kEntryForms[] = {
    EntryForm::kSiluGate,   EntryForm::kSigmoidGate, EntryForm::kElu1,
    EntryForm::kSigmoid,    EntryForm::kLogSigmoid,  EntryForm::kMixedGate,
    EntryForm::kGelu,
};

EntryFormProblem MakeEntries(EntryForm form, int64_t rows, int64_t width,
                             DType dtype, bool weight = true) {
  std::mt19937_64 rng(rows + 100 * width);
  EntryFormProblem p;
  p.form = form;
  if (form == EntryForm::kLogSigmoid) p.scale = 0.25;
  p.x = Random(rows * width, rng, 3.0);
  if (TakesGated(form)) p.y = Random(rows * width, rng);
  for (auto* part : {&p.x, &p.y}) {
    for (double& v : *part) v = Round(v, dtype);
  }
  if (TakesWeight(form) && weight) p.weight = Random(width, rng);
  for (double& v : p.weight) v = static_cast<float>(v);
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

std::vector<double> Wide(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

void CheckEntries(EntryForm form, int64_t rows, int64_t width, DType dtype,
                  bool spread, bool weight = true) {
  const EntryFormProblem p = MakeEntries(form, rows, width, dtype, weight);
  std::mt19937_64 rng(9);
  std::vector<double> flow = Random(rows * width, rng);
  for (double& v : flow) v = Round(v, dtype);
  SerialExecutor serial;
  const EntryOutcome got =
      RunEntries(p, flow, rows, width, dtype, spread, serial);
  const auto grad = reference::EntryFormsBackward(p, flow);
  // A rounding of the result, and some ulp of float32.
  const double unit = dtype == DType::kBF16  ? 0x1p-8
                      : dtype == DType::kF16 ? 0x1p-11
                                             : 0;
  const auto near = [&](const std::vector<double>& x,
                        const std::vector<double>& wanted, const char* what) {
    ASSERT_EQ(x.size(), wanted.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double room = (unit * 1.001 + 1e-6) * std::abs(wanted[i]) + 2e-6;
      ASSERT_LE(std::abs(x[i] - wanted[i]), room)
          << what << " of form " << static_cast<int>(form) << ", entry " << i;
    }
  };
  near(got.out, reference::EntryForms(p), "out");
  near(got.dx, grad.x, "dx");
  near(got.dy, grad.y, "dy");
  ExpectClose(Wide(got.dw), grad.weight, width, 3e-6, 1e-4, "dw", 1);
}

TEST(EntryFormReference, AgreesWithFiniteDifferences) {
  for (const EntryForm form : kEntryForms) {
    EntryFormProblem p = MakeEntries(form, 3, 4, DType::kF32);
    std::mt19937_64 rng(1);
    const std::vector<double> flow = Random(12, rng);
    const auto g = reference::EntryFormsBackward(p, flow);
    const auto value = [&] {
      const std::vector<double> out = reference::EntryForms(p);
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) sum += out[i] * flow[i];
      return sum;
    };
    const auto check = [&](std::vector<double>& x,
                           const std::vector<double>& dx) {
      ASSERT_EQ(x.size(), dx.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const double kept = x[i], step = 1e-6;
        x[i] = kept + step;
        const double up = value();
        x[i] = kept - step;
        const double down = value();
        x[i] = kept;
        EXPECT_NEAR(dx[i], (up - down) / (2 * step), 1e-7);
      }
    };
    check(p.x, g.x);
    check(p.y, g.y);
    check(p.weight, g.weight);
  }
}

class EntryFormTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

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
    for (const int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads);
      EXPECT_EQ(one, RunEntries(p, flow, 1500, 37, DType::kF32, true, pool));
    }
    ReversedExecutor reversed;
    EXPECT_EQ(one, RunEntries(p, flow, 1500, 37, DType::kF32, false, reversed));
  }
}

TEST_P(EntryFormTest, NaNStaysInItsEntry) {
  SerialExecutor serial;
  for (const EntryForm form : kEntryForms) {
    EntryFormProblem p = MakeEntries(form, 2, 19, DType::kF32, false);
    if (form == EntryForm::kMixedGate) p.weight.assign(19, 0.5);
    const std::vector<double> flow(38, 1.0);
    const EntryOutcome clean =
        RunEntries(p, flow, 2, 19, DType::kF32, false, serial);
    p.x[21] = std::nan("");
    const EntryOutcome run =
        RunEntries(p, flow, 2, 19, DType::kF32, false, serial);
    for (size_t i = 0; i < 38; ++i) {
      if (i == 21) {
        EXPECT_TRUE(std::isnan(run.out[i]));
      } else {
        EXPECT_EQ(clean.out[i], run.out[i]);
        EXPECT_EQ(clean.dx[i], run.dx[i]);
      }
    }
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
    EXPECT_EQ(c.high_slope, run.dx[1]) << static_cast<int>(c.form);
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
