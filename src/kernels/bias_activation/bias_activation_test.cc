#include "kernels/bias_activation/bias_activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/rng.h"
#include "core/test_util.h"
#include "kernels/bias_activation/bias_activation_ref.h"
#include "kernels/simd_target.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr Nonlinearity kAll[] = {Nonlinearity::kIdentity, Nonlinearity::kRelu,
                                 Nonlinearity::kGelu};

using testing::Normals;
using testing::Widen;

// Inputs and results of one call; results begin as NaN.
struct Problem {
  int64_t rows, width;
  BiasActivationOptions options;
  std::vector<float> x, bias, grad_y, factors, y, grad_x, grad_bias, workspace;

  Problem(Nonlinearity activation, int64_t rows, int64_t width, double p)
      : rows(rows), width(width), options{activation, {p, 7}} {
    const int64_t n = rows * width;
    x = Normals(n, 1);
    bias = Normals(width, 2);
    grad_y = Normals(n, 3);
    factors.resize(n);
    SerialExecutor serial;
    DropoutScales(options.dropout, rows, width, factors.data(), serial);
    y.assign(n + 1, kNaN);
    grad_x.assign(n + 1, kNaN);
    grad_bias.assign(width + 1, kNaN);
    y.back() = grad_x.back() = grad_bias.back() = 77.0f;
    workspace.assign(BiasActivationWorkspaceFloats(rows, width), kNaN);
  }

  void Run(Executor& executor) {
    BiasActivationForward(options, rows, width, x.data(), bias.data(), y.data(),
                          executor);
    BiasActivationGradients g;
    g.grad_y = grad_y.data();
    g.y = y.data();
    g.x = x.data();
    g.bias = bias.data();
    g.grad_x = grad_x.data();
    g.grad_bias = grad_bias.data();
    BiasActivationBackward(options, rows, width, g, workspace.data(), executor);
  }
};

// |given - wanted| <= bound (1 + |wanted|).
void ExpectNear(const std::vector<double>& wanted,
                const std::vector<float>& given, double bound) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(wanted[i], given[i], bound * (1 + std::fabs(wanted[i]))) << i;
  }
  EXPECT_EQ(77.0f, given.back());  // the guard after the result
}

// The reference's slope against central differences.
TEST(BiasActivationReference, GradientEqualsDifferences) {
  const std::vector<double> bias = {0.3, -0.2, 0.1};
  const std::vector<double> factors = {1.25, 0, 1.25, 1.25, 1.25, 1.25};
  const std::vector<double> x = {0.5, -0.4, 1.7, -2.0, 0.6, -0.9};
  const std::vector<double> dy = {1, 2, -1, 0.5, 3, -2};
  constexpr double kStep = 1e-6;
  for (const Nonlinearity activation : kAll) {
    const auto loss = [&](const std::vector<double>& at,
                          const std::vector<double>& b) {
      const auto y = reference::BiasActivation(activation, at, b, factors);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    const auto difference = [&](std::vector<double> at, std::vector<double> b,
                                bool of_bias, size_t i) {
      double& moved = of_bias ? b[i] : at[i];
      moved += kStep;
      const double up = loss(at, b);
      moved -= 2 * kStep;
      return (up - loss(at, b)) / (2 * kStep);
    };
    const auto g =
        reference::BiasActivationBackward(activation, x, bias, factors, dy);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(g.x[i], difference(x, bias, false, i), 1e-7);
    }
    for (size_t i = 0; i < bias.size(); ++i) {
      EXPECT_NEAR(g.bias[i], difference(x, bias, true, i), 1e-7);
    }
  }
}

class BiasActivationTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(BiasActivationTest, EqualsTheReference) {
  SerialExecutor executor;
  for (const Nonlinearity activation : kAll) {
    for (const int64_t width : {1, 3, 15, 16, 17, 31, 100, 128, 129, 257}) {
      for (const int64_t rows : {1, 2, 65}) {
        for (const double p : {0.0, 0.3}) {
          Problem problem(activation, rows, width, p);
          problem.Run(executor);
          const auto x = Widen(problem.x), bias = Widen(problem.bias);
          const auto factors = Widen(problem.factors);
          // 3e-7 from GELU's formula times the factor 1 / 0.7, and rounding.
          ExpectNear(reference::BiasActivation(activation, x, bias, factors),
                     problem.y, 1e-6);
          const auto g = reference::BiasActivationBackward(
              activation, x, bias, factors, Widen(problem.grad_y));
          ExpectNear(g.x, problem.grad_x, 3e-6);
          // Sums of 65 rows.
          ExpectNear(g.bias, problem.grad_bias, 2e-5);
        }
      }
    }
  }
}

TEST_P(BiasActivationTest, AnyExecutorAndPlaceGiveTheSameBits) {
  for (const Nonlinearity activation : kAll) {
    Problem wanted(activation, 300, 37, 0.2);
    SerialExecutor serial;
    wanted.Run(serial);
    for (const int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads);
      Problem given(activation, 300, 37, 0.2);
      given.Run(pool);
      EXPECT_EQ(wanted.y, given.y);
      EXPECT_EQ(wanted.grad_x, given.grad_x);
      EXPECT_EQ(wanted.grad_bias, given.grad_bias);
    }
    // Results may replace operands: forward over x and backward over dy.
    Problem in_place(activation, 300, 37, 0.2);
    BiasActivationForward(in_place.options, 300, 37, in_place.x.data(),
                          in_place.bias.data(), in_place.x.data(), serial);
    EXPECT_EQ(0, std::memcmp(in_place.x.data(), wanted.y.data(),
                             in_place.x.size() * sizeof(float)));
    BiasActivationGradients g;
    g.grad_y = g.grad_x = in_place.grad_y.data();
    g.y = wanted.y.data();
    g.x = wanted.x.data();
    g.bias = wanted.bias.data();
    BiasActivationBackward(in_place.options, 300, 37, g, nullptr, serial);
    EXPECT_EQ(0, std::memcmp(in_place.grad_y.data(), wanted.grad_x.data(),
                             in_place.grad_y.size() * sizeof(float)));
  }
}

TEST_P(BiasActivationTest, NaNStaysInItsEntry) {
  SerialExecutor executor;
  for (const Nonlinearity activation : kAll) {
    Problem clean(activation, 4, 33, 0.0), poisoned(activation, 4, 33, 0.0);
    poisoned.x[40] = kNaN;
    clean.Run(executor);
    poisoned.Run(executor);
    EXPECT_TRUE(std::isnan(poisoned.y[40]));
    poisoned.y[40] = clean.y[40];
    EXPECT_EQ(clean.y, poisoned.y);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, BiasActivationTest,
                         ::testing::ValuesIn(SimdTargets()));

TEST(BiasActivationArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  const auto forward = [&](double p, int64_t rows, const float* from) {
    return ErrorOf([&] {
      BiasActivationForward({Nonlinearity::kRelu, {p, 1}}, rows, 1, from,
                            nullptr, &y, executor);
    });
  };
  EXPECT_EQ("dropout: probability", forward(1.0, 1, &x).where());
  EXPECT_EQ(ErrorCode::kShape, forward(0.0, -1, &x).code());
  EXPECT_EQ("bias_activation: x", forward(0.0, 1, nullptr).where());
  EXPECT_EQ(5.0f, y);
  BiasActivationGradients g;
  g.grad_y = &x;
  const auto backward = [&](Nonlinearity activation) {
    return ErrorOf([&] {
             BiasActivationBackward({activation, {}}, 1, 1, g, nullptr,
                                    executor);
           })
        .where();
  };
  EXPECT_EQ("bias_activation: y", backward(Nonlinearity::kRelu));
  EXPECT_EQ("bias_activation: x", backward(Nonlinearity::kGelu));
  g.grad_bias = &y;
  EXPECT_EQ("bias_activation: workspace", backward(Nonlinearity::kIdentity));
  EXPECT_EQ(ErrorCode::kOk, forward(0.0, 0, nullptr).code());
}

}  // namespace
}  // namespace tarn
