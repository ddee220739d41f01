#include "runtime/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "core/rng.h"

namespace tarn {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplerOptions Plain() {
  SamplerOptions options;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  return options;
}

// The chain by its definition: a full sort, each stage a filter followed by a
// softmax over the whole vocabulary. Returns p[id], zero where filtered out.
std::vector<double> Reference(const std::vector<float>& logits,
                              const SamplerOptions& options) {
  const size_t vocab = logits.size();
  std::vector<size_t> order(vocab);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> z(logits.begin(), logits.end());
  const auto softmax = [&](double temperature) {
    const double top = z[order[0]];
    std::vector<double> p(vocab);
    double sum = 0;
    for (size_t i = 0; i < vocab; ++i) {
      sum += p[i] = std::exp((z[i] - top) / temperature);
    }
    for (double& value : p) value /= sum;
    return p;
  };
  if (options.top_k > 0) {
    for (size_t r = static_cast<size_t>(options.top_k); r < vocab; ++r) {
      z[order[r]] = -kInf;
    }
  }
  if (options.top_p < 1) {
    const std::vector<double> p = softmax(1);
    double mass = 0;
    for (size_t id : order) {
      if (mass >= options.top_p) z[id] = -kInf;
      mass += p[id];
    }
  }
  const std::vector<double> p = softmax(1);
  for (size_t id : order) {
    if (id != order[0] && p[id] < options.min_p * p[order[0]]) z[id] = -kInf;
  }
  return softmax(options.temperature);
}

// The draw by its definition: the best candidate holds the interval at 0.
int32_t ReferenceDraw(const std::vector<float>& logits,
                      const SamplerOptions& options, uint64_t position) {
  const std::vector<double> p = Reference(logits, options);
  std::vector<int32_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const double u = Rng(options.seed, options.stream, position).Uniform();
  double mass = 0;
  for (int32_t id : order) {
    mass += p[static_cast<size_t>(id)];
    if (u < mass) return id;
  }
  return order[0];
}

std::vector<float> RandomLogits(std::mt19937& random, size_t vocab) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(vocab);
  // Rounded to quarters, so that ties occur.
  for (float& x : logits) x = std::round(normal(random) * 4) / 4;
  return logits;
}

TEST(Sampler, AgreesWithTheDefinitionDrawByDraw) {
  std::mt19937 random(1);
  const auto pick = [&](auto... values) {
    const std::vector<double> list{static_cast<double>(values)...};
    return list[random() % list.size()];
  };
  for (int trial = 0; trial < 4000; ++trial) {
    const size_t vocab = 1 + random() % (trial % 10 == 0 ? 3000 : 60);
    std::vector<float> logits = RandomLogits(random, vocab);
    for (float& x : logits) {
      if (trial % 3 == 0 && vocab > 1 && random() % 5 == 0) x = -kInf;
    }
    logits[random() % vocab] = 1.5f;  // at least one is finite
    SamplerOptions options;
    options.temperature = pick(0.8, 0.05, 1, 3, 100);
    options.top_k = static_cast<int64_t>(pick(40, 0, 1, 2, 7, 1e9));
    options.top_p = pick(0.95, 1, 0.5, 0.1, 1e-9);
    options.min_p = pick(0.05, 0, 0.3, 1);
    options.seed = random();
    const uint64_t position = random();
    EXPECT_EQ(Sample(logits, options, position),
              ReferenceDraw(logits, options, position))
        << "trial " << trial << " vocab " << vocab << " top_k " << options.top_k
        << " top_p " << options.top_p << " min_p " << options.min_p
        << " temperature " << options.temperature;
  }
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits{2, 1.5f, 0, -1, 1.5f, -8, 0.25f, -kInf};
  std::vector<SamplerOptions> cases(4, Plain());
  cases[1].temperature = 0.5;
  cases[2].top_k = 3;
  cases[3] = SamplerOptions{};  // the defaults
  constexpr int kDraws = 200000;
  for (const SamplerOptions& options : cases) {
    const std::vector<double> p = Reference(logits, options);
    std::vector<double> count(logits.size());
    for (int i = 0; i < kDraws; ++i) {
      ++count[static_cast<size_t>(Sample(logits, options, i))];
    }
    double chi_square = 0;
    for (size_t id = 0; id < p.size(); ++id) {
      if (p[id] == 0) {
        EXPECT_EQ(count[id], 0) << id;
      } else {
        chi_square +=
            std::pow(count[id] - kDraws * p[id], 2) / (kDraws * p[id]);
      }
    }
    // At most 6 degrees of freedom: 99.9 % are below 22.5 (fixed seed).
    EXPECT_LT(chi_square, 22.5);
  }
}

TEST(Sampler, StreamsAndSeedsDrawIndependently) {
  const std::vector<float> logits(256, 0.0f);
  SamplerOptions a = Plain(), b = Plain(), c = Plain();
  b.seed = 1;
  c.stream = 1;
  int same_seed = 0, same_stream = 0;
  for (uint64_t position = 0; position < 20000; ++position) {
    const int32_t token = Sample(logits, a, position);
    EXPECT_EQ(token, Sample(logits, a, position));
    same_seed += token == Sample(logits, b, position);
    same_stream += token == Sample(logits, c, position);
  }
  // Binomial(20000, 1/256): mean 78, standard deviation 8.8; 5 of them.
  EXPECT_NEAR(same_seed, 78, 44);
  EXPECT_NEAR(same_stream, 78, 44);
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheBest) {
  SamplerOptions options;
  for (double temperature : {0.0, -1.0}) {
    options.temperature = temperature;
    EXPECT_EQ(Sample(std::vector<float>{1, 3, 2, 3}, options, 0), 1);
    EXPECT_EQ(Sample(std::vector<float>{-kInf, -5}, options, 0), 1);
    EXPECT_EQ(Sample(std::vector<float>{7}, options, 0), 0);
    for (size_t at = 0; at < 37; ++at) {
      std::vector<float> logits(37, -kInf);
      for (size_t id = at; id < 37; id += 5) logits[id] = -2;
      EXPECT_EQ(Sample(logits, options, 0), static_cast<int32_t>(at));
    }
  }
}

TEST(Sampler, TiesAtTheCutGoToTheLowestIds) {
  SamplerOptions options = Plain();
  options.top_k = 3;
  const std::vector<float> logits{0, 1, 1, 1, 1, 0};
  std::map<int32_t, int> seen;
  for (int i = 0; i < 300; ++i) ++seen[Sample(logits, options, i)];
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen.begin()->first, 1);
  EXPECT_EQ(seen.rbegin()->first, 3);
}

TEST(Sampler, RefusesWhatIsNoNumber) {
  for (double temperature : {0.0, 0.8}) {
    SamplerOptions options;
    options.temperature = temperature;
    EXPECT_THROW(Sample(std::vector<float>{0, kNan, 1}, options, 0),
                 NumericError);
    EXPECT_THROW(Sample(std::vector<float>{kInf, 0}, options, 0), NumericError);
    EXPECT_THROW(Sample(std::vector<float>{-kInf, -kInf}, options, 0),
                 NumericError);
    EXPECT_THROW(Sample({}, options, 0), ShapeError);
  }
  // In whole vectors of a row and in what is left after them.
  for (size_t at = 0; at < 37; ++at) {
    for (const float bad : {kNan, kInf}) {
      std::vector<float> logits(37, 1.0f);
      logits[at] = bad;
      EXPECT_THROW(Sample(logits, SamplerOptions{}, 0), NumericError) << at;
    }
  }
  try {
    Sample(std::vector<float>{0, 1, kNan}, SamplerOptions{}, 0);
    FAIL();
  } catch (const NumericError& error) {
    EXPECT_EQ(error.given(), "nan at id 2");
  }
}

TEST(Sampler, ChecksEveryOption) {
  const double nan = std::nan("");
  const auto refused = [](auto set) {
    SamplerOptions options;
    set(options);
    EXPECT_THROW(CheckSampler(options), ArgumentError);
    EXPECT_THROW(Sample(std::vector<float>{1}, options, 0), ArgumentError);
  };
  for (double t : {100.5, nan}) refused([&](auto& o) { o.temperature = t; });
  refused([](auto& o) { o.top_k = -1; });
  for (double p : {0.0, -0.1, 1.1, nan}) refused([&](auto& o) { o.top_p = p; });
  for (double p : {-0.1, 1.1, nan}) refused([&](auto& o) { o.min_p = p; });
  SamplerOptions edge;
  edge.temperature = 100;
  edge.top_p = 1e-300;
  edge.min_p = 1;
  edge.top_k = std::numeric_limits<int64_t>::max();
  CheckSampler(edge);
  EXPECT_EQ(Sample(std::vector<float>{0, 1}, edge, 0), 1);
}

}  // namespace
}  // namespace tarn
