// How far two sequences are apart, counted in edits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace tarn::train {

/// Least number of insertions, deletions and replacements that turn `a` into
/// `b` (Levenshtein 1966). Sequences with size() and operator[], of letters or
/// of tokens. O(|a| |b|) time, O(|b|) memory.
template <typename A, typename B>
size_t EditDistance(const A& a, const B& b) {
  // row[j]: distance of the first i elements of a and the first j of b.
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replace = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace tarn::train
