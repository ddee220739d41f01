// Sets of characters, and the byte sequences that UTF-8 writes them with.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::grammar {

/// Code points first to last.
struct CodePointRange {
  uint32_t first = 0, last = 0;
  bool operator==(const CodePointRange&) const = default;
};

/// Sorted ranges that do not touch, of Unicode scalar values: what has no UTF-8
/// (surrogates) is in no set.
class CodePointSet {
 public:
  CodePointSet() = default;
  /// Any ranges, in any order; first <= last. O(n log n).
  explicit CodePointSet(std::vector<CodePointRange> ranges);
  static CodePointSet All();

  bool empty() const { return ranges_.empty(); }
  bool Contains(uint32_t code_point) const;
  const std::vector<CodePointRange>& ranges() const { return ranges_; }
  CodePointSet Complement() const;
  CodePointSet Union(const CodePointSet& other) const;
  CodePointSet Intersection(const CodePointSet& other) const;
  CodePointSet Minus(const CodePointSet& other) const {
    return Intersection(other.Complement());
  }

 private:
  std::vector<CodePointRange> ranges_;
};

/// A sequence of bytes, each from a range.
struct ByteRanges {
  int count = 0;  // 1 to 4
  uint8_t low[4] = {}, high[4] = {};
};

/// Sequences that together are the UTF-8 of first to last, which must not hold
/// surrogates. Only the last bytes of a sequence may have more than one value,
/// and all bytes after the first range that is not single are 80 to BF.
std::vector<ByteRanges> Utf8Ranges(CodePointRange range);

}  // namespace tarn::grammar
