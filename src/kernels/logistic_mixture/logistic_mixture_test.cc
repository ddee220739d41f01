#include "kernels/logistic_mixture/logistic_mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/rng.h"
#include "core/test_util.h"
#include "kernels/logistic_mixture/logistic_mixture_ref.h"
#include "kernels/simd_target.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kGuard = 77.0f;

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

// One call; results begin as NaN, with a guard after them.
struct Problem {
  int64_t rows, k;
  Floats params, weights, losses, gradients;
  std::vector<uint8_t> targets;

  Problem(int64_t rows, int64_t k, uint64_t seed) : rows(rows), k(k) {
    Rng rng(seed);
    for (int64_t row = 0; row < rows; ++row) {
      const auto add = [&](auto draw) {
        for (int64_t i = 0; i < k; ++i) {
          params.push_back(static_cast<float>(draw()));
        }
      };
      add([&] { return 2 * rng.Normal(); });
      add([&] { return 3 * rng.Uniform() - 1.5; });
      add([&] { return 11 * rng.Uniform() - 9; });  // some are clamped
      weights.push_back(static_cast<float>(rng.Normal()));
      // A quarter of the targets are at the ends of the range.
      const uint64_t end = rng.Below(8);
      targets.push_back(end == 0   ? 0
                        : end == 1 ? 255
                                   : static_cast<uint8_t>(rng.Below(256)));
    }
    losses.assign(rows + 1, kNaN);
    gradients.assign(3 * k * rows + 1, kNaN);
    losses.back() = gradients.back() = kGuard;
  }
  LogisticMixtureArgs Args(bool weighted) {
    LogisticMixtureArgs args;
    args.rows = rows;
    args.n_mixtures = k;
    args.params = params.data();
    args.targets = targets.data();
    args.weights = weighted ? weights.data() : nullptr;
    args.losses = losses.data();
    args.gradients = gradients.data();
    return args;
  }
  void Run(Executor& executor, bool weighted = false) {
    LogisticMixtureLoss(Args(weighted), executor);
  }
  Doubles Row(int64_t row) const {
    const auto begin = params.begin() + row * 3 * k;
    return {begin, begin + 3 * k};
  }
  // The steepest component's 1 / s, which multiplies the rounding of y - mu.
  double Steepness(int64_t row) const {
    const Doubles p = Row(row);
    const double least = *std::min_element(p.begin() + 2 * k, p.end());
    return std::exp(-std::max(least, -7.0));
  }
};

// The reference's slopes against central differences, and its probabilities
// against their sum.
TEST(LogisticMixtureReference, GradientEqualsDifferences) {
  constexpr double kStep = 1e-6;
  for (const int byte : {0, 1, 100, 127, 254, 255}) {
    // The last component is clamped, the second is in the tail where the
    // density stands for the probability (except for the byte at its mean).
    const Doubles params = {0.3, -0.4, 1.0, -0.2, 0.9, 0.1, -2.0, -4.5, -7.5};
    const auto row =
        reference::LogisticMixture(params, static_cast<uint8_t>(byte));
    ASSERT_GT(row.threshold_distance, 0.01) << byte;
    for (size_t i = 0; i < params.size(); ++i) {
      Doubles up = params, down = params;
      up[i] += kStep;
      down[i] -= kStep;
      const auto loss = [&](const Doubles& at) {
        return reference::LogisticMixture(at, static_cast<uint8_t>(byte)).loss;
      };
      const double slope = (loss(up) - loss(down)) / (2 * kStep);
      EXPECT_NEAR(row.gradient[i], slope, 1e-6 * (1 + std::fabs(slope)))
          << byte << " " << i;
    }
  }
}

TEST(LogisticMixtureReference, ProbabilitiesSumToOne) {
  double sum = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto row = reference::LogisticMixture({1, -1, 0.2, -0.4, -0.5, -1.5},
                                                static_cast<uint8_t>(byte));
    sum += std::exp(-row.loss);
  }
  EXPECT_NEAR(sum, 1, 1e-12);
}

class LogisticMixtureTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
  SerialExecutor serial_;
};

TEST_P(LogisticMixtureTest, EqualsTheReference) {
  int64_t compared = 0, all = 0;
  double loss_error = 0;
  for (const int64_t k : {1, 2, 5, 10, 17}) {
    for (const int64_t rows : {1, 2, 7, 16, 17, 65, 300}) {
      Problem p(rows, k, static_cast<uint64_t>(k * 1000 + rows));
      p.Run(serial_);
      for (int64_t row = 0; row < rows; ++row, ++all) {
        const auto want =
            reference::LogisticMixture(p.Row(row), p.targets[row]);
        // The formula jumps there: rounding decides which side counts.
        if (want.threshold_distance < 1e-2) continue;
        ++compared;
        const double steep = p.Steepness(row);
        const double bound = 3e-6 + 2e-7 * steep;
        const double error = std::fabs(want.loss - p.losses[row]);
        ASSERT_LE(error, bound * (1 + std::fabs(want.loss)))
            << k << " " << rows << " " << row;
        loss_error = std::max(loss_error, error / (1 + std::fabs(want.loss)));
        for (int64_t i = 0; i < 3 * k; ++i) {
          const double scale = i >= k && i < 2 * k ? steep : 1.0;
          const double wanted = want.gradient[i];
          ASSERT_NEAR(wanted, p.gradients[row * 3 * k + i],
                      3 * bound * (scale + std::fabs(wanted)))
              << k << " " << rows << " " << row << " " << i;
        }
      }
      EXPECT_EQ(p.losses.back(), kGuard);
      EXPECT_EQ(p.gradients.back(), kGuard);
    }
  }
  EXPECT_GT(compared, all * 9 / 10);
  EXPECT_GT(loss_error, 0);
  RecordProperty("largest_loss_error", std::to_string(loss_error));
}

// Means within a byte of the target and steep: the interval's formula; and one
// scale of everything else.
TEST_P(LogisticMixtureTest, KnownValues) {
  const auto loss = [&](float mean, float log_scale, uint8_t byte) {
    Problem p(1, 1, 1);
    p.params = {0.5f, mean, log_scale};
    p.targets = {byte};
    p.Run(serial_);
    return p.losses[0];
  };
  const double s = std::exp(-7.0);
  // Byte 255 with its mean at 1: all but the tail below 1 - 1/255.
  EXPECT_NEAR(loss(1, -7, 255), std::log1p(std::exp(-1 / 255.0 / s)), 1e-5);
  EXPECT_NEAR(loss(-1, -20, 0), std::log1p(std::exp(-1 / 255.0 / s)), 1e-5);
  // Far from the mean the density counts: here e^-m / (127.5 s), m = 80.
  const double mean = 2 * 200 / 255.0 - 1 - 80 * s;
  EXPECT_NEAR(loss(static_cast<float>(mean), -7, 200), 80 + std::log(127.5) - 7,
              1e-3);
  // The ends have no such rule: the loss is the distance to their own bound.
  EXPECT_NEAR(loss(0, -5, 0), (1 - 1 / 255.0) / std::exp(-5.0), 1e-4);
  EXPECT_NEAR(loss(0, -5, 255), (1 - 1 / 255.0) / std::exp(-5.0), 1e-4);
  // Flat: density 1 / (4 s), whatever the mean.
  for (const float t : {12.0f, 60.0f, 88.0f, 104.0f, 3000.0f}) {
    EXPECT_NEAR(loss(0.3f, t, 99), t + std::log(127.5 * 4), 1e-4 + 1e-6 * t);
  }
}

TEST_P(LogisticMixtureTest, ExtremeParametersStayFinite) {
  for (const float mean : {1e6f, -1e20f, 3e38f, -3e38f}) {
    for (const float t : {-kInfinity, -1e30f, -7.0f, 0.0f, 50.0f, 1e30f}) {
      for (const uint8_t byte : {uint8_t{0}, uint8_t{7}, uint8_t{255}}) {
        Problem p(1, 3, 5);
        p.params = {0, 0.5f, -kInfinity, 0.1f, mean, 0, -1, t, t};
        p.targets = {byte};
        p.Run(serial_);
        for (const float g : p.gradients) {
          EXPECT_TRUE(std::isfinite(g)) << mean << " " << t << " " << int{byte};
        }
        EXPECT_TRUE(std::isfinite(p.losses[0]));
        EXPECT_LT(p.losses[0], 20) << "the first component explains it";
        EXPECT_EQ(p.gradients[2], 0) << "a weight of 0";
        if (t < -7) {
          EXPECT_EQ(p.gradients[7], 0) << "clamped";
        }
      }
    }
  }
}

TEST_P(LogisticMixtureTest, NaNStaysInItsRow) {
  Problem clean(20, 4, 3);
  clean.Run(serial_);
  const std::pair<int64_t, float> poisons[] = {
      {0, kNaN},       {0, kInfinity}, {5, kNaN},      {5, kInfinity},
      {5, -kInfinity}, {11, kNaN},     {11, kInfinity}};
  for (const auto& [column, value] : poisons) {
    Problem p(20, 4, 3);
    p.params[7 * 12 + column] = value;
    p.Run(serial_);
    EXPECT_TRUE(std::isnan(p.losses[7])) << column << " " << value;
    p.losses[7] = clean.losses[7];
    for (int64_t i = 7 * 12; i < 8 * 12; ++i) {
      EXPECT_TRUE(std::isnan(p.gradients[i])) << column << " " << value;
      p.gradients[i] = clean.gradients[i];
    }
    EXPECT_EQ(p.losses, clean.losses);
    EXPECT_EQ(p.gradients, clean.gradients);
  }
  Problem none(1, 2, 3);
  none.params[0] = none.params[1] = -kInfinity;
  none.Run(serial_);
  EXPECT_TRUE(std::isnan(none.losses[0])) << "no component has a weight";
}

TEST_P(LogisticMixtureTest, WeightsScaleGradients) {
  Problem plain(33, 3, 4), weighted(33, 3, 4);
  weighted.weights[5] = 0;
  weighted.params[5 * 9 + 2] = kNaN;
  plain.Run(serial_);
  weighted.Run(serial_, true);
  for (int64_t i = 0; i < 33 * 9; ++i) {
    const float weight = weighted.weights[i / 9];
    const float want = weight == 0 ? 0 : plain.gradients[i] * weight;
    EXPECT_FLOAT_EQ(weighted.gradients[i], want) << i;
  }
  EXPECT_EQ(weighted.losses[6], plain.losses[6]);
}

TEST_P(LogisticMixtureTest, AnyExecutorAndAnyRowsGiveTheSameBits) {
  Problem wanted(300, 10, 6);
  wanted.Run(serial_, true);
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    Problem given(300, 10, 6);
    given.Run(pool, true);
    EXPECT_EQ(wanted.losses, given.losses);
    EXPECT_EQ(wanted.gradients, given.gradients);
  }
  for (int64_t row = 0; row < 300; row += 7) {
    Problem one(300, 10, 6);
    LogisticMixtureArgs args = one.Args(true);
    args.rows = 1;
    args.params += row * 30;
    args.targets += row;
    args.weights += row;
    float loss = kNaN;
    args.losses = &loss;
    LogisticMixtureLoss(args, serial_);
    EXPECT_EQ(loss, wanted.losses[row]);
    for (int64_t i = 0; i < 30; ++i) {
      EXPECT_EQ(one.gradients[i], wanted.gradients[row * 30 + i]);
    }
    args.gradients = nullptr;  // the loss does not need them
    loss = kNaN;
    LogisticMixtureLoss(args, serial_);
    EXPECT_EQ(loss, wanted.losses[row]);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LogisticMixtureTest,
                         ::testing::ValuesIn(SimdTargets()));

TEST(LogisticMixtureArguments, RefusedBeforeWork) {
  SerialExecutor serial;
  Problem p(2, 3, 1);
  const auto refused = [&](auto change) {
    LogisticMixtureArgs args = p.Args(false);
    change(args);
    return ErrorOf([&] { LogisticMixtureLoss(args, serial); });
  };
  using A = LogisticMixtureArgs;
  EXPECT_EQ(refused([](A& a) { a.rows = -1; }).code(), ErrorCode::kShape);
  EXPECT_EQ(refused([](A& a) { a.n_mixtures = 0; }).where(),
            "logistic_mixture: n_mixtures");
  EXPECT_EQ(refused([](A& a) { a.n_mixtures = INT64_MAX; }).code(),
            ErrorCode::kShape);
  EXPECT_EQ(refused([](A& a) { a.params = nullptr; }).where(),
            "logistic_mixture: params");
  EXPECT_EQ(refused([](A& a) { a.targets = nullptr; }).where(),
            "logistic_mixture: targets");
  EXPECT_EQ(refused([&](A& a) { a.gradients = p.params.data(); }).where(),
            "logistic_mixture: gradients");
  EXPECT_TRUE(std::isnan(p.losses[0]));
  EXPECT_EQ(refused([](A& a) { a = {.rows = 0, .n_mixtures = 1}; }).code(),
            ErrorCode::kOk);
}

// ---- Draws.

// Sum over bytes of (drawn - expected)^2 / expected against its distribution
// (mean: the number of classes less one; variance twice that): six standard
// deviations. Bytes of fewer than five expected draws share one class.
void ExpectDistribution(const Floats& params, double temperature,
                        const Doubles& as_if) {
  constexpr int64_t kDraws = 40000;
  const auto k = static_cast<int64_t>(params.size() / 3);
  std::vector<int64_t> drawn(256);
  Rng rng(17);
  for (int64_t i = 0; i < kDraws; ++i) {
    ++drawn[LogisticMixtureSample(params.data(), k, rng, temperature)];
  }
  EXPECT_EQ(rng.counter(), 2u * kDraws);
  double statistic = 0, rare = 0, rare_drawn = 0;
  int classes = 0;
  const auto add = [&](double got, double expected) {
    statistic += (got - expected) * (got - expected) / expected;
    ++classes;
  };
  for (int byte = 0; byte < 256; ++byte) {
    const double expected =
        kDraws *
        std::exp(-reference::LogisticMixture(as_if, static_cast<uint8_t>(byte))
                      .loss);
    const auto got = static_cast<double>(drawn[static_cast<size_t>(byte)]);
    if (expected >= 5) {
      add(got, expected);
    } else {
      rare += expected;
      rare_drawn += got;
    }
  }
  if (rare >= 5) add(rare_drawn, rare);
  EXPECT_GT(classes, 20);
  EXPECT_LT(statistic, classes - 1 + 6 * std::sqrt(2.0 * (classes - 1)));
}

TEST(LogisticMixtureSample, DrawsFromTheDistribution) {
  const Floats params = {0.5f,  -0.5f, 0.1f,  -0.9f, 0.2f,
                         0.95f, -2.5f, -4.0f, -3.0f};
  ExpectDistribution(params, 1, {params.begin(), params.end()});
  // Temperature T: logits over T, scales times T.
  Doubles cold(params.begin(), params.end());
  for (size_t i = 0; i < 3; ++i) {
    cold[i] /= 0.5;
    cold[6 + i] += std::log(0.5);
  }
  ExpectDistribution(params, 0.5, cold);
}

TEST(LogisticMixtureSample, ZeroTemperatureIsTheHeaviestMean) {
  Rng rng(1);
  const Floats params = {1, 2, 2, -1, 0.6f, 0.9f, 5, 5, 5};
  EXPECT_EQ(LogisticMixtureSample(params.data(), 3, rng, 0), 204);
  EXPECT_EQ(rng.counter(), 2u);
  for (const auto& [mean, byte] :
       {std::pair{-9.0f, 0}, {9.0f, 255}, {0.0f, 128}, {-1.0f, 0}}) {
    const Floats one = {-kInfinity, 0, 0, mean, 0, 0};
    EXPECT_EQ(LogisticMixtureSample(one.data(), 2, rng, 0), byte);
  }
}

TEST(LogisticMixtureSample, RefusesWhatHasNoDistribution) {
  Rng rng(1);
  const auto refused = [&](const Floats& p, double temperature) {
    return ErrorOf([&] {
             LogisticMixtureSample(p.data(), static_cast<int64_t>(p.size() / 3),
                                   rng, temperature);
           })
        .code();
  };
  for (const Floats& bad : std::vector<Floats>{{kNaN, 0, 0},
                                               {kInfinity, 0, 0},
                                               {-kInfinity, 0, 0},
                                               {0, kNaN, 0},
                                               {0, -kInfinity, 0},
                                               {0, 0, kNaN},
                                               {0, 0, kInfinity}}) {
    EXPECT_EQ(refused(bad, 1), ErrorCode::kNumeric);
  }
  EXPECT_EQ(refused({0, 0, -kInfinity}, 1), ErrorCode::kOk);
  for (const double temperature : {-0.1, 101.0, static_cast<double>(kNaN)}) {
    EXPECT_EQ(refused({0, 0, 0}, temperature), ErrorCode::kArgument);
  }
  EXPECT_EQ(refused({}, 1), ErrorCode::kShape);
  EXPECT_EQ(ErrorOf([&] { LogisticMixtureSample(nullptr, 1, rng); }).code(),
            ErrorCode::kArgument);
}

}  // namespace
}  // namespace tarn
