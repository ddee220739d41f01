// Forward pass and gradient against the double reference, on every SIMD target.
#include "kernels/gated_norm/gated_norm.h"

#include "core/error.h"
#include "kernels/gated_norm/gated_norm_ref.h"
#include "kernels/row_tests.h"
#include "kernels/test_vectors.h"

namespace tarn::testing {
namespace {

using reference::GatedNormProblem;

// Every form of a call.
struct NormForm {
  bool gated, gate_first, centred, silu, by_group, bias;
};

std::vector<NormForm> NormForms() {
  std::vector<NormForm> forms;
  for (int n = 0; n < 64; ++n) {
    const NormForm form = {(n & 1) != 0, (n & 2) != 0,  (n & 4) != 0,
                           (n & 8) != 0, (n & 16) != 0, (n & 32) != 0};
    // Without a gate there is nothing to place or to choose.
    if (form.gated || (!form.gate_first && form.silu)) forms.push_back(form);
  }
  return forms;
}

GatedNormProblem MakeNorm(const NormForm& form, int64_t tokens, int64_t groups,
                          int64_t width, DType dtype = DType::kF32) {
  std::mt19937_64 rng(tokens + 10 * groups + 100 * width);
  GatedNormProblem p;
  p.tokens = tokens;
  p.groups = groups;
  p.width = width;
  p.centred = form.centred;
  p.silu = form.silu;
  p.gate_first = form.gate_first;
  p.x = RandomOf(dtype, tokens * groups * width, rng);
  if (form.gated) p.gate = RandomOf(dtype, tokens * groups * width, rng, 3.0);
  p.weight = RandomOf(DType::kF32, (form.by_group ? groups : 1) * width, rng);
  if (form.bias) {
    p.bias = RandomOf(DType::kF32, static_cast<int64_t>(p.weight.size()), rng);
  }
  return p;
}

GatedNormOptions OptionsOf(const GatedNormProblem& p) {
  GatedNormOptions options;
  options.groups = p.groups;
  options.width = p.width;
  options.eps = p.eps;
  options.centred = p.centred;
  options.activation = p.silu ? NormGate::kSilu : NormGate::kSigmoid;
  options.gate_first = p.gate_first;
  options.weight_by_group =
      p.weight.size() == static_cast<size_t>(p.groups * p.width);
  return options;
}

struct NormOutcome {
  std::vector<double> out, dx, dgate;
  std::vector<float> dw, db;
  bool operator==(const NormOutcome&) const = default;
};

// The problem's tokens as a batch of `batch` sequences.
NormOutcome RunNorm(const GatedNormProblem& p,
                    const std::vector<double>& grad_out, DType dtype,
                    bool spread, Executor& executor, int64_t batch = 1) {
  const int64_t tokens = p.tokens / batch;
  const auto tensor = [&](const std::vector<double>* values) {
    GuardedTensor x(batch, tokens, p.groups, p.width, dtype, spread);
    const int64_t part = tokens * p.groups * p.width;
    for (int64_t b = 0; values != nullptr && b < batch; ++b) {
      x.Fill(b, 0,
             {values->begin() + b * part, values->begin() + (b + 1) * part});
    }
    return x;
  };
  const auto all = [&](const GuardedTensor& x) {
    EXPECT_TRUE(x.GuardsIntact());
    std::vector<double> values;
    for (int64_t b = 0; b < batch; ++b) {
      const std::vector<double> part = x.Read(b, 0, tokens);
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  };
  const std::vector<float> weight(p.weight.begin(), p.weight.end());
  const std::vector<float> bias(p.bias.begin(), p.bias.end());
  const GuardedTensor x = tensor(&p.x), dout = tensor(&grad_out);
  const GuardedTensor gate = tensor(p.gate.empty() ? nullptr : &p.gate);
  const GuardedTensor out = tensor(nullptr), dx = tensor(nullptr),
                      dgate = tensor(nullptr);
  const GatedNormOptions options = OptionsOf(p);
  GatedNormInputs in;
  in.x = x.view();
  if (!p.gate.empty()) in.gate = gate.view();
  in.weight = weight.data();
  in.bias = bias.empty() ? nullptr : bias.data();
  GatedNormForward(options, in, out.view(), executor);
  NormOutcome r;
  r.dw.assign(weight.size(), NAN);
  r.db.assign(bias.size(), NAN);
  const Workspace workspace =
      MakeWorkspace(GatedNormGradientBytes(options, in.x, executor.width()));
  GatedNormBackward(options, in,
                    {dout.view(), dx.view(), dgate.view(), r.dw.data(),
                     bias.empty() ? nullptr : r.db.data()},
                    executor, workspace.get());
  r.out = all(out);
  r.dx = all(dx);
  if (!p.gate.empty()) r.dgate = all(dgate);
  return r;
}

void CheckNorm(const GatedNormProblem& p, DType dtype, bool spread) {
  std::mt19937_64 rng(9);
  const std::vector<double> grad_out =
      RandomOf(dtype, p.tokens * p.groups * p.width, rng);
  SerialExecutor serial;
  const NormOutcome got = RunNorm(p, grad_out, dtype, spread, serial);
  const auto grad = reference::GatedNormBackward(p, grad_out);
  Tolerance t = OutputTolerance(dtype), g = GradientTolerance(dtype);
  // Products of several numbers: a few large ones carry most of the rounding.
  if (dtype != DType::kF32) t = g = {1.5 * t.r, t.m};
  // The entries of a short row may be close together: their difference is
  // amplified by up to 1 / sqrt(eps).
  if (p.width < 4) t = g = {std::max(t.r, 1e-4), std::max(t.m, 1e-3)};
  const std::string what = "W" + std::to_string(p.width) + " ";
  const double floor = 1;
  ExpectClose(got.out, reference::GatedNorm(p), p.width, t.r, t.m, what + "out",
              floor);
  ExpectClose(got.dx, grad.x, p.width, g.r, g.m, what + "dx", floor);
  ExpectClose(got.dgate, grad.gate, p.width, g.r, g.m, what + "dgate", floor);
  const double sums = p.width < 4 ? 1e-4 : 3e-6;
  ExpectClose(Widen(got.dw), grad.weight, p.width, sums, 30 * sums, what + "dw",
              floor);
  ExpectClose(Widen(got.db), grad.bias, p.width, sums, 30 * sums, what + "db",
              floor);
}

TEST(GatedNormReference, AgreesWithFiniteDifferences) {
  for (const NormForm& form : NormForms()) {
    GatedNormProblem p = MakeNorm(form, 2, 2, 3);
    std::mt19937_64 rng(1);
    const std::vector<double> flow = Random(12, rng);
    const auto g = reference::GatedNormBackward(p, flow);
    const auto value = [&] { return Dot(reference::GatedNorm(p), flow); };
    ExpectSlopes(value, p.x, g.x, 1e-6);
    ExpectSlopes(value, p.gate, g.gate, 1e-6);
    ExpectSlopes(value, p.weight, g.weight, 1e-6);
    ExpectSlopes(value, p.bias, g.bias, 1e-6);
  }
}

class GatedNormTest : public SimdTargetTest {};

TEST_P(GatedNormTest, EveryFormMatchesTheReference) {
  for (const NormForm& form : NormForms()) {
    for (const int64_t width : {1, 2, 3, 7, 16, 17, 64, 100}) {
      for (const auto& [tokens, groups] :
           {std::pair<int64_t, int64_t>{0, 2}, {1, 1}, {1, 3}, {5, 2}}) {
        CheckNorm(MakeNorm(form, tokens, groups, width), DType::kF32,
                  width % 2 != 0);
      }
    }
  }
}

TEST_P(GatedNormTest, HalfTypesMatchTheReference) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const NormForm& form : NormForms()) {
      for (const int64_t width : {33, 64}) {
        CheckNorm(MakeNorm(form, 3, 2, width, dtype), dtype, width % 2 != 0);
      }
    }
  }
}

TEST_P(GatedNormTest, WideRowsAndManyTokens) {
  CheckNorm(MakeNorm({true, true, false, true, false, false}, 2, 1, 3000),
            DType::kF32, false);
  CheckNorm(MakeNorm({true, false, true, true, true, true}, 700, 3, 40),
            DType::kF32, true);
}

TEST_P(GatedNormTest, ThreadsLayoutAndBatchChangeNoBit) {
  SerialExecutor serial;
  std::mt19937_64 rng(5);
  for (const NormForm& form : NormForms()) {
    // A third of the forms, in which each choice is made both ways.
    if (form.by_group != form.bias) continue;
    if (form.gated && form.silu != form.centred) continue;
    const GatedNormProblem p = MakeNorm(form, 600, 2, 33);
    std::vector<double> flow = Random(600 * 2 * 33, rng);
    const NormOutcome one = RunNorm(p, flow, DType::kF32, false, serial);
    ExpectSameBits(one, [&](Executor& executor, bool spread) {
      return RunNorm(p, flow, DType::kF32, spread, executor, spread ? 3 : 2);
    });
  }
}

TEST_P(GatedNormTest, ARowAloneHasTheBitsOfThePass) {
  SerialExecutor serial;
  for (const NormForm& form : NormForms()) {
    const GatedNormProblem p = MakeNorm(form, 4, 3, 37);
    const std::vector<double> flow(p.x.size(), 1.0);
    const NormOutcome all = RunNorm(p, flow, DType::kF32, true, serial);
    const std::vector<float> weight(p.weight.begin(), p.weight.end());
    const std::vector<float> bias(p.bias.begin(), p.bias.end());
    const int64_t row = 3 * 37;
    for (int64_t t = 0; t < 4; ++t) {
      std::vector<float> x(p.x.begin() + t * row, p.x.begin() + (t + 1) * row);
      std::vector<float> gate;
      if (form.gated) {
        gate.assign(p.gate.begin() + t * row, p.gate.begin() + (t + 1) * row);
      }
      const float* at_gate = gate.empty() ? nullptr : gate.data();
      const float* at_bias = bias.empty() ? nullptr : bias.data();
      std::vector<float> out(row, NAN);
      GatedNormRow(OptionsOf(p), x.data(), at_gate, weight.data(), at_bias,
                   out.data());
      GatedNormRow(OptionsOf(p), x.data(), at_gate, weight.data(), at_bias,
                   x.data());
      EXPECT_EQ(std::vector<double>(all.out.begin() + t * row,
                                    all.out.begin() + (t + 1) * row),
                Widen(out));
      EXPECT_EQ(out, x);  // in place
    }
  }
}

TEST_P(GatedNormTest, NaNStaysInItsRow) {
  SerialExecutor serial;
  for (const NormForm& form : NormForms()) {
    GatedNormProblem p = MakeNorm(form, 5, 2, 19);
    const std::vector<double> flow(p.x.size(), 1.0);
    const NormOutcome clean = RunNorm(p, flow, DType::kF32, false, serial);
    p.x[3 * 19 + 4] = std::nan("");
    const NormOutcome run = RunNorm(p, flow, DType::kF32, false, serial);
    for (size_t i = 0; i < p.x.size(); ++i) {
      if (i / 19 == 3) {
        EXPECT_TRUE(std::isnan(run.out[i]) && std::isnan(run.dx[i]));
      } else {
        EXPECT_EQ(clean.out[i], run.out[i]);
        EXPECT_EQ(clean.dx[i], run.dx[i]);
      }
    }
  }
}

// A gate so far below 0 that sigma is 0 closes: it makes no NaN and no
// gradient but 0.
TEST_P(GatedNormTest, ClosedGates) {
  SerialExecutor serial;
  for (const NormForm& form : NormForms()) {
    if (!form.gated || form.gate_first || form.bias) continue;
    GatedNormProblem p = MakeNorm(form, 1, 1, 20);
    p.gate.assign(20, -104.0);
    const std::vector<double> flow(20, 1.0);
    const NormOutcome run = RunNorm(p, flow, DType::kF32, false, serial);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(0.0, run.out[i]);
      EXPECT_EQ(0.0, run.dgate[i]);
      EXPECT_EQ(0.0, run.dx[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, GatedNormTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(GatedNormErrors, NameArgumentWantedAndGiven) {
  float data[64] = {0};
  GatedNormOptions options;
  options.groups = 2;
  options.width = 4;
  GatedNormInputs in;
  in.x = TensorView::Dense(data, 1, 2, 2, 4);
  in.weight = data;
  const auto message = [&](const GatedNormOptions& o, const GatedNormInputs& i,
                           const TensorView& out) {
    try {
      CheckGatedNorm(o, i, out);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ("accepted", message(options, in, in.x));
  GatedNormOptions other = options;
  other.width = 3;
  EXPECT_EQ("gated_norm: x: want [B, T, 2, 3], got [1, 2, 2, 4]",
            message(other, in, in.x));
  other.width = 0;
  EXPECT_EQ("gated_norm: groups, width: want at least 1, got [2, 0]",
            message(other, in, in.x));
  other = options;
  other.eps = -1;
  EXPECT_EQ("gated_norm: eps: want at least 0, got -1",
            message(other, in, in.x));
  EXPECT_EQ("gated_norm: out: want [1, 2, 2, 4], got [1, 1, 2, 4]",
            message(options, in, TensorView::Dense(data, 1, 1, 2, 4)));
  GatedNormInputs bad = in;
  bad.gate = TensorView::Dense(data, 1, 2, 2, 4, DType::kBF16);
  EXPECT_EQ("gated_norm: gate: want F32, got BF16",
            message(options, bad, in.x));
  bad = in;
  bad.weight = nullptr;
  EXPECT_EQ("gated_norm: weight: want data, got a null pointer",
            message(options, bad, in.x));
  SerialExecutor serial;
  try {
    GatedNormBackward(options, in, {in.x, TensorView(), {}, data, data}, serial,
                      nullptr);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ("gated_norm: grad_x: want [1, 2, 2, 4], got [0, 0, 0, 0]",
                 error.what());
  }
}

TEST(GatedNormErrors, EmptyBatchAndNoTokensAreFine) {
  SerialExecutor serial;
  const std::vector<float> weight(3, 1.0f);
  for (auto [B, T] : {std::pair<int64_t, int64_t>{0, 5}, {2, 0}}) {
    GatedNormOptions options;
    options.width = 3;
    GatedNormInputs in;
    in.x = TensorView::Dense(nullptr, B, T, 1, 3);
    in.weight = weight.data();
    GatedNormForward(options, in, in.x, serial);
    std::vector<float> dw(3, NAN), db(3, NAN);
    const Workspace workspace =
        MakeWorkspace(GatedNormGradientBytes(options, in.x, 1));
    GatedNormBackward(options, in, {in.x, in.x, {}, dw.data(), db.data()},
                      serial, workspace.get());
    EXPECT_EQ(std::vector<float>(3, 0.0f), dw);
    EXPECT_EQ(std::vector<float>(3, 0.0f), db);
  }
}

}  // namespace
}  // namespace tarn::testing
