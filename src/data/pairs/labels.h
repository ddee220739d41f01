// The classes of a classifier by name: labels.json in the model directory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/pairs/pairs.h"

namespace tarn::train {

/// Distinct names; a class is the index of its name. Immutable, thread-safe.
class Labels {
 public:
  Labels() = default;
  /// Every label of both sides, sorted by bytes. Throws FormatError with file
  /// and line for one that is not UTF-8, and for less than two of them or more
  /// than 65,536.
  Labels(const TextFiles& files, const PairSplit& split);
  /// Reads DIR/labels.json: an array of `n_classes` distinct texts. Throws
  /// FormatError.
  static Labels Open(const std::string& dir, int64_t n_classes);

  int64_t size() const { return static_cast<int64_t>(names_.size()); }
  const std::string& name(int64_t label) const { return names_[label]; }
  /// Index of a name, or -1. O(log size).
  int64_t Find(std::string_view name) const;
  std::string ToJson() const;

 private:
  void Sort();
  std::vector<std::string> names_;
  std::vector<int64_t> sorted_;  // indices in the order of the names
};

}  // namespace tarn::train
