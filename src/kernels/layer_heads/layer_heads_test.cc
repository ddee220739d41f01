#include "kernels/layer_heads/layer_heads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "kernels/aligned_buffer.h"
#include "kernels/layer_heads/layer_heads_ref.h"
#include "kernels/simd_target.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kEps = 1e-3;

struct Kind {
  bool norm;
  NormKind norm_kind;
  std::vector<int64_t> outputs;
  bool biased;
};
const Kind kKinds[] = {
    {true, NormKind::kLayer, {8, 8, 8}, true},
    {true, NormKind::kRms, {70, 5}, true},
    {false, NormKind::kLayer, {9, 64, 3, 1}, true},
    {true, NormKind::kLayer, {130}, false},
};

struct Problem {
  std::vector<float> x, gamma, beta, grad_y, y, n, mean, inverse;
  std::vector<float> grad_x, grad_gamma, grad_beta;
  std::vector<std::vector<float>> weights, biases, grad_weights, grad_biases;
  std::vector<LayerHeadsMap> maps;
  LayerHeadsCall call;
  LayerHeadsGradients gradients;

  Problem(const Kind& kind, int64_t rows, int64_t width) {
    uint64_t seed = 1;
    const auto normals = [&](int64_t size) {
      return testing::Normals(size, seed++);
    };
    x = normals(rows * width);
    if (kind.norm) gamma = normals(width);
    if (kind.norm && kind.norm_kind == NormKind::kLayer) beta = normals(width);
    for (const int64_t outputs : kind.outputs) {
      weights.push_back(normals(outputs * width));
      biases.push_back(normals(kind.biased ? outputs : 0));
      maps.push_back({weights.back().data(),
                      kind.biased ? biases.back().data() : nullptr, outputs});
    }
    call.rows = rows;
    call.width = width;
    call.x = x.data();
    call.gamma = kind.norm ? gamma.data() : nullptr;
    call.beta = beta.empty() ? nullptr : beta.data();
    call.eps = kEps;
    call.norm_kind = kind.norm_kind;
    call.maps = maps.data();
    call.count = static_cast<int64_t>(maps.size());
    grad_y = normals(rows * call.outputs());
    call.y = Poison(y, rows * call.outputs());
    if (kind.norm) {
      call.n = Poison(n, rows * width);
      call.mean = Poison(mean, rows);
      call.inverse = Poison(inverse, rows);
      gradients.grad_gamma = Poison(grad_gamma, width);
      if (!beta.empty()) gradients.grad_beta = Poison(grad_beta, width);
    }
    gradients.grad_y = grad_y.data();
    gradients.grad_x = Poison(grad_x, rows * width);
    grad_weights.resize(maps.size());
    grad_biases.resize(maps.size());
    for (size_t i = 0; i < maps.size(); ++i) {
      const int64_t outputs = maps[i].outputs;
      gradients.grad_weights[i] = Poison(grad_weights[i], outputs * width);
      if (kind.biased) {
        gradients.grad_biases[i] = Poison(grad_biases[i], outputs);
      }
    }
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  static float* Poison(std::vector<float>& to, int64_t size) {
    to.assign(static_cast<size_t>(size), kNaN);
    return to.data();
  }

  void Run(Executor& executor) {
    AlignedBuffer<float> workspace(LayerHeadsWorkspaceFloats(call, executor));
    LayerHeadsForward(call, workspace.data(), executor);
    std::fill(n.begin(), n.end(), kNaN);  // n holds no result
    AlignedBuffer<float> more(
        LayerHeadsGradientWorkspaceFloats(call, executor));
    std::fill(more.data(), more.data() + more.size(), kNaN);
    LayerHeadsBackward(call, gradients, more.data(), executor);
  }

  LayerHeadsNumbers Numbers() const {
    LayerHeadsNumbers in = {
        testing::Widen(x), testing::Widen(gamma), testing::Widen(beta), {}, {}};
    for (size_t i = 0; i < maps.size(); ++i) {
      in.weights.push_back(testing::Widen(weights[i]));
      in.biases.push_back(testing::Widen(biases[i]));
    }
    return in;
  }
};

TEST(LayerHeadsTest, IsTheDefinitionForEveryKindAndSize) {
  SerialExecutor serial;
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    for (const Kind& kind : kKinds) {
      for (const auto& [rows, width] :
           {std::pair<int64_t, int64_t>(1, 1), {5, 7}, {70, 33}, {200, 64}}) {
        Problem problem(kind, rows, width);
        problem.Run(serial);
        const std::vector<double> want =
            LayerHeadsRef(problem.Numbers(), static_cast<size_t>(width),
                          kind.norm_kind, kEps);
        ASSERT_EQ(want.size(), problem.y.size());
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(want[i], problem.y[i], 1e-4 * (1 + std::fabs(want[i])))
              << target << " " << rows << " " << width;
        }
      }
    }
  }
  ResetSimdTarget();
}

TEST(LayerHeadsTest, TheGradientIsThatOfTheDefinition) {
  ThreadPool pool(2);
  for (const Kind& kind : kKinds) {
    Problem problem(kind, 4, 6);
    problem.Run(pool);
    LayerHeadsNumbers numbers = problem.Numbers();
    const auto loss = [&] {
      const std::vector<double> y =
          LayerHeadsRef(numbers, 6, kind.norm_kind, kEps);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * problem.grad_y[i];
      return sum;
    };
    const auto check = [&](std::vector<double>& values,
                           const std::vector<float>& got) {
      ASSERT_EQ(values.size(), got.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const double held = values[i];
        constexpr double kStep = 1e-5;
        values[i] = held + kStep;
        const double above = loss();
        values[i] = held - kStep;
        const double want = (above - loss()) / (2 * kStep);
        values[i] = held;
        ASSERT_NEAR(want, got[i], 2e-4 * (1 + std::fabs(want)))
            << "kind " << &kind - kKinds << " " << i;
      }
    };
    check(numbers.x, problem.grad_x);
    check(numbers.gamma, problem.grad_gamma);
    check(numbers.beta, problem.grad_beta);
    for (size_t i = 0; i < problem.maps.size(); ++i) {
      check(numbers.weights[i], problem.grad_weights[i]);
      check(numbers.biases[i], problem.grad_biases[i]);
    }
  }
}

TEST(LayerHeadsTest, TheBitsAreTheSameForAnyExecutor) {
  SerialExecutor serial;
  ThreadPool pool(3);
  for (const Kind& kind : kKinds) {
    Problem one(kind, 333, 40), two(kind, 333, 40);
    one.Run(serial);
    two.Run(pool);
    const auto same = [](const std::vector<float>& a,
                         const std::vector<float>& b) {
      return a.size() == b.size() &&
             (a.empty() ||
              std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
    };
    EXPECT_TRUE(same(one.y, two.y) && same(one.grad_x, two.grad_x) &&
                same(one.grad_gamma, two.grad_gamma));
    for (size_t i = 0; i < one.maps.size(); ++i) {
      EXPECT_TRUE(same(one.grad_weights[i], two.grad_weights[i]));
      EXPECT_TRUE(same(one.grad_biases[i], two.grad_biases[i]));
    }
  }
}

TEST(LayerHeadsTest, BadArgumentsAreRefusedBeforeAnyWork) {
  SerialExecutor serial;
  Problem problem(kKinds[0], 3, 6);
  AlignedBuffer<float> workspace(
      LayerHeadsWorkspaceFloats(problem.call, serial));
  const auto refuse = [&](auto change) {
    LayerHeadsCall call = problem.call;
    change(call);
    LayerHeadsForward(call, workspace.data(), serial);
  };
  EXPECT_THROW(refuse([](auto& c) { c.rows = -1; }), ShapeError);
  EXPECT_THROW(refuse([](auto& c) { c.width = 0; }), ShapeError);
  EXPECT_THROW(refuse([](auto& c) { c.count = 0; }), ArgumentError);
  EXPECT_THROW(refuse([](auto& c) { c.count = 5; }), ArgumentError);
  EXPECT_THROW(refuse([](auto& c) { c.beta = nullptr; }), ArgumentError);
  EXPECT_THROW(refuse([](auto& c) { c.x = nullptr; }), ArgumentError);
  for (const float v : problem.y) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace tarn
