#include "kernels/swiglu/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/test_util.h"
#include "kernels/simd_target.h"
#include "kernels/swiglu/swiglu_ref.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using testing::Normals;
using testing::Widen;

// Inputs and results of one call; results begin as NaN, a guard after each.
struct Problem {
  int64_t rows, width;
  DropoutOptions dropout;
  std::vector<float> gate, up, grad_y, factors;
  std::vector<float> y, grad_gate, grad_up, y_again;

  Problem(int64_t rows, int64_t width, double p)
      : rows(rows), width(width), dropout{p, 7} {
    const int64_t n = rows * width;
    gate = Normals(n, 1);
    for (float& g : gate) g *= 3;  // into both tails
    up = Normals(n, 2);
    grad_y = Normals(n, 3);
    factors.resize(n);
    SerialExecutor serial;
    DropoutScales(dropout, rows, width, factors.data(), serial);
    for (auto* result : {&y, &grad_gate, &grad_up, &y_again}) {
      result->assign(n + 1, kNaN);
      result->back() = 77.0f;
    }
  }

  SwigluGradients Gradients() {
    return {grad_y.data(),    gate.data(),    up.data(),
            grad_gate.data(), grad_up.data(), y_again.data()};
  }

  void Run(Executor& executor) {
    SwigluForward(dropout, rows, width, gate.data(), up.data(), y.data(),
                  executor);
    SwigluBackward(dropout, rows, width, Gradients(), executor);
  }
};

// |given - wanted| <= bound (1 + |wanted|).
void ExpectNear(const std::vector<double>& wanted,
                const std::vector<float>& given, double bound) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(wanted[i], given[i], bound * (1 + std::fabs(wanted[i]))) << i;
  }
  EXPECT_EQ(77.0f, given.back());
}

// The reference's gradient against central differences.
TEST(SwigluReference, GradientEqualsDifferences) {
  std::vector<double> gate = {0.5, -0.4, 1.7, -2.0, 6.0, -9.0};
  std::vector<double> up = {1.0, -0.3, 0.2, 2.0, -1.0, 0.7};
  const std::vector<double> factors = {1.25, 0, 1.25, 1.25, 1.25, 1.25};
  const std::vector<double> dy = {1, 2, -1, 0.5, 3, -2};
  const auto g = reference::SwigluBackward(gate, up, factors, dy);
  const auto check = [&](std::vector<double>& at,
                         const std::vector<double>& gradient) {
    constexpr double kStep = 1e-6;
    const auto loss = [&] {
      const auto y = reference::Swiglu(gate, up, factors);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    for (size_t i = 0; i < at.size(); ++i) {
      const double before = at[i];
      at[i] = before + kStep;
      const double up_loss = loss();
      at[i] = before - kStep;
      const double down_loss = loss();
      at[i] = before;
      EXPECT_NEAR(gradient[i], (up_loss - down_loss) / (2 * kStep), 1e-7) << i;
    }
  };
  check(gate, g.gate);
  check(up, g.up);
}

class SwigluTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(SwigluTest, EqualsTheReference) {
  SerialExecutor executor;
  for (const int64_t width : {1, 3, 15, 16, 17, 31, 100, 128, 129, 257}) {
    for (const int64_t rows : {0, 1, 2, 65}) {
      for (const double p : {0.0, 0.3}) {
        Problem problem(rows, width, p);
        problem.Run(executor);
        const auto gate = Widen(problem.gate), up = Widen(problem.up);
        const auto factors = Widen(problem.factors);
        // An exp, a division and some five products: under 1e-6 together.
        const auto y = reference::Swiglu(gate, up, factors);
        ExpectNear(y, problem.y, 1e-6);
        EXPECT_EQ(problem.y, problem.y_again);
        const auto g =
            reference::SwigluBackward(gate, up, factors, Widen(problem.grad_y));
        ExpectNear(g.gate, problem.grad_gate, 1e-6);
        ExpectNear(g.up, problem.grad_up, 1e-6);
      }
    }
  }
}

TEST_P(SwigluTest, AnyExecutorAndPlaceGiveTheSameBits) {
  Problem wanted(300, 37, 0.2);
  SerialExecutor serial;
  wanted.Run(serial);
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    Problem given(300, 37, 0.2);
    given.Run(pool);
    EXPECT_EQ(wanted.y, given.y);
    EXPECT_EQ(wanted.grad_gate, given.grad_gate);
    EXPECT_EQ(wanted.grad_up, given.grad_up);
  }
  for (const bool over_gate : {true, false}) {
    Problem in_place(300, 37, 0.2);
    std::vector<float>& to = over_gate ? in_place.gate : in_place.up;
    SwigluForward(in_place.dropout, 300, 37, in_place.gate.data(),
                  in_place.up.data(), to.data(), serial);
    to.push_back(77.0f);
    EXPECT_EQ(wanted.y, to);
  }
  // Every result of the gradient over an input.
  Problem in_place(300, 37, 0.2);
  for (auto* data : {&in_place.grad_y, &in_place.gate, &in_place.up}) {
    data->push_back(77.0f);
  }
  SwigluGradients g = in_place.Gradients();
  g.grad_gate = in_place.up.data();
  g.grad_up = in_place.grad_y.data();
  g.y = in_place.gate.data();
  SwigluBackward(in_place.dropout, 300, 37, g, serial);
  EXPECT_EQ(wanted.grad_gate, in_place.up);
  EXPECT_EQ(wanted.grad_up, in_place.grad_y);
  EXPECT_EQ(wanted.y, in_place.gate);
}

TEST_P(SwigluTest, WhatIsNotWantedIsNotWritten) {
  SerialExecutor serial;
  Problem wanted(3, 21, 0.0), given(3, 21, 0.0);
  wanted.Run(serial);
  SwigluGradients g = given.Gradients();
  g.grad_up = g.y = nullptr;
  SwigluBackward(given.dropout, 3, 21, g, serial);
  EXPECT_EQ(wanted.grad_gate, given.grad_gate);
  EXPECT_TRUE(std::isnan(given.grad_up[0]));
  EXPECT_TRUE(std::isnan(given.y_again[0]));
}

// Rows and entries are independent; far from 0 the curve is 0 or the identity.
TEST_P(SwigluTest, NaNStaysInItsEntryAndTheTailsAreExact) {
  SerialExecutor serial;
  Problem clean(4, 33, 0.0), poisoned(4, 33, 0.0);
  poisoned.gate[40] = kNaN;
  clean.Run(serial);
  poisoned.Run(serial);
  for (auto [a, b] : {std::pair{&clean.y, &poisoned.y},
                      std::pair{&clean.grad_gate, &poisoned.grad_gate},
                      std::pair{&clean.grad_up, &poisoned.grad_up}}) {
    EXPECT_TRUE(std::isnan((*b)[40]));
    (*b)[40] = (*a)[40];
    EXPECT_EQ(*a, *b);
  }
  const std::vector<float> gate = {-1e30f, -200.0f, 1e30f, kInfinity, 0.0f};
  const std::vector<float> one(5, 1.0f);
  std::vector<float> y(5), slope(5);
  SwigluForward({}, 1, 5, gate.data(), one.data(), y.data(), serial);
  EXPECT_EQ((std::vector<float>{0, 0, 1e30f, kInfinity, 0}), y);
  SwigluGradients g;
  g.grad_y = g.up = one.data();
  g.gate = gate.data();
  g.grad_gate = slope.data();
  SwigluBackward({}, 1, 5, g, serial);
  EXPECT_EQ((std::vector<float>{0, 0, 1, 1, 0.5f}), slope);
}

INSTANTIATE_TEST_SUITE_P(Targets, SwigluTest,
                         ::testing::ValuesIn(SimdTargets()));

TEST(SwigluArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  const auto forward = [&](double p, int64_t rows, const float* gate,
                           const float* up) {
    return ErrorOf([&] {
      SwigluForward({p, 1}, rows, 1, gate, up, &y, executor);
    });
  };
  EXPECT_EQ("dropout: probability", forward(1.0, 1, &x, &x).where());
  EXPECT_EQ(ErrorCode::kShape, forward(0.0, -1, &x, &x).code());
  EXPECT_EQ("swiglu: gate", forward(0.0, 1, nullptr, &x).where());
  EXPECT_EQ("swiglu: up", forward(0.0, 1, &x, nullptr).where());
  EXPECT_EQ(ErrorCode::kOk, forward(0.0, 0, nullptr, nullptr).code());
  SwigluGradients g;
  g.gate = g.up = &x;
  g.grad_up = &y;
  const auto backward = [&] {
    return ErrorOf([&] { SwigluBackward({}, 1, 1, g, executor); }).where();
  };
  EXPECT_EQ("swiglu: grad_y", backward());
  g.grad_y = &x;
  g.gate = nullptr;
  EXPECT_EQ("swiglu: gate", backward());
  EXPECT_EQ(5.0f, y);
}

}  // namespace
}  // namespace tarn
