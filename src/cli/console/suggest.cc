#include "cli/console/suggest.h"

#include <algorithm>

namespace tarn::cli {

size_t EditDistance(const std::string& a, const std::string& b) {
  // Three rows of the table of optimal string alignment.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1),
      row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string DidYouMean(const std::string& word,
                       const std::vector<std::string>& known) {
  constexpr size_t kLongest = 64;  // bounds the work for absurd words
  if (word.size() > kLongest) return "";
  size_t best = kLongest;
  std::string nearest;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(word, candidate);
    const bool near = distance <= std::max(word.size(), candidate.size()) / 3;
    if (near && distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

}  // namespace tarn::cli
