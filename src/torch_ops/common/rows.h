// Batches in parts: what torch's operators hold between them grows with the
// rows computed at once, so long batches are computed some rows at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tarn::ops {

/// Elements of the largest intermediate tensor of one part.
constexpr int64_t kPartElements = 1 << 22;

/// f(begin, end) over [0, rows), each part within kPartElements or one row.
template <typename F>
void ForParts(int64_t rows, int64_t elements_per_row, const F& f) {
  const int64_t part = std::max<int64_t>(
      1, kPartElements / std::max<int64_t>(1, elements_per_row));
  for (int64_t begin = 0; begin < rows; begin += part) {
    f(begin, std::min(begin + part, rows));
  }
}

}  // namespace tarn::ops
