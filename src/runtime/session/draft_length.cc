#include "runtime/session/draft_length.h"

#include <algorithm>

namespace tarn {
namespace {

// Before anything was guessed, and before longer reads were seen: what one more
// token adds to a read of one.
constexpr double kFirstChance = 0.7, kFirstSlope = 0.5;
// Weights of the latest guess and of the latest time.
constexpr double kChanceStep = 0.1, kCostStep = 0.2;
// What a guess has to gain, since times are never exact.
constexpr double kLeastGain = 1.03;

// A time that is far longer than those before it was interrupted.
constexpr double kMostLonger = 1.5;
constexpr double kDownStep = 0.5;

void Follow(double value, double step, double& average) {
  if (average > 0) {
    // Noise only adds to a time, so a shorter one says more.
    if (value < average) step = std::max(step, kDownStep);
    value = std::min(value, kMostLonger * average);
    value = average + step * (value - average);
  }
  average = value;
}

}  // namespace

DraftLength::DraftLength(int64_t most)
    : most_(most), cost_(static_cast<size_t>(3 * most + 2)) {
  chance_.fill(kFirstChance);
}

void DraftLength::Read(int64_t tokens, double ms) {
  if (tokens < 1 || tokens >= static_cast<int64_t>(cost_.size()) || ms <= 0) {
    return;
  }
  Follow(ms, kCostStep, cost_[static_cast<size_t>(tokens)]);
}

void DraftLength::Guessed(int64_t tokens, double ms) {
  if (tokens < 1) return;
  Follow(ms / static_cast<double>(tokens), kCostStep, guess_ms_);
}

void DraftLength::Confirmed(int kind, int64_t drafted, int64_t confirmed) {
  double& chance = chance_[static_cast<size_t>(kind)];
  for (int64_t i = 0; i < confirmed; ++i) {
    chance += kChanceStep * (1 - chance);
  }
  if (confirmed < drafted) chance -= kChanceStep * chance;
}

// Of lengths that were not read yet: between those that were, or beyond them at
// the same slope.
double DraftLength::Cost(int64_t tokens) const {
  const auto seen = [&](int64_t i) {
    return i >= 1 && i < static_cast<int64_t>(cost_.size()) &&
           cost_[static_cast<size_t>(i)] > 0;
  };
  if (seen(tokens)) return cost_[static_cast<size_t>(tokens)];
  int64_t below = tokens, above = tokens;
  while (below >= 1 && !seen(below)) --below;
  while (above < static_cast<int64_t>(cost_.size()) && !seen(above)) ++above;
  if (below < 1) return 0;  // not a single time yet
  const double at = cost_[static_cast<size_t>(below)];
  if (seen(above)) {
    const double next = cost_[static_cast<size_t>(above)];
    return at + (next - at) * static_cast<double>(tokens - below) /
                    static_cast<double>(above - below);
  }
  double slope = kFirstSlope * at / static_cast<double>(below);
  if (below > 1 && seen(1)) {
    slope = std::max(0.0, (at - cost_[1]) / static_cast<double>(below - 1));
  }
  return at + slope * static_cast<double>(tokens - below);
}

int64_t DraftLength::Best(int kind, int64_t pending) const {
  const double alone = Cost(pending);
  if (alone <= 0) return 0;
  const double chance = chance_[static_cast<size_t>(kind)];
  double tokens = 1, power = 1, best_rate = kLeastGain / alone;
  int64_t best = 0;
  for (int64_t k = 1; k <= most_; ++k) {
    power *= chance;
    tokens += power;
    const double ms = Cost(pending + k) + guess_ms_ * static_cast<double>(k);
    if (tokens / ms <= best_rate) continue;
    best_rate = tokens / ms;
    best = k;
  }
  return best;
}

// A trial instead of no guess at all, each time after a longer silence.
int64_t DraftLength::OrTrial(int64_t best) {
  if (best > 0) {
    silence_ = kSilence;
  } else if (++silent_ < silence_) {
    return 0;
  } else {
    silence_ = std::min(2 * silence_, kLongestSilence);
    best = std::min(kTrial, most_);
  }
  silent_ = 0;
  return best;
}

int64_t DraftLength::Choose(int kind, int64_t pending) {
  return OrTrial(Best(kind, pending));
}

int64_t DraftLength::Longest(int64_t pending) {
  // The first times are long, and times change: a read without a guess shows
  // what it would take now.
  if (guesses_ >= kGuesses) {
    guesses_ = 0;
    return 0;
  }
  int64_t longest = 0;
  for (int kind = 0; kind < Draft::kKinds; ++kind) {
    longest = std::max(longest, Best(kind, pending));
  }
  if (longest > 0) {
    ++guesses_;
    return longest;
  }
  return silent_ + 1 < silence_ ? OrTrial(0) : std::min(kTrial, most_);
}

}  // namespace tarn
