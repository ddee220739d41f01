// Sampler: what it refuses, what it promises of its candidates, and that it
// draws as it always has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/error.h"
#include "runtime/sampling/sampler.h"
#include "runtime/sampling/token_probs.h"

namespace tarn {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Row = std::vector<float>;
using Tokens = std::vector<int32_t>;

int32_t DrawOne(const Sampler& sampler, SampleInput input) {
  SamplerState state = sampler.Start();
  return sampler.Draw(input, state);
}

TEST(SamplerClass, AMaskLimitsWhatIsDrawn) {
  const Row logits{9, 1, 2, 3};
  const std::vector<uint32_t> two{0b0110}, none{0}, masked{0b10000};
  for (const double temperature : {0.0, 0.8, 50.0}) {
    SamplerOptions options;
    options.temperature = temperature;
    const Sampler sampler(options);
    for (uint64_t position = 0; position < 50; ++position) {
      const int32_t token = DrawOne(
          sampler, {.logits = logits, .allowed = two, .position = position});
      EXPECT_TRUE(token == 1 || token == 2) << token;
    }
    EXPECT_THROW(DrawOne(sampler, {.logits = logits, .allowed = none}),
                 NumericError);
    // Bits beyond the row allow nothing.
    EXPECT_THROW(DrawOne(sampler, {.logits = logits, .allowed = masked}),
                 NumericError);
    EXPECT_THROW(DrawOne(sampler, {.logits = Row(33), .allowed = two}),
                 ShapeError);
    const Row low{9, -kInfinity, -kInfinity, 3};
    EXPECT_THROW(DrawOne(sampler, {.logits = low, .allowed = two}),
                 NumericError);
  }
}

TEST(SamplerClass, BiasesThatAllowNothingThrow) {
  SamplerOptions options;
  options.logit_bias = {{0, -kInfinity}, {1, -kInfinity}};
  EXPECT_THROW(DrawOne(Sampler(options), {.logits = Row{1, 2}}), NumericError);
  EXPECT_EQ(DrawOne(Sampler(options), {.logits = Row{1, 2, -50}}), 2);
  options.temperature = 0;
  EXPECT_THROW(DrawOne(Sampler(options), {.logits = Row{1, 2}}), NumericError);
}

TEST(SamplerClass, WhatIsNoNumberThrowsAndChangesNothing) {
  SamplerOptions options;
  options.mirostat = 2;
  const Sampler sampler(options);
  SamplerState state = sampler.Start();
  const SamplerState before = state;
  for (const float bad : {std::nanf(""), kInfinity}) {
    EXPECT_THROW(sampler.Draw({.logits = Row{0, bad, 1}}, state), NumericError);
  }
  EXPECT_THROW(sampler.Draw({.logits = Row{}}, state), ShapeError);
  EXPECT_THROW(sampler.Draw({.logits = Row{-kInfinity}}, state), NumericError);
  EXPECT_EQ(state, before);
  sampler.Draw({.logits = Row{0, 1}}, state);
  EXPECT_NE(state, before);
}

// The ends of all ranges together, on rows of extreme logits: a probability for
// every candidate, all of them finite, adding up to 1.
TEST(SamplerClass, ExtremesLeaveADistribution) {
  std::mt19937 random(3);
  const auto pick = [&](auto... values) {
    const std::vector<double> list{static_cast<double>(values)...};
    return list[random() % list.size()];
  };
  const Tokens history{0, 1, 0, 1, 0, 1, 0, 1, 2, 0, 1, 0, 1};
  for (int trial = 0; trial < 5000; ++trial) {
    SamplerOptions o;
    o.temperature = pick(1e-300, 100, 1);
    o.top_k = static_cast<int64_t>(pick(0, 1, 1e18));
    o.top_p = pick(1e-300, 1);
    o.min_p = pick(0, 1);
    o.typical_p = pick(1e-300, 1, 0.5);
    o.top_n_sigma = pick(-1, 1e-300, 100);
    o.xtc_probability = pick(0, 1);
    o.xtc_threshold = pick(0, 1, 0.5);
    o.dynatemp_range = pick(0, 100);
    o.dynatemp_exponent = pick(0, 100);
    o.repeat_penalty = pick(1e-30, 10, 1);
    o.repeat_last_n = -1;
    o.presence_penalty = pick(-2, 2, 0);
    o.frequency_penalty = pick(-2, 2, 0);
    o.dry_multiplier = pick(0, 10);
    o.dry_base = pick(0, 100, 1);
    o.dry_allowed_length = static_cast<int64_t>(pick(0, 65536, 1));
    o.dry_penalty_last_n = -1;
    o.mirostat = static_cast<int64_t>(random() % 3);
    o.mirostat_tau = pick(0, 100);
    o.mirostat_eta = pick(0, 1);
    o.min_keep = static_cast<int64_t>(pick(0, 1e18, 2));
    std::shuffle(o.samplers.begin(), o.samplers.end(), random);
    const float most = std::numeric_limits<float>::max();
    Row logits(1 + random() % 5);
    for (float& x : logits) {
      x = static_cast<float>(pick(0, 1, -most, most, -1e-40, -INFINITY));
    }
    logits[0] = static_cast<float>(pick(0, most, -most));
    const Sampler sampler(o);
    SamplerState state{pick(1e300, -1e300, 0, 2 * o.mirostat_tau)};
    const SampleInput input{.logits = logits, .tokens = history};
    double sum = 0;
    for (const TokenProbability& one : sampler.Distribution(input, state)) {
      ASSERT_TRUE(one.probability >= 0 && one.probability <= 1);
      ASSERT_LT(static_cast<size_t>(one.token), logits.size());
      sum += one.probability;
    }
    ASSERT_NEAR(sum, 1, 1e-9) << trial;
    const auto token = static_cast<size_t>(sampler.Draw(input, state));
    ASSERT_LT(token, logits.size());
    ASSERT_FALSE(std::isnan(state.mu)) << trial;
  }
}

TEST(SamplerClass, IdsOutsideTheRowCountForNothing) {
  SamplerOptions options;
  options.temperature = 0;
  options.presence_penalty = 2;
  options.dry_multiplier = 1;
  const Tokens history{-1, 7, 7, 7, 7, 1 << 30, -5};
  EXPECT_EQ(DrawOne(Sampler(options), {.logits = Row{1, 2}, .tokens = history}),
            1);
}

// Tokens before those that count change no distribution; of those that count
// the first one does.
TEST(SamplerClass, TokensThatCountAreAllThatMatter) {
  EXPECT_EQ(TokensThatCount({}), 0);
  SamplerOptions options;
  options.presence_penalty = 1;
  EXPECT_EQ(TokensThatCount(options), 64);
  options.dry_multiplier = 1;
  options.dry_penalty_last_n = 70;
  EXPECT_EQ(TokensThatCount(options), 70);
  options.repeat_last_n = -1;
  EXPECT_EQ(TokensThatCount(options), -1);
  options.samplers = {SamplerStage::kDry};
  EXPECT_EQ(TokensThatCount(options), 70);
  options.dry_base = 0.5;
  EXPECT_EQ(TokensThatCount(options), 0);

  options = {};
  options.frequency_penalty = 1;
  options.repeat_last_n = 5;
  const auto best = [&](const Tokens& tokens) {
    return Sampler(options)
        .Distribution({.logits = Row{0, 0, 0, 0}, .tokens = tokens}, {})
        .front()
        .probability;
  };
  const auto need = static_cast<size_t>(TokensThatCount(options));
  const Tokens last{1, 2, 3, 0, 1};
  ASSERT_EQ(last.size(), need);
  Tokens longer{0, 0, 0};
  longer.insert(longer.end(), last.begin(), last.end());
  EXPECT_EQ(best(last), best(longer));
  EXPECT_NE(best(last), best({2, 3, 0, 1}));
}

TEST(SamplerClass, ChecksItsOptions) {
  const Tokenizer bytes = Tokenizer::Byte();
  SamplerOptions options;
  options.logit_bias = {{256, 1}};
  EXPECT_THROW(Sampler(options, bytes), ArgumentError);
  Sampler{options};  // any id without a tokenizer
  options.logit_bias = {{255, 1}};
  Sampler(options, bytes);
  options.top_p = 0;
  EXPECT_THROW(Sampler(options, bytes), ArgumentError);
  EXPECT_THROW(Sampler{options}, ArgumentError);
}

// Tokens that default options drew before there were other stages: a hash over
// 20,000 draws of rows of 1 to 3,000 logits.
TEST(SamplerClass, DefaultsDrawWhatTheyAlwaysDrew) {
  uint64_t numbers = 1, hash = 14695981039346656037u;
  const auto next = [&] {
    numbers = numbers * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(numbers >> 33);
  };
  for (int trial = 0; trial < 20000; ++trial) {
    Row logits(1 + next() % (trial % 50 == 0 ? 3000 : 100));
    for (float& x : logits) {
      x = static_cast<float>(next() % 4096) / 256.0f - 8.0f;
    }
    SamplerOptions options;
    options.seed = next();
    options.stream = next() % 3;
    options.temperature = trial % 4 == 0 ? 0.3 : 0.8;
    const auto token = static_cast<uint32_t>(Sample(logits, options, next()));
    hash = (hash ^ token) * 1099511628211u;
  }
  EXPECT_EQ(hash, uint64_t{8493937665919862197u});
}

// log-softmax by its definition, in double.
TEST(TokenProbs, AreLogSoftmaxes) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    Row logits(1 + random() % 200);
    for (float& x : logits) {
      x = static_cast<float>(static_cast<int>(random() % 64)) / 4 - 8;
    }
    if (logits.size() > 3) logits[2] = -kInfinity;
    double sum = 0;
    for (const float x : logits) sum += std::exp(double{x});
    const auto token = static_cast<int32_t>(random() % logits.size());
    const auto count = static_cast<int64_t>(random() % 30);
    const TokenProbs got = TokenProbsOf(logits, token, count);
    EXPECT_EQ(got.token.token, token);
    const auto want = [&](size_t id) {
      return static_cast<float>(double{logits[id]} - std::log(sum));
    };
    if (logits[static_cast<size_t>(token)] == -kInfinity) {
      EXPECT_EQ(got.token.logprob, -kInfinity);
    } else {
      EXPECT_NEAR(got.token.logprob, want(static_cast<size_t>(token)), 1e-5);
    }
    std::vector<int32_t> order;
    for (size_t id = 0; id < logits.size(); ++id) {
      if (logits[id] > -kInfinity) order.push_back(static_cast<int32_t>(id));
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    ASSERT_EQ(got.top.size(),
              std::min<size_t>(order.size(), static_cast<size_t>(count)));
    for (size_t rank = 0; rank < got.top.size(); ++rank) {
      EXPECT_EQ(got.top[rank].token, order[rank]);
      EXPECT_NEAR(got.top[rank].logprob, want(static_cast<size_t>(order[rank])),
                  1e-5);
    }
  }
}

TEST(TokenProbs, Refuse) {
  EXPECT_THROW(TokenProbsOf(Row{1, 2}, 2, 0), ArgumentError);
  EXPECT_THROW(TokenProbsOf(Row{1, 2}, -1, 0), ArgumentError);
  EXPECT_THROW(TokenProbsOf(Row{1, 2}, 0, -1), ArgumentError);
  EXPECT_THROW(TokenProbsOf(Row{1, std::nanf("")}, 0, 1), NumericError);
  EXPECT_THROW(TokenProbsOf(Row{}, 0, 1), ShapeError);
  EXPECT_EQ(TokenProbsOf(Row{1, 2}, 0, INT64_MAX).top.size(), 2u);
}

}  // namespace
}  // namespace tarn
