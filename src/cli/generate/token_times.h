// What the tokens of a run cost, at its start and at its end.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::cli {

/// Microseconds a token over a run of any length in constant memory: the first
/// and the last kWindow of them are kept.
class TokenTimes {
 public:
  static constexpr int64_t kWindow = 10'000;
  void Add(double microseconds);
  int64_t count() const { return count_; }
  /// Medians over the first and the last min(kWindow, count / 2) tokens; 0 when
  /// there are fewer than two.
  double MedianFirst() const;
  double MedianLast() const;

 private:
  int64_t Window() const;
  std::vector<float> first_, last_;  // last_ is a ring
  int64_t count_ = 0;
};

}  // namespace tarn::cli
