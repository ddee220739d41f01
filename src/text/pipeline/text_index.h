// Ids by their texts, for vocabularies of any size.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tarn {

/// A hash table that no file can slow down: a text that finds its places taken
/// goes to a sorted list. Immutable after construction; thread-safe.
class TextIndex {
 public:
  TextIndex() = default;
  /// texts: by id, which must outlive this; empty ones are found nowhere. Of
  /// equal texts the first is found. O(total bytes + n log n).
  explicit TextIndex(std::vector<std::string_view> texts);

  /// The id, or -1. O(text + log n).
  int32_t Find(std::string_view text) const;
  /// Two ids with one text, or {-1, -1}.
  std::pair<int32_t, int32_t> twice() const { return twice_; }

 private:
  int32_t FindLeft(std::string_view text) const;

  std::vector<std::string_view> texts_;
  std::vector<int32_t> slots_;  // a power of two; -1: free
  std::vector<int32_t> left_;   // ids without a slot, sorted by text
  std::pair<int32_t, int32_t> twice_ = {-1, -1};
};

}  // namespace tarn
