#include "kernels/residual_norm/residual_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/rng.h"
#include "core/test_util.h"
#include "kernels/residual_norm/residual_norm_ref.h"
#include "kernels/simd_target.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using testing::Normals;
using testing::Widen;

const float* DataOrNull(const std::vector<float>& x) {
  return x.empty() ? nullptr : x.data();
}

// What is given besides x: each kind of call is a subset.
struct Parts {
  bool residual, bias, norm, grad_y, grad_s;
};
constexpr Parts kParts[] = {
    {true, true, true, true, false},    // post-norm
    {true, true, true, true, true},     // pre-norm, in the middle
    {true, true, false, false, true},   // pre-norm, at the end
    {false, false, true, true, false},  // a norm alone
    {true, false, true, false, true},   // y was not used
};

constexpr NormKind kKinds[] = {NormKind::kLayer, NormKind::kRms};

struct Problem {
  int64_t rows, width;
  ResidualNormOptions options;
  std::vector<float> residual, x, bias, gamma, beta, factors, grad_y, grad_s;
  std::vector<float> s, y, mean, inverse, workspace;
  std::vector<float> d_residual, d_x, d_bias, d_gamma, d_beta;
  float* again = nullptr;

  Problem(NormKind kind, const Parts& parts, int64_t rows, int64_t width,
          double p)
      : rows(rows), width(width), options{1e-5, {p, 11}, kind} {
    const int64_t n = rows * width;
    x = Normals(n, 1);
    if (parts.residual) residual = Normals(n, 2);
    if (parts.bias) bias = Normals(width, 3);
    if (parts.norm) gamma = Normals(width, 4);
    if (parts.norm && kind == NormKind::kLayer) beta = Normals(width, 5);
    if (parts.grad_y) grad_y = Normals(n, 6);
    if (parts.grad_s) grad_s = Normals(n, 7);
    factors.resize(n);
    SerialExecutor serial;
    DropoutScales(options.dropout, rows, width, factors.data(), serial);
    for (auto* result : {&s, &y, &d_residual, &d_x}) Poison(*result, n);
    for (auto* result : {&mean, &inverse}) Poison(*result, rows);
    for (auto* result : {&d_bias, &d_gamma, &d_beta}) Poison(*result, width);
    workspace.assign(ResidualNormWorkspaceFloats(rows, width), kNaN);
  }

  static void Poison(std::vector<float>& result, int64_t n) {
    result.assign(n + 1, kNaN);
    result.back() = 77.0f;
  }

  void Run(Executor& executor) {
    ResidualNormTensors t;
    t.residual = DataOrNull(residual);
    t.x = x.data();
    t.bias = DataOrNull(bias);
    t.gamma = DataOrNull(gamma);
    t.beta = DataOrNull(beta);
    t.s = s.data();
    t.y = y.data();
    t.mean = mean.data();
    t.inverse = inverse.data();
    ResidualNormForward(options, rows, width, t, executor);
    ResidualNormGradients g;
    g.grad_y = DataOrNull(grad_y);
    g.grad_s = DataOrNull(grad_s);
    g.s = s.data();
    g.mean = mean.data();
    g.inverse = inverse.data();
    g.gamma = DataOrNull(gamma);
    g.grad_residual = d_residual.data();
    g.grad_x = d_x.data();
    g.grad_bias = d_bias.data();
    g.grad_gamma = d_gamma.data();
    if (options.kind == NormKind::kLayer) {
      g.grad_beta = d_beta.data();
      g.beta = DataOrNull(beta);
    }
    g.y_again = again;
    ResidualNormBackward(options, rows, width, g, workspace.data(), executor);
  }

  reference::ResidualNormProblem Reference() const {
    reference::ResidualNormProblem p;
    p.rows = rows;
    p.width = width;
    p.eps = options.eps;
    p.kind = options.kind;
    p.residual = Widen(residual);
    p.x = Widen(x);
    p.bias = Widen(bias);
    p.gamma = Widen(gamma);
    p.beta = Widen(beta);
    p.factors = Widen(factors);
    return p;
  }
};

// |given - wanted| <= bound times the largest wanted entry (at least 1).
void ExpectNear(const std::vector<double>& wanted,
                const std::vector<float>& given, double bound) {
  double largest = 1;
  for (const double v : wanted) largest = std::max(largest, std::fabs(v));
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(wanted[i], given[i], bound * largest) << i;
  }
  EXPECT_EQ(77.0f, given.back());
}

// The reference's gradient against central differences.
void ExpectGradientEqualsDifferences(NormKind kind) {
  Problem floats(kind, kParts[1], 2, 5, 0.3);
  reference::ResidualNormProblem p = floats.Reference();
  const auto dy = Widen(floats.grad_y), ds = Widen(floats.grad_s);
  const auto loss = [&] {
    const auto r = reference::ResidualNorm(p);
    double sum = 0;
    for (size_t i = 0; i < dy.size(); ++i) {
      sum += r.y[i] * dy[i] + r.s[i] * ds[i];
    }
    return sum;
  };
  const auto g = reference::ResidualNormBackward(p, dy, ds);
  const auto check = [&](std::vector<double>& at,
                         const std::vector<double>& gradient) {
    constexpr double kStep = 1e-6;
    for (size_t i = 0; i < at.size(); ++i) {
      const double before = at[i];
      at[i] = before + kStep;
      const double up = loss();
      at[i] = before - kStep;
      const double down = loss();
      at[i] = before;
      EXPECT_NEAR(gradient[i], (up - down) / (2 * kStep), 1e-6) << i;
    }
  };
  check(p.residual, g.residual);
  check(p.x, g.x);
  check(p.bias, g.bias);
  check(p.gamma, g.gamma);
  check(p.beta, g.beta);
}

TEST(ResidualNormReference, GradientEqualsDifferences) {
  for (const NormKind kind : kKinds) ExpectGradientEqualsDifferences(kind);
}

class ResidualNormTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

void ExpectEqualsTheReference(Problem problem) {
  SerialExecutor executor;
  problem.Run(executor);
  const auto in = problem.Reference();
  const auto r = reference::ResidualNorm(in);
  ExpectNear(r.s, problem.s, 1e-6);
  // Rows of two entries may be close together: their difference is amplified
  // by up to 1 / sqrt(eps). An RMS norm takes no difference, but a row may be
  // near 0.
  const double bound = problem.width < 4 ? 3e-4 : 1e-5;
  ExpectNear(r.y, problem.y, bound);
  const auto g = reference::ResidualNormBackward(in, Widen(problem.grad_y),
                                                 Widen(problem.grad_s));
  ExpectNear(g.residual, problem.d_residual, bound);
  ExpectNear(g.x, problem.d_x, bound);
  ExpectNear(g.bias, problem.d_bias, 3 * bound);
  ExpectNear(g.gamma, problem.d_gamma, 3 * bound);
  if (problem.options.kind == NormKind::kRms) return;  // has no beta
  ExpectNear(g.beta, problem.d_beta, 3 * bound);
}

TEST_P(ResidualNormTest, EqualsTheReference) {
  for (const NormKind kind : kKinds) {
    for (const Parts& parts : kParts) {
      for (const int64_t width : {2, 3, 15, 16, 17, 100, 128, 131}) {
        for (const int64_t rows : {0, 1, 3, 65}) {
          for (const double p : {0.0, 0.3}) {
            ExpectEqualsTheReference(Problem(kind, parts, rows, width, p));
          }
        }
      }
    }
  }
}

void ExpectSameBits(const Problem& wanted, const Problem& given) {
  const auto same = [](const std::vector<float>& a,
                       const std::vector<float>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  EXPECT_TRUE(same(wanted.s, given.s));
  EXPECT_TRUE(same(wanted.y, given.y));
  EXPECT_TRUE(same(wanted.d_residual, given.d_residual));
  EXPECT_TRUE(same(wanted.d_x, given.d_x));
  EXPECT_TRUE(same(wanted.d_bias, given.d_bias));
  EXPECT_TRUE(same(wanted.d_gamma, given.d_gamma));
  EXPECT_TRUE(same(wanted.d_beta, given.d_beta));
}

TEST_P(ResidualNormTest, AnyExecutorGivesTheSameBits) {
  for (const NormKind kind : kKinds) {
    for (const Parts& parts : kParts) {
      Problem wanted(kind, parts, 300, 21, 0.2);
      SerialExecutor serial;
      wanted.Run(serial);
      for (const int threads : {1, 2, 3, 8}) {
        ThreadPool pool(threads);
        Problem given(kind, parts, 300, 21, 0.2);
        given.Run(pool);
        ExpectSameBits(wanted, given);
      }
    }
  }
}

TEST_P(ResidualNormTest, GradientMakesTheSameRowsAgain) {
  SerialExecutor executor;
  for (const NormKind kind : kKinds) {
    for (const int64_t width : {1, 16, 37}) {
      Problem problem(kind, kParts[1], 7, width, 0.2);
      problem.Run(executor);
      std::vector<float> again;
      Problem::Poison(again, 7 * width);
      const std::vector<float> d_x = problem.d_x;
      problem.again = again.data();
      problem.Run(executor);
      EXPECT_EQ(again, problem.y);  // including the guard after the rows
      EXPECT_EQ(d_x, problem.d_x);
    }
  }
}

// A row's results depend on that row alone.
TEST_P(ResidualNormTest, NaNStaysInItsRow) {
  SerialExecutor executor;
  for (const NormKind kind : kKinds) {
    Problem clean(kind, kParts[0], 5, 19, 0.0);
    Problem poisoned(kind, kParts[0], 5, 19, 0.0);
    poisoned.x[2 * 19 + 4] = kNaN;
    clean.Run(executor);
    poisoned.Run(executor);
    for (int64_t i = 0; i < 5 * 19; ++i) {
      if (i / 19 == 2) {
        EXPECT_TRUE(std::isnan(poisoned.y[i]));
      } else {
        EXPECT_EQ(clean.y[i], poisoned.y[i]);
        EXPECT_EQ(clean.d_x[i], poisoned.d_x[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ResidualNormTest,
                         ::testing::ValuesIn(SimdTargets()));

TEST(ResidualNormArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  ResidualNormTensors t;
  t.x = &x;
  const auto where = [&](int64_t rows, int64_t width) {
    return ErrorOf([&] { ResidualNormForward({}, rows, width, t, executor); })
        .where();
  };
  EXPECT_EQ("residual_norm: s", where(1, 1));
  t.gamma = &x;
  EXPECT_EQ("residual_norm: beta", where(1, 1));
  t.beta = &x;
  t.y = &y;
  EXPECT_EQ("residual_norm: mean", where(1, 1));
  EXPECT_EQ("residual_norm: x", where(1, 0));
  EXPECT_EQ("residual_norm: x", where(-1, 1));
  const auto of_rms = [&] {
    return ErrorOf([&] {
             ResidualNormForward({1e-5, {}, NormKind::kRms}, 1, 1, t, executor);
           })
        .where();
  };
  EXPECT_EQ("residual_norm: beta", of_rms());
  t.beta = nullptr;
  EXPECT_EQ("residual_norm: inverse", of_rms());  // needs no mean
  EXPECT_EQ(5.0f, y);
  ResidualNormGradients g;
  g.grad_beta = &y;
  EXPECT_EQ(
      "residual_norm: grad_beta",
      ErrorOf([&] {
        ResidualNormBackward({1e-5, {}, NormKind::kRms}, 1, 1, g, &y, executor);
      }).where());
  g.grad_beta = nullptr;
  EXPECT_EQ("residual_norm: workspace", ErrorOf([&] {
                                          ResidualNormBackward(
                                              {}, 1, 1, g, nullptr, executor);
                                        }).where());
}

}  // namespace
}  // namespace tarn
