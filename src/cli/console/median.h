// The median of measured times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tarn::cli {

/// The middle value, or the mean of the two middle ones; 0 of none. O(values).
template <typename T>
double Median(std::vector<T> values) {
  if (values.empty()) return 0;
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  const auto high = static_cast<double>(*middle);
  if (values.size() % 2 == 1) return high;
  return (high +
          static_cast<double>(*std::max_element(values.begin(), middle))) /
         2;
}

}  // namespace tarn::cli
