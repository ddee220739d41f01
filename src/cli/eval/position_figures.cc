#include "cli/eval/position_figures.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <numbers>
#include <string>

#include "cli/console/median.h"
#include "core/error.h"
#include "core/text.h"

namespace tarn::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Short against the seconds in which a machine changes its speed, long against
// the clock and the caches that the other state's block has filled.
constexpr int64_t kBlock = 50;

// One of the two sequences that are stepped in turn.
class Stepper {
 public:
  Stepper(const Model& model, State& state, std::span<const int32_t> tokens)
      : model_(model),
        state_(state),
        tokens_(tokens),
        logits_(static_cast<size_t>(model.vocab_size())) {}

  void Block(bool measured) {
    for (int64_t i = 0; i < kBlock; ++i) {
      const int32_t token = tokens_[next_++ % tokens_.size()];
      const Clock::time_point begin = Clock::now();
      model_.Step(state_, token, logits_.data());
      const std::chrono::duration<float, std::micro> taken =
          Clock::now() - begin;
      if (measured) times_.push_back(taken.count());
    }
    if (!measured) begin_ = state_.position();
  }
  StepTimes Times() const {
    return {begin_, state_.position(), Median(times_)};
  }

 private:
  const Model& model_;
  State& state_;
  std::span<const int32_t> tokens_;
  size_t next_ = 0;
  int64_t begin_ = 0;
  std::vector<float> times_, logits_;
};

}  // namespace

int64_t BucketBegin(int64_t i) {
  constexpr int64_t kFirst[] = {1, 2, 5};
  int64_t begin = kFirst[i % 3];
  for (int64_t decade = i / 3; decade > 0; --decade) begin *= 10;
  return begin;
}

void PositionBuckets::Add(int64_t position, double nats) {
  if (position < 1) {
    throw ArgumentError("position", "at least 1", StrCat(position));
  }
  int64_t i = 0;
  while (BucketBegin(i + 1) <= position) ++i;
  if (static_cast<int64_t>(sums_.size()) <= i) {
    sums_.resize(static_cast<size_t>(i) + 1);
  }
  Sums& sums = sums_[static_cast<size_t>(i)];
  const double bits = nats / std::numbers::ln2;
  ++sums.tokens;
  sums.bits += bits;
  sums.squares += bits * bits;
  last_ = std::max(last_, position);
}

std::vector<PositionBucket> PositionBuckets::Rows() const {
  std::vector<PositionBucket> rows;
  for (size_t i = 0; i < sums_.size(); ++i) {
    const Sums& sums = sums_[i];
    if (sums.tokens == 0) continue;
    const auto index = static_cast<int64_t>(i);
    const auto count = static_cast<double>(sums.tokens);
    PositionBucket row = {BucketBegin(index),
                          std::min(BucketBegin(index + 1), last_ + 1),
                          sums.tokens, sums.bits / count, 0};
    if (sums.tokens > 1) {
      const double variance =
          std::max(0.0, sums.squares / count - row.bits * row.bits) * count /
          (count - 1);
      row.standard_error = std::sqrt(variance / count);
    }
    rows.push_back(row);
  }
  return rows;
}

StepComparison CompareSteps(const Model& model, State& near, State& far,
                            std::span<const int32_t> tokens, int64_t steps,
                            const std::function<bool()>& stopped) {
  if (tokens.empty()) throw ArgumentError("tokens", "at least 1", "none");
  if (steps < 1) throw ArgumentError("steps", "at least 1", StrCat(steps));
  Stepper one(model, near, tokens), other(model, far, tokens);
  one.Block(false);
  other.Block(false);
  StepComparison found;
  for (bool turn = false; found.steps < steps && !stopped(); turn = !turn) {
    (turn ? other : one).Block(true);
    (turn ? one : other).Block(true);
    found.steps += kBlock;
  }
  found.near = one.Times();
  found.far = other.Times();
  return found;
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

}  // namespace tarn::cli
