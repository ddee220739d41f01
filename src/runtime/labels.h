// labels.json: what the classes of a classifier are called.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tarn {

/// A JSON array of `n_classes` distinct, non-empty strings of one line each;
/// the index is the class. FormatError in one line otherwise.
Result<std::vector<std::string>> LabelsFromJson(std::string_view json,
                                                int64_t n_classes);

/// DIR/labels.json likewise; IoError when it cannot be read.
Result<std::vector<std::string>> ReadLabels(const std::string& dir,
                                            int64_t n_classes);

}  // namespace tarn
