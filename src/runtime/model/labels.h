// labels.json: the names of a classifier's classes, or of the symbols of a
// model of frames.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"

namespace tarn {

/// A JSON array of `n_classes` distinct, non-empty strings of one line each;
/// the index is the class. blank: the first string, and no other, is CTC's
/// blank, "". FormatError in one line otherwise.
Result<std::vector<std::string>> LabelsFromJson(std::string_view json,
                                                int64_t n_classes,
                                                bool blank = false);

/// Whether a model of the task has a labels.json.
constexpr bool HasLabels(Task task) {
  return task == Task::kClassify || task == Task::kCtc;
}

/// DIR/labels.json of a model with labels; IoError when it cannot be read.
Result<std::vector<std::string>> ReadLabels(const std::string& dir,
                                            const ModelConfig& config);

}  // namespace tarn
