// `tarn eval` of models that are measured on pairs, one a line: a classifier on
// "label TAB text", a sequence-to-sequence model on "source TAB target"; or on
// two columns of a CSV file.
#pragma once

#include <cstdint>
#include <string>

#include "cli/cli.h"
#include "data/pairs/pairs.h"

namespace tarn::cli {

struct PairFlags {
  std::string file;
  int64_t batch = 16;
  int64_t beam = 1;
  bool json = false;
  train::PairColumns columns;  // where one is given, the file is CSV
};

/// Accuracy: examples, accuracy, and the share of the commonest label.
int EvalClassifier(const LoadedModel& opened, const PairFlags& flags);

/// Token error rate: edits (insertions, deletions, replacements; Levenshtein
/// 1966) between the target and the model's, over the targets' tokens; and the
/// share of targets met exactly.
int EvalTargets(const LoadedModel& opened, const PairFlags& flags);

}  // namespace tarn::cli
