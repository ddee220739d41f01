#include "kernels/moe/experts.h"

#include <cstring>
#include <limits>

#include "core/test_util.h"
#include "kernels/aligned_buffer.h"
#include "kernels/moe/moe_ref.h"
#include "kernels/row_tests.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

using testing::Normals;
using testing::Widen;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr ExpertActivation kActivations[] = {
    ExpertActivation::kSilu, ExpertActivation::kGelu,
    ExpertActivation::kGeluTanh, ExpertActivation::kRelu,
    ExpertActivation::kRelu2};

struct ExpertCase {
  int64_t tokens = 1, top_k = 1, experts = 1, d_model = 1, d_ff = 1;
  ExpertActivation activation = ExpertActivation::kSilu;
  bool gated = true;
};

// Inputs and results of one call; results and workspace begin as NaN.
struct ExpertCall {
  ExpertsProblem p;
  bool gated;
  std::vector<int64_t> chosen;
  std::vector<float> x, weights, weight1, weight2, weight3, grad_y;
  std::vector<float> y, product1, product3;
  std::vector<float> grad_x, grad_weights, grad1, grad2, grad3;

  explicit ExpertCall(const ExpertCase& c) : gated(c.gated) {
    p.tokens = c.tokens;
    p.top_k = c.top_k;
    p.experts = c.experts;
    p.d_model = c.d_model;
    p.d_ff = c.d_ff;
    p.activation = c.activation;
    const int64_t rows = c.tokens * c.top_k;
    const int64_t matrix = c.experts * c.d_ff * c.d_model;
    x = Normals(c.tokens * c.d_model, 1);
    weights = Normals(rows, 2);
    weight1 = Normals(matrix, 3);
    weight2 = Normals(matrix, 4);
    if (gated) weight3 = Normals(matrix, 5);
    grad_y = Normals(c.tokens * c.d_model, 6);
    // Distinct experts for each token; the last expert is never chosen where
    // there is another one.
    const int64_t used = std::max<int64_t>(c.top_k, c.experts - 1);
    for (int64_t a = 0; a < rows; ++a) {
      const int64_t t = a / c.top_k, j = a % c.top_k;
      chosen.push_back((t * t * 3 + j) % used);
    }
    y.assign(c.tokens * c.d_model, kNaN);
    grad_x = y;
    product1.assign(rows * c.d_ff, kNaN);
    product3 = product1;
    grad_weights.assign(rows, kNaN);
    grad1.assign(matrix, kNaN);
    grad2 = grad1;
    if (gated) grad3 = grad1;
    Point();
  }

  void Point() {
    p.x = x.data();
    p.chosen = chosen.data();
    p.weights = weights.data();
    p.weight1 = weight1.data();
    p.weight2 = weight2.data();
    p.weight3 = gated ? weight3.data() : nullptr;
  }

  void Run(Executor& executor) {
    Point();
    std::vector<int64_t> indices(ExpertsWorkspaceIndices(p), -5);
    AlignedBuffer<float> workspace(ExpertsWorkspaceFloats(p, executor, true));
    const auto poison = [&] {
      std::memset(workspace.data(), 0xFF, workspace.bytes());
    };
    poison();
    ExpertsForward(p, y.data(), product1.data(), product3.data(),
                   workspace.data(), indices.data(), executor);
    poison();
    ExpertsBackward(p,
                    {grad_y.data(), product1.data(), product3.data(),
                     grad_x.data(), grad_weights.data(), grad1.data(),
                     grad2.data(), gated ? grad3.data() : nullptr},
                    workspace.data(), indices.data(), executor);
  }

  reference::ExpertTensors Wide() const {
    return {Widen(x), Widen(weights), Widen(weight1), Widen(weight2),
            Widen(weight3)};
  }
  std::vector<std::vector<float>> Results() const {
    return {y, grad_x, grad_weights, grad1, grad2, grad3};
  }
};

// |given - wanted| relative to the largest entry: sums of some 100 products.
void ExpectSums(const std::vector<double>& wanted,
                const std::vector<float>& given, const char* what) {
  ASSERT_EQ(wanted.size(), given.size()) << what;
  double size = 1;
  for (const double w : wanted) size = std::max(size, std::fabs(w));
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(wanted[i], given[i], 2e-6 * size) << what << ", entry " << i;
  }
}

TEST(ExpertsReference, GradientEqualsDifferences) {
  for (const ExpertActivation activation : kActivations) {
    for (const bool gated : {false, true}) {
      ExpertCall call({3, 2, 4, 3, 5, activation, gated});
      reference::ExpertTensors in = call.Wide();
      const std::vector<double> grad_y = Widen(call.grad_y);
      const auto loss = [&] {
        return testing::Dot(reference::Experts(call.p, in), grad_y);
      };
      const auto g = reference::ExpertsBackward(call.p, in, grad_y);
      // Sums over 15 products of numbers near 1, at steps of 1e-6.
      testing::ExpectSlopes(loss, in.x, g.x, 1e-6);
      testing::ExpectSlopes(loss, in.weights, g.weights, 1e-6);
      testing::ExpectSlopes(loss, in.weight1, g.weight1, 1e-6);
      testing::ExpectSlopes(loss, in.weight2, g.weight2, 1e-6);
      testing::ExpectSlopes(loss, in.weight3, g.weight3, 1e-6);
    }
  }
}

class ExpertsTest : public testing::SimdTargetTest {};

TEST_P(ExpertsTest, EqualTheReference) {
  const ExpertCase cases[] = {{0, 2, 4, 3, 5},    {1, 1, 1, 1, 1},
                              {1, 2, 3, 17, 33},  {5, 2, 4, 16, 70},
                              {67, 3, 6, 19, 31}, {3, 4, 4, 70, 15},
                              {40, 1, 9, 33, 17}};
  SerialExecutor serial;
  for (ExpertCase c : cases) {
    for (const ExpertActivation activation : kActivations) {
      for (const bool gated : {false, true}) {
        c.activation = activation;
        c.gated = gated;
        ExpertCall call(c);
        call.Run(serial);
        const reference::ExpertTensors in = call.Wide();
        ExpectSums(reference::Experts(call.p, in), call.y, "y");
        const auto g =
            reference::ExpertsBackward(call.p, in, Widen(call.grad_y));
        ExpectSums(g.x, call.grad_x, "grad_x");
        ExpectSums(g.weights, call.grad_weights, "grad_weights");
        ExpectSums(g.weight1, call.grad1, "grad_weight1");
        ExpectSums(g.weight2, call.grad2, "grad_weight2");
        ExpectSums(g.weight3, call.grad3, "grad_weight3");
      }
    }
  }
}

TEST_P(ExpertsTest, AnyExecutorGivesTheSameBits) {
  SerialExecutor serial;
  const ExpertCase c{300, 2, 5, 21, 130};
  ExpertCall one(c);
  one.Run(serial);
  testing::ExpectSameBits(one.Results(), [&](Executor& executor, bool) {
    ExpertCall call(c);
    call.Run(executor);
    return call.Results();
  });
}

TEST_P(ExpertsTest, ATokenHasTheSameBitsAloneOrAmongOthers) {
  SerialExecutor serial;
  ExpertCall all({50, 2, 5, 21, 40});
  all.Run(serial);
  for (const int64_t t : {0, 13, 49}) {
    ExpertCall alone({1, 2, 5, 21, 40});
    std::copy_n(all.x.begin() + t * 21, 21, alone.x.begin());
    std::copy_n(all.weights.begin() + t * 2, 2, alone.weights.begin());
    std::copy_n(all.chosen.begin() + t * 2, 2, alone.chosen.begin());
    alone.Run(serial);
    EXPECT_EQ(std::vector<float>(all.y.begin() + t * 21,
                                 all.y.begin() + (t + 1) * 21),
              alone.y);
  }
}

TEST_P(ExpertsTest, AnExpertThatNoTokenChoseIsNotRead) {
  SerialExecutor serial;
  ExpertCall clean({6, 2, 5, 9, 20}), poisoned({6, 2, 5, 9, 20});
  for (auto* weight :
       {&poisoned.weight1, &poisoned.weight2, &poisoned.weight3}) {
    std::fill(weight->begin() + 4 * 9 * 20, weight->end(), kNaN);
  }
  clean.Run(serial);
  poisoned.Run(serial);
  EXPECT_EQ(clean.Results(), poisoned.Results());
  for (const auto* grad : {&clean.grad1, &clean.grad2, &clean.grad3}) {
    for (size_t i = 4 * 9 * 20; i < grad->size(); ++i) EXPECT_EQ(0, (*grad)[i]);
  }
}

TEST_P(ExpertsTest, NaNStaysInItsToken) {
  SerialExecutor serial;
  ExpertCall clean({30, 2, 5, 9, 20}), poisoned({30, 2, 5, 9, 20});
  poisoned.x[7 * 9 + 2] = kNaN;
  clean.Run(serial);
  poisoned.Run(serial);
  for (int64_t i = 7 * 9; i < 8 * 9; ++i) {
    EXPECT_TRUE(std::isnan(poisoned.y[i]));
    poisoned.y[i] = clean.y[i];
  }
  EXPECT_EQ(clean.y, poisoned.y);
}

INSTANTIATE_TEST_SUITE_P(Targets, ExpertsTest,
                         ::testing::ValuesIn(SimdTargets()));

TEST(ExpertsArguments, RefusedBeforeWork) {
  SerialExecutor serial;
  const auto where = [&](auto change) {
    ExpertCall call({2, 1, 3, 4, 5});
    change(call);
    AlignedBuffer<float> workspace(1 << 17);
    std::vector<int64_t> indices(64);
    const Error error = ErrorOf([&] {
      ExpertsForward(call.p, call.y.data(), call.product1.data(),
                     call.product3.data(), workspace.data(), indices.data(),
                     serial);
    });
    EXPECT_TRUE(std::isnan(call.y[0]));
    return error.where();
  };
  EXPECT_EQ("experts: x", where([](ExpertCall& c) { c.p.x = nullptr; }));
  EXPECT_EQ("experts: weights",
            where([](ExpertCall& c) { c.p.weights = nullptr; }));
  EXPECT_EQ("experts: weight2",
            where([](ExpertCall& c) { c.p.weight2 = nullptr; }));
  EXPECT_EQ("experts: tokens, top_k, experts, d_model, d_ff",
            where([](ExpertCall& c) { c.p.d_ff = -1; }));
  EXPECT_EQ("experts: chosen[1]",
            where([](ExpertCall& c) { c.chosen[1] = 3; }));
}

}  // namespace
}  // namespace tarn
