// Where special tokens may be found in a text that is partly a user's.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

/// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

struct SpecialScope {
  bool allowed = false;
  /// Parts that no special token may reach into: sorted, apart, not empty.
  std::span<const ByteRange> data = {};

  /// Bytes from `at` up to the next part of data; 0 within one.
  size_t Room(size_t at, size_t text_bytes) const;
  /// End of the part of data that `at` is in.
  size_t DataEnd(size_t at) const;
};

/// The ranges within [begin, end) of their text, counted from `begin`.
/// O(log ranges) and those returned.
std::vector<ByteRange> RangesWithin(std::span<const ByteRange> ranges,
                                    size_t begin, size_t end);

/// The ranges of `text` in `normalised`, which is what it became. normalise:
/// the same for one piece of it; `first`: the piece begins the text. Where the
/// pieces together do not make `normalised`, all of it counts as one range.
/// O(text), and of normalising it.
std::vector<ByteRange> RangesAfter(
    std::string_view text, std::span<const ByteRange> ranges,
    std::string_view normalised,
    const std::function<std::string(std::string_view piece, bool first)>&
        normalise);

}  // namespace tarn
