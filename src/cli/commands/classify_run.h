// Texts through a classifier, some at a time: what `tarn classify` and
// `tarn eval` share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/cli.h"

namespace tarn::cli {

struct ClassScores {
  int64_t best = 0;                   // the class; ties to the lowest
  std::vector<double> probabilities;  // softmax of the logits, [n_classes]
};

class ClassBatch {
 public:
  explicit ClassBatch(const LoadedModel& opened) : opened_(opened) {}
  /// `place` ("reviews.txt:7") is for errors: throws ExitError (bad data) for a
  /// text that is empty or holds what the tokenizer does not know.
  void Add(const std::string& text, const std::string& place);
  int64_t size() const { return static_cast<int64_t>(texts_.size()); }
  /// Scores of the texts added, in order; then there are none. Throws
  /// NumericError when logits are not finite.
  std::vector<ClassScores> Run();

 private:
  const LoadedModel& opened_;
  std::vector<std::vector<int32_t>> texts_;
};

}  // namespace tarn::cli
