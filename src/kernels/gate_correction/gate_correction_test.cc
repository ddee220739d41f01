// Both passes against the double reference, on every SIMD target.
#include "kernels/gate_correction/gate_correction.h"

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/gate_correction/gate_correction_ref.h"
#include "kernels/row_tests.h"

namespace tarn::testing {
namespace {

using Problem = reference::GateCorrectionProblem;

Problem MakeCorrection(int64_t tokens, int64_t heads, int64_t width,
                       DType dtype) {
  std::mt19937_64 rng(tokens + 10 * heads + 100 * width);
  Problem p{heads, width, {}, {}, {}, {}, {}, {}};
  for (auto* part : {&p.o, &p.r, &p.k, &p.v, &p.g}) {
    *part = RandomOf(dtype, tokens * heads * width, rng);
  }
  p.weight = RandomOf(DType::kF32, heads * width, rng);
  return p;
}

struct CorrectionOutcome {
  std::vector<double> out, o, r, k, v, g;
  std::vector<float> weight;
  bool operator==(const CorrectionOutcome&) const = default;
};

CorrectionOutcome RunCorrection(const Problem& p,
                                const std::vector<double>& flow, DType dtype,
                                Executor& executor) {
  const int64_t row = p.heads * p.width;
  const int64_t tokens = static_cast<int64_t>(p.o.size()) / row;
  const auto tensor = [&](const std::vector<double>& values) {
    GuardedTensor x(1, tokens, p.heads, p.width, dtype, false);
    x.Fill(0, 0, values);
    return x;
  };
  const GuardedTensor o = tensor(p.o), r = tensor(p.r), k = tensor(p.k),
                      v = tensor(p.v), g = tensor(p.g), dout = tensor(flow);
  const GuardedTensor out = tensor({}), d_o = tensor({}), d_r = tensor({}),
                      d_k = tensor({}), d_v = tensor({}), d_g = tensor({});
  const std::vector<float> weight(p.weight.begin(), p.weight.end());
  GateCorrectionInputs in{dtype,         tokens,        p.heads,
                          p.width,       o.view().data, r.view().data,
                          k.view().data, v.view().data, g.view().data,
                          weight.data()};
  CorrectionOutcome found;
  found.weight.assign(weight.size(), NAN);
  GateCorrectionForward(in, out.view().data, executor);
  const Workspace workspace = MakeWorkspace(GateCorrectionGradientBytes(in));
  GateCorrectionBackward(
      in,
      {dout.view().data, d_o.view().data, d_r.view().data, d_k.view().data,
       d_v.view().data, d_g.view().data, found.weight.data()},
      executor, workspace.get());
  const auto read = [&](const GuardedTensor& x) {
    EXPECT_TRUE(x.GuardsIntact());
    return x.Read(0, 0, tokens);
  };
  found.out = read(out);
  found.o = read(d_o);
  found.r = read(d_r);
  found.k = read(d_k);
  found.v = read(d_v);
  found.g = read(d_g);
  return found;
}

void CheckCorrection(int64_t tokens, int64_t heads, int64_t width,
                     DType dtype) {
  const Problem p = MakeCorrection(tokens, heads, width, dtype);
  std::mt19937_64 rng(7);
  const std::vector<double> flow = RandomOf(dtype, tokens * heads * width, rng);
  SerialExecutor serial;
  const CorrectionOutcome got = RunCorrection(p, flow, dtype, serial);
  const Problem d = reference::GateCorrectionBackward(p, flow);
  const auto near = [&](const std::vector<double>& x,
                        const std::vector<double>& wanted, const char* what) {
    const double size = Rms(wanted.data(), static_cast<int64_t>(x.size()));
    ExpectRounded(x, wanted, dtype, 1e-5 * (1 + size), what);
  };
  near(got.out, reference::GateCorrection(p), "out");
  near(got.o, d.o, "o");
  near(got.r, d.r, "r");
  near(got.k, d.k, "k");
  near(got.v, d.v, "v");
  near(got.g, d.g, "g");
  near({got.weight.begin(), got.weight.end()}, d.weight, "weight");
}

TEST(GateCorrectionReference, AgreesWithFiniteDifferences) {
  Problem p = MakeCorrection(3, 2, 4, DType::kF32);
  std::mt19937_64 rng(1);
  const std::vector<double> flow = Random(24, rng);
  const Problem d = reference::GateCorrectionBackward(p, flow);
  const auto value = [&] { return Dot(reference::GateCorrection(p), flow); };
  ExpectSlopes(value, p.o, d.o);
  ExpectSlopes(value, p.r, d.r);
  ExpectSlopes(value, p.k, d.k);
  ExpectSlopes(value, p.v, d.v);
  ExpectSlopes(value, p.g, d.g);
  ExpectSlopes(value, p.weight, d.weight);
}

class GateCorrectionTest : public SimdTargetTest {};

TEST_P(GateCorrectionTest, MatchesTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t width : {1, 3, 16, 17, 64, 100}) {
      for (const int64_t tokens : {0, 1, 5}) {
        CheckCorrection(tokens, 1, width, dtype);
        CheckCorrection(tokens, 3, width, dtype);
      }
    }
    CheckCorrection(700, 2, 37, dtype);
  }
}

TEST_P(GateCorrectionTest, ThreadsChangeNoBit) {
  const Problem p = MakeCorrection(900, 2, 37, DType::kF32);
  std::mt19937_64 rng(5);
  const std::vector<double> flow = Random(900 * 74, rng);
  SerialExecutor serial;
  ExpectSameBits(RunCorrection(p, flow, DType::kF32, serial),
                 [&](Executor& executor, bool) {
                   return RunCorrection(p, flow, DType::kF32, executor);
                 });
}

TEST_P(GateCorrectionTest, NaNStaysInItsHead) {
  Problem p = MakeCorrection(3, 2, 19, DType::kF32);
  const std::vector<double> flow(p.o.size(), 1.0);
  SerialExecutor serial;
  const CorrectionOutcome clean = RunCorrection(p, flow, DType::kF32, serial);
  p.r[40] = std::nan("");
  const CorrectionOutcome run = RunCorrection(p, flow, DType::kF32, serial);
  for (size_t i = 0; i < p.o.size(); ++i) {
    if (i / 19 == 2) {
      EXPECT_TRUE(std::isnan(run.out[i]));
    } else {
      EXPECT_EQ(clean.out[i], run.out[i]);
      EXPECT_EQ(clean.r[i], run.r[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, GateCorrectionTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(GateCorrectionArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  GateCorrectionInputs in{DType::kF32, 1, 1, 1, &x, &x, &x, &x, &x, &x};
  const auto where = [&](const GateCorrectionInputs& inputs, void* out) {
    return ErrorOf([&] { GateCorrectionForward(inputs, out, executor); })
        .where();
  };
  GateCorrectionInputs bad = in;
  bad.tokens = -1;
  EXPECT_EQ("gate_correction: o", where(bad, &y));
  bad = in;
  bad.k = nullptr;
  EXPECT_EQ("gate_correction: k", where(bad, &y));
  bad = in;
  bad.weight = nullptr;
  EXPECT_EQ("gate_correction: weight", where(bad, &y));
  EXPECT_EQ("gate_correction: out", where(in, nullptr));
  EXPECT_EQ("gate_correction: grad_r",
            ErrorOf([&] {
              GateCorrectionBackward(in, {&x, &y, nullptr, &y, &y, &y, &y},
                                     executor, nullptr);
            }).where());
  EXPECT_EQ(5.0f, y);
}

}  // namespace
}  // namespace tarn::testing
