// Every stage of the chain against its definition: a full sort, softmaxes over
// all candidates, repetitions found by comparing everything with everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "runtime/sampling/option_table.h"
#include "runtime/sampling/sampler.h"

namespace tarn {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

using Tokens = std::vector<int32_t>;

// A row and the logits that are left, kNever for tokens that are out.
struct Definition {
  std::vector<double> z;
  SamplerOptions options;
  Tokens history;
  uint64_t position = 0;
  double mu = 0;

  size_t Count() const {
    return z.size() -
           static_cast<size_t>(std::count(z.begin(), z.end(), kNever));
  }
  // Candidates, best first, ties to the lowest id.
  std::vector<size_t> Order() const {
    std::vector<size_t> order;
    for (size_t id = 0; id < z.size(); ++id) {
      if (z[id] > kNever) order.push_back(id);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return z[a] > z[b]; });
    return order;
  }
  std::vector<double> Probabilities() const {
    const double top = z[Order()[0]];
    std::vector<double> p(z.size());
    double sum = 0;
    for (size_t id = 0; id < z.size(); ++id)
      sum += p[id] = std::exp(z[id] - top);
    for (double& value : p) value /= sum;
    return p;
  }
  double Entropy() const {
    double entropy = 0;
    for (const double p : Probabilities()) {
      if (p > 0) entropy -= p * std::log(p);
    }
    return entropy;
  }
  // Keeps the first `count` of an order, at least one and min_keep.
  void KeepFirst(const std::vector<size_t>& order, size_t count) {
    count = std::max({count, size_t{1}, static_cast<size_t>(options.min_keep)});
    for (size_t rank = count; rank < order.size(); ++rank) {
      z[order[rank]] = kNever;
    }
  }

  Tokens Window(int64_t last) const {
    const auto n = static_cast<int64_t>(history.size());
    return {history.begin() + (last < 0 ? 0 : std::max<int64_t>(0, n - last)),
            history.end()};
  }

  void Penalties() {
    const Tokens window = Window(options.repeat_last_n);
    for (size_t id = 0; id < z.size(); ++id) {
      const auto n = static_cast<double>(
          std::count(window.begin(), window.end(), static_cast<int32_t>(id)));
      if (n == 0 || z[id] == kNever) continue;
      if (z[id] > 0) {
        z[id] /= options.repeat_penalty;
      } else {
        z[id] *= options.repeat_penalty;
      }
      z[id] -= n * options.frequency_penalty + options.presence_penalty;
    }
  }

  // With the tokenizer of bytes: a breaker is a piece of the text.
  void Dry() {
    if (options.dry_multiplier == 0 || options.dry_base < 1) return;
    const Tokens window = Window(options.dry_penalty_last_n);
    const size_t n = window.size();
    std::string text;
    for (const int32_t token : window) text += static_cast<char>(token);
    const auto allowed = static_cast<size_t>(options.dry_allowed_length);
    if (n <= allowed) return;
    size_t limit = n;
    for (size_t after = 0; after < n && limit == n; ++after) {
      for (const std::string& breaker : options.dry_sequence_breakers) {
        if (text.compare(n - 1 - after, breaker.size(), breaker) == 0) {
          limit = std::min(limit, after + 1 - breaker.size());
        }
      }
    }
    std::map<size_t, size_t> longest;
    for (size_t place = 1; place < n; ++place) {
      // The tokens before `place` against those at the end.
      size_t match = 0;
      while (match < place && text[place - 1 - match] == text[n - 1 - match]) {
        ++match;
      }
      match = std::min(match, limit);
      const auto next = static_cast<uint8_t>(text[place]);
      if (match >= allowed) longest[next] = std::max(longest[next], match);
    }
    if (limit < allowed) return;
    for (const auto& [token, match] : longest) {
      const std::string one(1, static_cast<char>(token));
      const auto& breakers = options.dry_sequence_breakers;
      if (std::count(breakers.begin(), breakers.end(), one) > 0) continue;
      if (token >= z.size()) continue;
      z[token] -=
          options.dry_multiplier *
          std::pow(options.dry_base, static_cast<double>(match - allowed));
    }
  }

  void TopNSigma() {
    if (options.top_n_sigma <= 0) return;
    double sum = 0, squares = 0;
    const auto n = static_cast<double>(Count());
    for (const double x : z) sum += x > kNever ? x : 0;
    for (const double x : z)
      squares += x > kNever ? std::pow(x - sum / n, 2) : 0;
    const std::vector<size_t> order = Order();
    size_t count = 0;
    while (count < order.size() &&
           z[order[count]] >=
               z[order[0]] - options.top_n_sigma * std::sqrt(squares / n)) {
      ++count;
    }
    KeepFirst(order, count);
  }
  void TopK() {
    if (options.top_k > 0) {
      KeepFirst(Order(), static_cast<size_t>(options.top_k));
    }
  }
  void TypicalP() {
    if (options.typical_p >= 1) return;
    const std::vector<double> p = Probabilities();
    const double entropy = Entropy();
    std::vector<size_t> order = Order();
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(-std::log(p[a]) - entropy) <
             std::abs(-std::log(p[b]) - entropy);
    });
    double mass = 0;
    size_t count = 0;
    while (count < order.size() && mass <= options.typical_p) {
      mass += p[order[count++]];
    }
    KeepFirst(order, count);
  }
  void TopP() {
    if (options.top_p >= 1) return;
    const std::vector<double> p = Probabilities();
    const std::vector<size_t> order = Order();
    double mass = 0;
    size_t count = 0;
    while (count < order.size() && mass < options.top_p) {
      mass += p[order[count++]];
    }
    KeepFirst(order, count);
  }
  void MinP() {
    const std::vector<double> p = Probabilities();
    const std::vector<size_t> order = Order();
    size_t count = 0;
    while (count < order.size() &&
           p[order[count]] >= options.min_p * p[order[0]]) {
      ++count;
    }
    KeepFirst(order, count);
  }
  void Xtc() {
    const uint64_t stream = options.stream ^ (uint64_t{1} << 63);
    const double chance = Rng(options.seed, stream, position).Uniform();
    if (options.xtc_probability == 0 || options.xtc_threshold > 0.5 ||
        chance > options.xtc_probability) {
      return;
    }
    const std::vector<double> p = Probabilities();
    const std::vector<size_t> order = Order();
    size_t likely = 0;
    while (likely < order.size() && p[order[likely]] >= options.xtc_threshold) {
      ++likely;
    }
    if (likely < 2 ||
        order.size() - (likely - 1) < static_cast<size_t>(options.min_keep)) {
      return;
    }
    for (size_t rank = 0; rank + 1 < likely; ++rank) z[order[rank]] = kNever;
  }
  void Divide(double temperature) {
    for (double& x : z) x /= temperature;
  }
  void Temperature() {
    double t = options.temperature;
    if (options.dynatemp_range > 0) {
      if (Count() < 2) return;
      const double low = std::max(0.0, t - options.dynatemp_range);
      const double high = t + options.dynatemp_range;
      const double fraction =
          Entropy() / std::log(static_cast<double>(Count()));
      t = low + (high - low) * std::pow(fraction, options.dynatemp_exponent);
      if (t <= 0) return Greedy();
    }
    Divide(t);
  }
  void Greedy() {
    const std::vector<size_t> order = Order();
    for (size_t rank = 1; rank < order.size(); ++rank) z[order[rank]] = kNever;
  }
  void Mirostat() {
    Divide(options.temperature);
    const std::vector<double> p = Probabilities();
    const std::vector<size_t> order = Order();
    if (order.size() < 2) return;
    size_t count = 1;
    if (options.mirostat == 2) {
      while (count < order.size() && -std::log2(p[order[count]]) <= mu) ++count;
    } else {
      double above = 0, below = 0;
      for (size_t i = 0; i + 1 < std::min<size_t>(order.size(), 100); ++i) {
        const double t =
            std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
        above += t * std::log(p[order[i]] / p[order[i + 1]]);
        below += t * t;
      }
      const double s = above / below;
      const double vocab = static_cast<double>(z.size());
      const double k = std::pow(
          (s - 1) * std::pow(2, mu) / (1 - std::pow(vocab, -(s - 1))), 1 / s);
      if (k >= 1) {
        count = k > 1e9 ? order.size() : static_cast<size_t>(k);
      }
    }
    for (size_t rank = count; rank < order.size(); ++rank) {
      z[order[rank]] = kNever;
    }
  }

  void Run(const std::vector<bool>& allowed) {
    for (const LogitBias& bias : options.logit_bias) {
      const auto id = static_cast<size_t>(bias.token);
      if (id < z.size()) z[id] += bias.bias;
    }
    for (size_t id = 0; id < z.size(); ++id) {
      if (!allowed[id]) z[id] = kNever;
    }
    const bool tempered =
        std::count(options.samplers.begin(), options.samplers.end(),
                   SamplerStage::kTemperature) > 0;
    const bool greedy =
        options.temperature <= 0 && (tempered || options.mirostat > 0);
    for (const SamplerStage stage : options.samplers) {
      if (stage == SamplerStage::kPenalties) Penalties();
      if (stage == SamplerStage::kDry) Dry();
      if (greedy || options.mirostat > 0) continue;
      if (stage == SamplerStage::kTopNSigma) TopNSigma();
      if (stage == SamplerStage::kTopK) TopK();
      if (stage == SamplerStage::kTypicalP) TypicalP();
      if (stage == SamplerStage::kTopP) TopP();
      if (stage == SamplerStage::kMinP) MinP();
      if (stage == SamplerStage::kXtc) Xtc();
      if (stage == SamplerStage::kTemperature) Temperature();
    }
    if (greedy) Greedy();
    if (!greedy && options.mirostat > 0) Mirostat();
  }
};

class Chain : public testing::TestWithParam<std::string> {
 protected:
  double Pick(std::initializer_list<double> values) {
    return values.begin()[random_() % values.size()];
  }
  // Values that no sum of probabilities of the rows below equals, and penalties
  // that make no ties, which rounding would decide.
  void SetOption(const std::string& name, SamplerOptions& o) {
    if (name == "penalties") {
      o.repeat_penalty = Pick({1.3, 1, 0.7});
      o.presence_penalty = Pick({0, 0.41, -0.63});
      o.frequency_penalty = Pick({0, 0.317, -0.21});
      o.repeat_last_n = static_cast<int64_t>(Pick({64, 5, -1, 0, 1}));
    } else if (name == "dry") {
      o.dry_multiplier = Pick({0.83, 2.93});
      o.dry_base = Pick({1.75, 1, 2.5, 0.5});
      o.dry_allowed_length = static_cast<int64_t>(Pick({2, 1, 0, 4}));
      o.dry_penalty_last_n = static_cast<int64_t>(Pick({-1, 64, 20, 0}));
      o.dry_sequence_breakers = {"\4", "\1\2", "\1\2\3", "\3\3"};
      if (random_() % 4 == 0) o.dry_sequence_breakers.clear();
    } else if (name == "top_n_sigma") {
      o.top_n_sigma = Pick({0.7, 1.3, 0.11, 3.1});
    } else if (name == "top_k") {
      o.top_k = static_cast<int64_t>(Pick({1, 2, 7, 40, 1e9}));
    } else if (name == "typ_p") {
      o.typical_p = Pick({0.213, 0.513, 0.913, 1e-9});
    } else if (name == "top_p") {
      o.top_p = Pick({0.213, 0.613, 0.951, 1e-9});
    } else if (name == "min_p") {
      o.min_p = Pick({0.051, 0.313, 1});
    } else if (name == "xtc") {
      o.xtc_probability = Pick({0.5, 1});
      o.xtc_threshold = Pick({0.0931, 0.0113, 0.31, 0.6, 0});
    } else if (name == "temperature") {
      o.temperature = Pick({0.8, 0.05, 3, 0, -1});
    } else if (name == "dynatemp") {
      o.temperature = Pick({0.8, 1.5});
      o.dynatemp_range = Pick({0.5, 2});
      o.dynatemp_exponent = Pick({1, 0.5, 3, 0});
    } else if (name == "mirostat") {
      o.mirostat = 1 + static_cast<int64_t>(random_() % 2);
      o.mirostat_tau = Pick({5, 2.3});
    } else if (name == "min_keep") {
      o.min_keep = static_cast<int64_t>(Pick({1, 3, 20}));
    } else if (name == "logit_bias") {
      o.logit_bias = {{1, 4.5f},
                      {2, -std::numeric_limits<float>::infinity()},
                      {1, -1.25f},
                      {3000, 7}};
    }
  }

  std::mt19937 random_{7};
};

SamplerOptions AllOff() {
  SamplerOptions options;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  return options;
}

// The options that are not off, for messages.
std::string Told(const SamplerOptions& options) {
  std::string text;
  for (const SamplerOption& row : SamplerOptionTable()) {
    const SamplerValue value = ValueOf(row, options);
    if (value == ValueOf(row, AllOff())) continue;
    text += StrCat(" ", row.name, "=", TextOf(value));
  }
  return text;
}

const char* const kParts[] = {
    "penalties", "dry",      "top_n_sigma", "top_k",       "typ_p",
    "top_p",     "min_p",    "xtc",         "temperature", "dynatemp",
    "mirostat",  "min_keep", "logit_bias"};

TEST_P(Chain, AgreesWithItsDefinition) {
  const std::string part = GetParam();
  const Tokenizer bytes = Tokenizer::Byte();
  int drawn = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    Definition want;
    const size_t vocab = 4 + random_() % (trial % 10 == 0 ? 252 : 40);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> logits(vocab);
    // Rounded to quarters, so that ties occur.
    for (float& x : logits) x = std::round(normal(random_) * 4) / 4;
    if (trial % 3 == 0) logits[random_() % 3] = -INFINITY;
    logits[3] = 1.5f;
    want.z.assign(logits.begin(), logits.end());
    std::vector<bool> allowed(vocab, true);
    std::vector<uint32_t> mask;
    if (trial % 4 == 0) {
      mask.assign((vocab + 31) / 32, 0);
      for (size_t id = 0; id < vocab; ++id) {
        allowed[id] = id == 3 || random_() % 2 == 0;
        if (allowed[id]) mask[id / 32] |= uint32_t{1} << (id % 32);
      }
    }
    // Few different tokens, so that much repeats.
    want.history.resize(random_() % 100);
    for (int32_t& token : want.history) token = random_() % 6;
    SamplerOptions& o = want.options;
    o = AllOff();
    o.seed = random_();
    o.stream = random_() % 3;
    if (part == "all") {
      o = {};
      for (const char* one : kParts) {
        if (random_() % 3 == 0) SetOption(one, o);
      }
      std::shuffle(o.samplers.begin(), o.samplers.end(), random_);
      if (random_() % 4 == 0) o.samplers.resize(random_() % o.samplers.size());
    } else if (part == "min_keep") {
      for (const char* one : {"top_k", "top_p", "min_p", "typ_p"}) {
        if (random_() % 2 == 0) SetOption(one, o);
      }
      SetOption(part, o);
    } else {
      SetOption(part, o);
    }
    want.position = random_();
    const Sampler sampler(o.logit_bias.empty() ? Sampler(o, bytes) : [&] {
      SamplerOptions inside = o;
      inside.logit_bias.pop_back();  // an id that is no row
      return Sampler(inside, bytes);
    }());
    SamplerState state = sampler.Start();
    EXPECT_EQ(state.mu, 2 * o.mirostat_tau);
    state.mu = want.mu = Pick({2 * o.mirostat_tau, 0.313, 3.71, 7.93});
    want.Run(allowed);
    const SampleInput input{logits, want.history, mask, want.position};
    const std::vector<TokenProbability> got =
        sampler.Distribution(input, state);
    const std::vector<size_t> order = want.Order();
    const std::vector<double> p = want.Probabilities();
    ASSERT_EQ(got.size(), order.size())
        << part << " trial " << trial << Told(o);
    for (size_t rank = 0; rank < got.size(); ++rank) {
      ASSERT_NEAR(got[rank].probability, p[order[rank]], 1e-9)
          << part << " trial " << trial << " rank " << rank << Told(o);
      ASSERT_EQ(static_cast<size_t>(got[rank].token), order[rank])
          << part << " trial " << trial << " rank " << rank << Told(o);
    }
    // The draw: the best holds the part of [0, 1) at 0.
    const uint64_t stream =
        o.mirostat > 0 ? o.stream ^ (uint64_t{1} << 62) : o.stream;
    const double u = Rng(o.seed, stream, want.position).Uniform();
    double mass = 0;
    size_t rank = 0;
    while (rank + 1 < order.size() && mass + p[order[rank]] <= u) {
      mass += p[order[rank++]];
    }
    if (std::abs(mass - u) < 1e-9) continue;  // at an end of a part
    const int32_t token = sampler.Draw(input, state);
    ASSERT_EQ(static_cast<size_t>(token), order[rank]) << part << " " << trial;
    if (o.mirostat > 0 && o.temperature > 0) {
      ASSERT_NEAR(state.mu,
                  want.mu - o.mirostat_eta *
                                (-std::log2(p[order[rank]]) - o.mirostat_tau),
                  1e-9);
    } else {
      ASSERT_EQ(state.mu, want.mu);
    }
    ++drawn;
  }
  EXPECT_GT(drawn, 1300);
}

INSTANTIATE_TEST_SUITE_P(Parts, Chain,
                         testing::Values("none", "penalties", "dry",
                                         "top_n_sigma", "top_k", "typ_p",
                                         "top_p", "min_p", "xtc", "temperature",
                                         "dynatemp", "mirostat", "min_keep",
                                         "logit_bias", "all"),
                         [](const auto& part) { return part.param; });

}  // namespace
}  // namespace tarn
