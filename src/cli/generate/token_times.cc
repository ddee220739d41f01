#include "cli/generate/token_times.h"

#include <algorithm>
#include <utility>

#include "cli/console/median.h"

namespace tarn::cli {

void TokenTimes::Add(double microseconds) {
  const float value = static_cast<float>(microseconds);
  if (count_ < kWindow) {
    first_.push_back(value);
    last_.push_back(value);
  } else {
    last_[static_cast<size_t>(count_ % kWindow)] = value;
  }
  ++count_;
}

int64_t TokenTimes::Window() const { return std::min(kWindow, count_ / 2); }

double TokenTimes::MedianFirst() const {
  return Median(std::vector<float>(first_.begin(), first_.begin() + Window()));
}

double TokenTimes::MedianLast() const {
  std::vector<float> values;
  for (int64_t i = count_ - Window(); i < count_; ++i) {
    values.push_back(last_[static_cast<size_t>(i % kWindow)]);
  }
  return Median(std::move(values));
}

}  // namespace tarn::cli
