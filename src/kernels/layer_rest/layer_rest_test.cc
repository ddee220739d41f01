#include "kernels/layer_rest/layer_rest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/error.h"
#include "kernels/aligned_buffer.h"
#include "kernels/layer_rest/layer_rest_ref.h"
#include "kernels/reversed_executor.h"
#include "kernels/simd_target.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Kind {
  Nonlinearity activation;
  NormKind norm;
  bool post;
  bool biased;
  double mixed_dropout, hidden_dropout, branch_dropout;
};
const Kind kKinds[] = {
    {Nonlinearity::kGelu, NormKind::kLayer, false, true, 0, 0, 0},
    {Nonlinearity::kRelu, NormKind::kLayer, false, true, 0.2, 0.1, 0.3},
    {Nonlinearity::kGelu, NormKind::kRms, false, false, 0, 0.2, 0},
    {Nonlinearity::kRelu, NormKind::kLayer, true, true, 0, 0, 0},
    {Nonlinearity::kGelu, NormKind::kLayer, true, false, 0.2, 0, 0.1},
    {Nonlinearity::kGelu, NormKind::kLayer, true, true, 0, 0.3, 0.1},
    {Nonlinearity::kRelu, NormKind::kRms, true, true, 0.1, 0.2, 0},
    {Nonlinearity::kGelu, NormKind::kLayer, false, true, 0.1, 0, 0}};

// A call in its own memory; results begin as NaN.
struct Problem {
  LayerRestOptions options;
  LayerRestShape shape;
  std::map<std::string, std::vector<float>> in, out;
  LayerRestWeights weights;
  LayerRestTensors tensors;
  LayerRestGradients gradients;

  Problem(const Kind& kind, const LayerRestShape& wanted) : shape(wanted) {
    options.activation = kind.activation;
    options.norm_kind = kind.norm;
    options.eps = 1e-3;
    options.mixed_dropout = {kind.mixed_dropout, 11};
    options.hidden_dropout = {kind.hidden_dropout, 12};
    options.branch_dropout = {kind.branch_dropout, 13};
    const bool beta = kind.norm == NormKind::kLayer;
    const int64_t d = shape.width, v = shape.mixed, f = shape.hidden;
    const int64_t rows = shape.rows;
    In("x", rows * d);
    In("mixed", rows * v);
    In("out_weight", d * v, 1 / std::sqrt(static_cast<double>(v)));
    In("out_bias", kind.biased ? d : 0);
    In("gamma", d);
    In("beta", beta ? d : 0);
    In("weight1", f * d, 1 / std::sqrt(static_cast<double>(d)));
    In("bias1", f);
    In("weight2", d * f, 1 / std::sqrt(static_cast<double>(f)));
    In("bias2", kind.biased ? d : 0);
    In("end_gamma", kind.post ? d : 0);
    In("end_beta", kind.post && beta ? d : 0);
    In("grad_y", rows * d);
    weights = {At("out_weight"), At("out_bias"), At("gamma"),   At("beta"),
               At("weight1"),    At("bias1"),    At("weight2"), At("bias2"),
               At("end_gamma"),  At("end_beta")};
    tensors.x = At("x");
    tensors.mixed = At("mixed");
    tensors.y = Out("y", rows * d);
    tensors.s = Out("s", rows * d);
    tensors.n = Out("n", rows * d);
    tensors.kept = Out("kept", rows * f);
    tensors.mean = Out("mean", rows);
    tensors.inverse = Out("inverse", rows);
    if (kind.post) {
      tensors.end_s = Out("end_s", rows * d);
      tensors.end_mean = Out("end_mean", rows);
      tensors.end_inverse = Out("end_inverse", rows);
    }
    LayerRestGradients& g = gradients;
    g.grad_y = At("grad_y");
    const struct {
      const char* of;
      float** place;
    } places[] = {{"x", &g.grad_x},
                  {"mixed", &g.grad_mixed},
                  {"out_weight", &g.grad_out_weight},
                  {"out_bias", &g.grad_out_bias},
                  {"gamma", &g.grad_gamma},
                  {"beta", &g.grad_beta},
                  {"weight1", &g.grad_weight1},
                  {"bias1", &g.grad_bias1},
                  {"weight2", &g.grad_weight2},
                  {"bias2", &g.grad_bias2},
                  {"end_gamma", &g.grad_end_gamma},
                  {"end_beta", &g.grad_end_beta}};
    for (const auto& [of, place] : places) {
      const size_t size = in[of].size();
      if (size > 0) *place = Out(std::string("grad_") + of, size);
    }
    const int64_t block = LayerRestBlockRows(rows);
    g.hidden = Out("place hidden", block * f);
    g.grad_hidden = Out("place grad_hidden", block * f);
    g.grad_branch = Out("place grad_branch", block * d);
    g.grad_base = Out("place grad_base", block * d);
    g.grad_out = Out("place grad_out", block * d);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  void In(const std::string& name, int64_t size, double scale = 1) {
    in[name] = testing::Normals(size, in.size() + 1);
    for (float& v : in[name]) v = static_cast<float>(v * scale);
  }
  const float* At(const std::string& name) {
    return in[name].empty() ? nullptr : in[name].data();
  }
  float* Out(const std::string& name, int64_t size) {
    out[name].assign(static_cast<size_t>(size), kNaN);
    return out[name].data();
  }

  void Run(Executor& executor) {
    for (auto& [name, values] : out) {
      std::fill(values.begin(), values.end(), kNaN);
    }
    AlignedBuffer<float> workspace(LayerRestWorkspaceFloats(shape, executor));
    LayerRestForward(options, shape, weights, tensors, workspace.data(),
                     executor);
    std::fill(out["n"].begin(), out["n"].end(), kNaN);  // holds no result
    AlignedBuffer<float> more(
        LayerRestGradientWorkspaceFloats(shape, executor));
    std::fill(more.data(), more.data() + more.size(), kNaN);
    LayerRestBackward(options, shape, weights, tensors, gradients, more.data(),
                      executor);
  }

  LayerRestNumbers Numbers() const {
    const auto wide = [&](const char* name) {
      return testing::Widen(in.at(name));
    };
    return {wide("x"),        wide("mixed"),     wide("out_weight"),
            wide("out_bias"), wide("gamma"),     wide("beta"),
            wide("weight1"),  wide("bias1"),     wide("weight2"),
            wide("bias2"),    wide("end_gamma"), wide("end_beta")};
  }
};

const LayerRestShape kShapes[] = {
    {1, 8, 8, 32},
    {5, 7, 9, 20},
    {70, 33, 17, 130},
    {200, 64, 64, 70},
    {2100, 6, 5, 7}};  // two blocks of the gradient

TEST(LayerRestTest, IsTheDefinitionForEveryKindAndSize) {
  SerialExecutor serial;
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    for (const Kind& kind : kKinds) {
      for (const LayerRestShape& shape : kShapes) {
        Problem problem(kind, shape);
        problem.Run(serial);
        const std::vector<double> want =
            LayerRestRef(problem.options, shape, problem.Numbers());
        const std::vector<float>& got = problem.out["y"];
        ASSERT_EQ(want.size(), got.size());
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(want[i], got[i], 3e-5 * (1 + std::fabs(want[i])))
              << target << " kind " << &kind - kKinds << " " << shape.rows;
        }
      }
    }
  }
  ResetSimdTarget();
}

TEST(LayerRestTest, TheGradientIsThatOfTheDefinition) {
  ThreadPool pool(2);
  for (const Kind& kind : kKinds) {
    Problem problem(kind, {3, 6, 5, 9});
    problem.Run(pool);
    LayerRestNumbers numbers = problem.Numbers();
    const auto loss = [&] {
      const std::vector<double> y =
          LayerRestRef(problem.options, problem.shape, numbers);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        sum += y[i] * problem.in["grad_y"][i];
      }
      return sum;
    };
    const struct {
      const char* name;
      std::vector<double>& values;
    } all[] = {{"x", numbers.x},
               {"mixed", numbers.mixed},
               {"out_weight", numbers.out_weight},
               {"out_bias", numbers.out_bias},
               {"gamma", numbers.gamma},
               {"beta", numbers.beta},
               {"weight1", numbers.weight1},
               {"bias1", numbers.bias1},
               {"weight2", numbers.weight2},
               {"bias2", numbers.bias2},
               {"end_gamma", numbers.end_gamma},
               {"end_beta", numbers.end_beta}};
    for (const auto& [name, values] : all) {
      const std::vector<float>& got = problem.out[std::string("grad_") + name];
      ASSERT_EQ(got.size(), values.size()) << name;
      for (size_t i = 0; i < values.size(); ++i) {
        const double held = values[i];
        constexpr double kStep = 1e-5;
        values[i] = held + kStep;
        const double above = loss();
        values[i] = held - kStep;
        const double want = (above - loss()) / (2 * kStep);
        values[i] = held;
        ASSERT_NEAR(want, got[i], 2e-4 * (1 + std::fabs(want)))
            << "kind " << &kind - kKinds << " " << name << " " << i;
      }
    }
  }
}

TEST(LayerRestTest, TheBitsAreTheSameForAnyExecutor) {
  SerialExecutor serial;
  testing::ReversedExecutor reversed;
  ThreadPool pool(3);
  for (const Kind& kind : kKinds) {
    Problem problem(kind, {333, 40, 24, 72});
    problem.Run(serial);
    const auto want = problem.out;
    for (Executor* executor :
         {static_cast<Executor*>(&reversed), static_cast<Executor*>(&pool)}) {
      problem.Run(*executor);
      for (const auto& [name, values] : want) {
        EXPECT_EQ(std::memcmp(values.data(), problem.out[name].data(),
                              values.size() * sizeof(float)),
                  0)
            << name;
      }
    }
  }
}

TEST(LayerRestTest, NoRowsGiveGradientsOfZero) {
  SerialExecutor serial;
  Problem problem(kKinds[0], {0, 6, 5, 9});
  problem.Run(serial);
  for (const char* name : {"grad_out_weight", "grad_weight1", "grad_bias1",
                           "grad_weight2", "grad_gamma", "grad_bias2"}) {
    for (const float v : problem.out[name]) EXPECT_EQ(v, 0.0f) << name;
  }
}

TEST(LayerRestTest, BadArgumentsAreRefusedBeforeAnyWork) {
  SerialExecutor serial;
  Problem problem(kKinds[0], {3, 6, 5, 9});
  AlignedBuffer<float> workspace(
      LayerRestWorkspaceFloats(problem.shape, serial));
  const auto refuse = [&](auto change) {
    LayerRestShape shape = problem.shape;
    LayerRestOptions options = problem.options;
    LayerRestTensors tensors = problem.tensors;
    change(shape, options, tensors);
    LayerRestForward(options, shape, problem.weights, tensors, workspace.data(),
                     serial);
  };
  EXPECT_THROW(refuse([](auto& s, auto&, auto&) { s.rows = -1; }), ShapeError);
  EXPECT_THROW(refuse([](auto& s, auto&, auto&) { s.hidden = 0; }), ShapeError);
  EXPECT_THROW(refuse([](auto&, auto& o, auto&) {
                 o.activation = Nonlinearity::kIdentity;
               }),
               ArgumentError);
  EXPECT_THROW(
      refuse([](auto&, auto& o, auto&) { o.hidden_dropout.probability = 1; }),
      ArgumentError);
  EXPECT_THROW(refuse([](auto&, auto&, auto& t) { t.n = nullptr; }),
               ArgumentError);
  for (const float v : problem.out["y"]) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace tarn
