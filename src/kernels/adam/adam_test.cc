#include "kernels/adam/adam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/rng.h"
#include "core/test_util.h"
#include "kernels/simd_target.h"

namespace tarn {
namespace {

// One parameter by the formulas of the papers, in double.
struct Reference {
  double p, m = 0, v = 0;

  void Step(double g, const AdamStepOptions& o) {
    const double k = static_cast<double>(o.update);
    p -= o.lr * o.weight_decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double b1k = std::pow(o.beta1, k), b2k = std::pow(o.beta2, k);
    if (o.kind == AdamKind::kAdamW) {
      p -= o.lr * (m / (1 - b1k)) / (std::sqrt(v / (1 - b2k)) + o.eps);
      return;
    }
    const double inf = 2 / (1 - o.beta2) - 1;
    const double rho = inf - 2 * k * b2k / (1 - b2k);
    const double factor = rho < 5
                              ? 1
                              : std::sqrt((1 - b2k) * (rho - 4) / (inf - 4) *
                                          (rho - 2) / rho * inf / (inf - 2)) /
                                    (std::sqrt(v) + o.eps);
    p -= o.lr * m * factor / (1 - b1k);
  }
};

// A gradient that changes sign and size from step to step.
double Gradient(int64_t element, int64_t k) {
  return std::sin(1.7 * k + element) * std::pow(10.0, element % 5 - 3);
}

struct Tensor {
  std::vector<float> p, g, m, v;
  explicit Tensor(int64_t size) : p(size), g(size), m(size), v(size) {
    for (int64_t i = 0; i < size; ++i) p[i] = std::cos(0.1f * i);
  }
  void SetGradient(int64_t k) {
    for (size_t i = 0; i < g.size(); ++i) {
      g[i] = static_cast<float>(Gradient(static_cast<int64_t>(i), k));
    }
  }
  AdamTensor View(float scale) {
    return {
        p.data(), g.data(), m.data(), v.data(), static_cast<int64_t>(p.size()),
        scale};
  }
};

AdamStepOptions Options(AdamKind kind, int64_t update) {
  AdamStepOptions o;
  o.kind = kind;
  o.lr = 0.01;
  o.weight_decay = 0.1;
  o.update = update;
  return o;
}

class AdamTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

// 50 steps cross k = 6, from where RAdam's rate is rectified.
TEST_P(AdamTest, FollowsTheFormulas) {
  SerialExecutor executor;
  for (const AdamKind kind : {AdamKind::kAdamW, AdamKind::kRAdam}) {
    for (const int64_t size : {1, 15, 16, 17, 53}) {
      Tensor tensor(size), empty(0);
      constexpr float kScale = 0.5f;
      std::vector<Reference> wanted;
      for (const float p : tensor.p) wanted.push_back({p});
      for (int64_t k = 1; k <= 50; ++k) {
        tensor.SetGradient(k);
        AdamStep(Options(kind, k), {empty.View(1), tensor.View(kScale)},
                 executor);
        for (int64_t i = 0; i < size; ++i) {
          wanted[i].Step(static_cast<double>(tensor.g[i]) * kScale,
                         Options(kind, k));
          // float32 carried through k steps of about lr.
          ASSERT_NEAR(wanted[i].p, tensor.p[i], 1e-6 + 2e-7 * k)
              << k << ' ' << i;
        }
      }
    }
  }
}

TEST_P(AdamTest, AnyExecutorGivesTheSameBits) {
  const int64_t size = 40000;  // three runs
  for (const int threads : {1, 2, 3, 8}) {
    SerialExecutor serial;
    ThreadPool pool(threads);
    Tensor a(size), b(size);
    for (int64_t k = 1; k <= 7; ++k) {
      a.SetGradient(k);
      b.SetGradient(k);
      AdamStep(Options(AdamKind::kRAdam, k), {a.View(1)}, serial);
      AdamStep(Options(AdamKind::kRAdam, k), {b.View(1)}, pool);
    }
    EXPECT_EQ(a.p, b.p);
    EXPECT_EQ(a.m, b.m);
    EXPECT_EQ(a.v, b.v);
    EXPECT_EQ(SquaredNorms({{a.g.data(), size}}, serial),
              SquaredNorms({{b.g.data(), size}}, pool));
  }
}

TEST_P(AdamTest, NormsEqualDoubleSums) {
  SerialExecutor executor;
  Rng rng(4);
  for (const int64_t size : {1, 17, 16384, 16385, 50001}) {
    std::vector<float> x(size), y(3, 2.0f);
    double wanted = 0;
    for (float& v : x) {
      v = static_cast<float>(rng.Normal());
      wanted += static_cast<double>(v) * v;
    }
    const auto sums =
        SquaredNorms({{x.data(), size}, {nullptr, 0}, {y.data(), 3}}, executor);
    ASSERT_EQ(3u, sums.size());
    EXPECT_NEAR(wanted, sums[0], 1e-5 * wanted);
    EXPECT_EQ(0.0, sums[1]);
    EXPECT_EQ(12.0, sums[2]);
  }
  const std::vector<float> bad = {1.0f,
                                  std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(std::isnan(SquaredNorms({{bad.data(), 2}}, executor)[0]));
}

INSTANTIATE_TEST_SUITE_P(Targets, AdamTest, ::testing::ValuesIn(SimdTargets()));

TEST(AdamArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  Tensor tensor(3);
  tensor.SetGradient(1);
  const std::vector<float> before = tensor.p;
  const auto where = [&](AdamStepOptions o, bool null_m) {
    AdamTensor bad = tensor.View(1);
    if (null_m) bad.m = nullptr;
    return ErrorOf([&] {
             AdamStep(o, {tensor.View(1), bad}, executor);
           })
        .where();
  };
  AdamStepOptions o = Options(AdamKind::kAdamW, 1);
  EXPECT_EQ("adam: m", where(o, true));
  o.update = 0;
  EXPECT_EQ("adam: update", where(o, false));
  o = Options(AdamKind::kAdamW, 1);
  o.beta2 = 1.0;
  EXPECT_EQ("adam: beta2", where(o, false));
  o = Options(AdamKind::kAdamW, 1);
  o.lr = std::nan("");
  EXPECT_EQ("adam: lr", where(o, false));
  EXPECT_EQ(before, tensor.p);
}

}  // namespace
}  // namespace tarn
