// The tokens that may be drawn: at first all of a row of logits, in the end the
// few that the stages of the chain leave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/sampling/sampler_options.h"

namespace tarn {

struct Candidate {
  double logit;
  int32_t id;
};

/// Higher logit first, then lower id: a total order, so that every stage keeps
/// the same set whatever the selection algorithm does inside.
inline bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}
/// std heaps keep the greatest on top.
inline bool Worse(const Candidate& a, const Candidate& b) {
  return Better(b, a);
}

/// Index of the best logit, ties to the lowest id. Throws ShapeError for an
/// empty row or one of more than 2^31 - 1, NumericError on NaN, +inf, or when
/// no logit is finite (-inf marks a token that is never drawn). O(n).
int32_t CheckedArgmax(std::span<const float> logits);

/// The `count` best of a row (count >= 1) that are not -inf, in no order. O(n)
/// time, O(count) memory.
std::vector<Candidate> BestOf(std::span<const float> logits, size_t count);

/// Cuts a list to its `count` best, count >= 1. O(n).
void KeepBest(std::vector<Candidate>& list, size_t count);

/// A row until a stage asks for a list; so a chain that begins with top_k makes
/// none of the whole vocabulary. There is always at least one candidate.
class Candidates {
 public:
  /// Refers to the logits. Throws as CheckedArgmax.
  explicit Candidates(std::span<const float> logits);

  /// Stages that change logits. AddBias and Mask come before any list is made.
  /// They throw NumericError where no candidate is left.
  void AddBias(std::span<const LogitBias> biases);
  /// Bit id % 32 of word id / 32: whether a token is allowed. Throws ShapeError
  /// for fewer bits than logits.
  void Mask(std::span<const uint32_t> allowed);
  /// Sets the logit of every candidate that `values` has to change(logit,
  /// value, unit). Logits are those before the temperature, so that they stay
  /// finite; unit is what 1 after it is worth.
  template <typename Value, typename Change>
  void ChangeLogits(const std::unordered_map<int32_t, Value>& values,
                    const Change& change) {
    if (!listed_) {
      UseRow();
      for (const auto& [id, value] : values) {
        if (id < 0 || static_cast<size_t>(id) >= row_.size()) continue;
        double& logit = row_[static_cast<size_t>(id)];
        logit = change(logit, value, temperature_);
      }
      return;
    }
    for (Candidate& c : list_) {
      const auto found = values.find(c.id);
      if (found == values.end()) continue;
      c.logit = change(c.logit, found->second, temperature_);
    }
    Replace(std::move(list_), false);
  }

  /// The list, which has every candidate once.
  const std::vector<Candidate>& list() {
    if (!listed_) MakeList();
    return list_;
  }
  std::vector<Candidate> TakeList() {
    list();
    return std::move(list_);
  }
  /// Puts another list in its place, not empty. sorted: it is best first.
  void Replace(std::vector<Candidate> list, bool sorted);
  bool sorted() const { return sorted_; }
  /// Keeps the `count` best, count >= 1. O(n).
  void KeepTop(size_t count);
  /// Makes the list best first. O(n log n) of what is left.
  void Sort();

  size_t vocab() const { return logits_.size(); }
  /// By which logits are divided from then on; 1 until it is set.
  void SetTemperature(double temperature) { temperature_ = temperature; }

  /// How many times less likely than the best a candidate is, as a logarithm
  /// (<= 0) and as a factor. Valid once there is a list.
  double Relative(const Candidate& c) const {
    return (c.logit - best_) / temperature_;
  }
  double Weight(const Candidate& c) const;
  /// The sum of weights, in the order of the list.
  double Total();

 private:
  void UseRow();
  void MakeList();

  std::span<const float> logits_;
  std::vector<double> row_;  // [vocab] where a stage has changed logits
  std::vector<Candidate> list_;
  int32_t best_id_;  // of the unchanged row
  double best_ = 0;  // the best logit of the list
  double temperature_ = 1;
  bool listed_ = false, sorted_ = false;
};

}  // namespace tarn
