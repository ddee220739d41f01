#include "kernels/moe/router.h"

#include <limits>

#include "core/test_util.h"
#include "kernels/moe/moe_ref.h"
#include "kernels/row_tests.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

using testing::Normals;
using testing::Widen;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<RouterOptions> AllRouters(int64_t top_k) {
  std::vector<RouterOptions> all;
  for (const RouterScores scores :
       {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
    for (const bool normalize : {false, true}) {
      all.push_back({scores, top_k, normalize, 1.0});
      all.push_back({scores, top_k, normalize, 2.5});
    }
  }
  static const std::vector<float> biases = Normals(64, 9);
  for (const bool normalize : {false, true}) {
    all.push_back(
        {RouterScores::kSigmoid, top_k, normalize, 2.5, biases.data()});
  }
  return all;
}

struct Routed {
  std::vector<int64_t> chosen;
  std::vector<float> weights, grad_logits;
  bool operator==(const Routed&) const = default;
};

Routed RunRouter(const RouterOptions& options, int64_t experts,
                 const std::vector<float>& logits,
                 const std::vector<float>& grad, Executor& executor) {
  const int64_t rows = static_cast<int64_t>(logits.size()) / experts;
  Routed r;
  r.chosen.assign(rows * options.top_k, -7);
  r.weights.assign(rows * options.top_k, kNaN);
  r.grad_logits.assign(rows * experts, kNaN);
  RouterForward(options, rows, experts, logits.data(), r.chosen.data(),
                r.weights.data(), executor);
  RouterBackward(options, rows, experts, logits.data(), r.chosen.data(),
                 grad.data(), r.grad_logits.data(), executor);
  return r;
}

void ExpectClose(const std::vector<double>& wanted,
                 const std::vector<float>& given) {
  ASSERT_EQ(wanted.size(), given.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(wanted[i], given[i], 2e-6 * (1 + std::fabs(wanted[i]))) << i;
  }
}

TEST(RouterReference, GradientEqualsDifferences) {
  std::vector<double> logits = Widen(Normals(4 * 6, 1));
  const std::vector<double> grad = Widen(Normals(4 * 3, 2));
  for (const RouterOptions& options : AllRouters(3)) {
    const auto chosen = reference::Route(options, 6, logits).chosen;
    testing::ExpectSlopes(
        [&] {
          return testing::Dot(reference::Route(options, 6, logits).weights,
                              grad);
        },
        logits, reference::RouteBackward(options, 6, logits, chosen, grad));
  }
}

TEST(Router, EqualsTheReference) {
  SerialExecutor executor;
  for (const int64_t experts : {1, 2, 7, 64}) {
    for (const int64_t rows : {0, 1, 67}) {
      for (const int64_t top_k : {int64_t{1}, (experts + 1) / 2, experts}) {
        for (const RouterOptions& options : AllRouters(top_k)) {
          std::vector<float> logits = Normals(rows * experts, 3);
          for (float& l : logits) l *= 3;
          const std::vector<float> grad = Normals(rows * top_k, 4);
          const Routed given =
              RunRouter(options, experts, logits, grad, executor);
          const auto wanted = reference::Route(options, experts, Widen(logits));
          EXPECT_EQ(wanted.chosen, given.chosen);
          ExpectClose(wanted.weights, given.weights);
          ExpectClose(reference::RouteBackward(options, experts, Widen(logits),
                                               wanted.chosen, Widen(grad)),
                      given.grad_logits);
        }
      }
    }
  }
}

TEST(Router, TiesAndNaNHaveADefinedOrder) {
  SerialExecutor executor;
  const std::vector<float> logits = {1, 2, 2, 1,    2, 0,    0, 0,
                                     0, 0, 3, kNaN, 9, kNaN, 1};
  const Routed given = RunRouter({RouterScores::kSoftmax, 3, true, 1}, 5,
                                 logits, Normals(9, 1), executor);
  EXPECT_EQ((std::vector<int64_t>{1, 2, 4, 0, 1, 2, 1, 3, 2}), given.chosen);
  for (int i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(1.0f / 3, given.weights[i]);
}

// The bias of an expert decides whether it is chosen, not what it weighs.
TEST(Router, BiasesChooseAlone) {
  SerialExecutor executor;
  const std::vector<float> logits = {0, 2, 0, -1}, biases = {0, 0, 0, 5};
  const Routed given =
      RunRouter({RouterScores::kSigmoid, 3, false, 1, biases.data()}, 4, logits,
                Normals(3, 1), executor);
  EXPECT_EQ((std::vector<int64_t>{3, 1, 0}), given.chosen);
  EXPECT_FLOAT_EQ(1 / (1 + std::exp(1.0f)), given.weights[0]);
}

TEST(Router, ExtremeLogitsStayFinite) {
  SerialExecutor executor;
  const std::vector<float> logits = {1e30f, -1e30f, 0, -200, -300, -250};
  for (const RouterOptions& options : AllRouters(2)) {
    const Routed given = RunRouter(options, 3, logits, Normals(4, 1), executor);
    for (const float w : given.weights) EXPECT_TRUE(std::isfinite(w));
    for (const float g : given.grad_logits) EXPECT_TRUE(std::isfinite(g));
  }
}

TEST(Router, SameBitsForAnyExecutor) {
  SerialExecutor serial;
  const auto logits = Normals(700 * 9, 5), grad = Normals(700 * 4, 6);
  for (const RouterOptions& options : AllRouters(4)) {
    testing::ExpectSameBits(RunRouter(options, 9, logits, grad, serial),
                            [&](Executor& executor, bool) {
                              return RunRouter(options, 9, logits, grad,
                                               executor);
                            });
  }
}

TEST(Router, RefusesBeforeWork) {
  SerialExecutor executor;
  std::vector<float> logits = {1, 2}, weights(2, 5.0f), grad(2);
  std::vector<int64_t> chosen(2, 3);
  const auto forward = [&](RouterOptions options, int64_t rows,
                           const float* l) {
    return ErrorOf([&] {
      RouterForward(options, rows, 2, l, chosen.data(), weights.data(),
                    executor);
    });
  };
  EXPECT_EQ("router: top_k", forward({{}, 3}, 1, logits.data()).where());
  EXPECT_EQ("router: top_k", forward({{}, 0}, 1, logits.data()).where());
  EXPECT_EQ(ErrorCode::kShape, forward({}, -1, logits.data()).code());
  EXPECT_EQ("router: logits", forward({}, 1, nullptr).where());
  EXPECT_EQ("router: scale",
            forward({{}, 1, true, std::numeric_limits<double>::infinity()}, 1,
                    logits.data())
                .where());
  EXPECT_EQ("router: bias",
            forward({RouterScores::kSoftmax, 1, true, 1, weights.data()}, 1,
                    logits.data())
                .where());
  EXPECT_EQ(ErrorCode::kOk, forward({}, 0, nullptr).code());
  EXPECT_EQ(5.0f, weights[0]);
  EXPECT_EQ("router: chosen[0]", ErrorOf([&] {
                                   RouterBackward({}, 1, 2, logits.data(),
                                                  chosen.data(), weights.data(),
                                                  grad.data(), executor);
                                 }).where());
}

}  // namespace
}  // namespace tarn
