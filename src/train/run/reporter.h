// Where the reports of a run go.
#pragma once

#include <cstdint>
#include <string>

#include "train/run/log.h"

namespace tarn::train {

/// Receives reports of the run on the training thread. A front end prints them.
class Reporter {
 public:
  virtual ~Reporter() = default;
  /// Called before the first step: says what is trained on what.
  virtual void Note(const std::string& line) = 0;
  /// Called after every step. steps: those of the whole run.
  virtual void Step(const StepFigures& figures, int64_t steps) = 0;
  virtual void Sample(const std::string& text) = 0;
};

}  // namespace tarn::train
