// Both passes against the double reference, on every SIMD target.
#include "kernels/head_scale/head_scale.h"

#include <cstring>

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/head_scale/head_scale_ref.h"
#include "kernels/row_tests.h"
#include "kernels/test_vectors.h"

namespace tarn::testing {
namespace {

using Problem = reference::HeadScaleProblem;

struct ScaleOptions {
  DType dtype = DType::kF32;
  bool shared = false, base = false;
};

Problem MakeScale(int64_t rows, int64_t heads, int64_t width,
                  const ScaleOptions& o) {
  std::mt19937_64 rng(rows + 10 * heads + 100 * width);
  Problem p;
  p.heads = heads;
  p.width = width;
  p.values = RandomOf(o.dtype, rows * heads * width, rng);
  p.factors = RandomOf(DType::kF32, o.shared ? heads : rows * heads, rng);
  if (o.base) p.base = RandomOf(o.dtype, rows * heads * width, rng);
  return p;
}

struct ScaleOutcome {
  std::vector<double> y, values;
  std::vector<float> factors;
  bool operator==(const ScaleOutcome&) const = default;
};

ScaleOutcome RunScale(const Problem& p, const std::vector<double>& flow,
                      const ScaleOptions& o, Executor& executor, bool spread) {
  const int64_t row = p.heads * p.width;
  const int64_t rows = static_cast<int64_t>(p.values.size()) / row;
  const auto tensor = [&](const std::vector<double>& values, bool apart) {
    GuardedTensor made(1, rows, 1, row, o.dtype, apart);
    made.Fill(0, 0, values);
    return made;
  };
  const GuardedTensor values = tensor(p.values, spread),
                      base = tensor(p.base, false), dy = tensor(flow, false),
                      y = tensor({}, false), d_values = tensor({}, false);
  const std::vector<float> factors(p.factors.begin(), p.factors.end());
  const HeadScaleCall call = {o.dtype,
                              rows,
                              p.heads,
                              p.width,
                              values.view().data,
                              values.view().stride[1],
                              factors.data(),
                              o.shared,
                              o.base ? base.view().data : nullptr};
  ScaleOutcome found;
  found.factors.assign(factors.size(), NAN);
  HeadScaleForward(call, y.view().data, executor);
  const Workspace workspace = MakeWorkspace(HeadScaleGradientBytes(call));
  HeadScaleBackward(call, dy.view().data, d_values.view().data,
                    found.factors.data(), executor, workspace.get());
  EXPECT_TRUE(y.GuardsIntact() && d_values.GuardsIntact());
  found.y = y.Read(0, 0, rows);
  found.values = d_values.Read(0, 0, rows);
  return found;
}

void CheckScale(int64_t rows, int64_t heads, int64_t width,
                const ScaleOptions& o, bool spread) {
  const Problem p = MakeScale(rows, heads, width, o);
  std::mt19937_64 rng(7);
  const std::vector<double> flow = RandomOf(o.dtype, rows * heads * width, rng);
  SerialExecutor serial;
  const ScaleOutcome got = RunScale(p, flow, o, serial, spread);
  const Problem d = reference::HeadScaleBackward(p, flow);
  ExpectRounded(got.y, reference::HeadScale(p), o.dtype, 1e-6, "y");
  ExpectRounded(got.values, d.values, o.dtype, 1e-6, "values");
  const double size =
      Rms(d.factors.data(), static_cast<int64_t>(d.factors.size()));
  ExpectRounded({got.factors.begin(), got.factors.end()}, d.factors,
                DType::kF32, 1e-5 * (1 + size), "factors");
}

TEST(HeadScaleReference, AgreesWithFiniteDifferences) {
  for (const bool shared : {false, true}) {
    Problem p = MakeScale(3, 2, 4, {DType::kF32, shared, true});
    std::mt19937_64 rng(1);
    const std::vector<double> flow = Random(24, rng);
    const Problem d = reference::HeadScaleBackward(p, flow);
    const auto value = [&] { return Dot(reference::HeadScale(p), flow); };
    ExpectSlopes(value, p.values, d.values);
    ExpectSlopes(value, p.factors, d.factors);
    ExpectSlopes(value, p.base, d.base);
  }
}

class HeadScaleTest : public SimdTargetTest {};

TEST_P(HeadScaleTest, MatchesTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool shared : {false, true}) {
      for (const bool base : {false, true}) {
        const ScaleOptions o = {dtype, shared, base};
        for (const int64_t width : {1, 3, 16, 17, 64, 100}) {
          for (const int64_t rows : {0, 1, 5}) {
            CheckScale(rows, 1, width, o, false);
            CheckScale(rows, 3, width, o, true);
          }
        }
        CheckScale(700, 2, 37, o, true);
      }
    }
  }
}

TEST_P(HeadScaleTest, ThreadsChangeNoBit) {
  const ScaleOptions o = {DType::kF32, true, true};
  const Problem p = MakeScale(900, 2, 37, o);
  std::mt19937_64 rng(5);
  const std::vector<double> flow = Random(900 * 74, rng);
  SerialExecutor serial;
  ExpectSameBits(RunScale(p, flow, o, serial, false),
                 [&](Executor& executor, bool spread) {
                   return RunScale(p, flow, o, executor, spread);
                 });
}

// The runtime's function, in the base's place: no fused operation.
TEST_P(HeadScaleTest, OneRow) {
  constexpr int64_t kHeads = 3;
  for (const int64_t width : {1, 7, 16, 33, 64}) {
    const std::vector<float> v = Normals(kHeads * width, 1),
                             f = Normals(kHeads, 2);
    const std::vector<float> base = Normals(kHeads * width, 3);
    std::vector<float> y = base, product(v.size() + 1, 77.0f);
    HeadScaleRow(kHeads, width, v.data(), f.data(), y.data(), y.data());
    HeadScaleRow(kHeads, width, v.data(), f.data(), nullptr, product.data());
    EXPECT_EQ(77.0f, product.back());
    for (int64_t i = 0; i < kHeads * width; ++i) {
      const float scaled = f[i / width] * v[i];
      EXPECT_EQ(scaled, product[i]);
      EXPECT_EQ(base[i] + scaled, y[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, HeadScaleTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(HeadScaleArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  const HeadScaleCall call = {DType::kF32, 1, 1, 1, &x, 1, &x, false, nullptr};
  const auto where = [&](const HeadScaleCall& given, void* out) {
    return ErrorOf([&] { HeadScaleForward(given, out, executor); }).where();
  };
  HeadScaleCall bad = call;
  bad.heads = -1;
  EXPECT_EQ("head_scale: values", where(bad, &y));
  bad = call;
  bad.factors = nullptr;
  EXPECT_EQ("head_scale: factors", where(bad, &y));
  EXPECT_EQ("head_scale: y", where(call, nullptr));
  EXPECT_EQ("head_scale: grad_values",
            ErrorOf([&] {
              HeadScaleBackward(call, &x, nullptr, &y, executor, nullptr);
            }).where());
  EXPECT_EQ(5.0f, y);
}

}  // namespace
}  // namespace tarn::testing
