// Tokens that are found in the text before it is cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"

namespace tarn {

/// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

/// Where special tokens may be found in a text that is partly a user's.
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

/// An entry of tokenizer.json's `added_tokens`.
struct AddedToken {
  int32_t id = 0;
  std::string content;         // bytes; not empty
  bool single_word = false;    // only where no word character touches it
  bool lstrip = false;         // takes the white space before it
  bool rstrip = false;         // and after it
  bool normalized = false;     // looked for in the normalised text
  bool special = false;        // never from a user's text unless allowed
  bool in_vocabulary = false;  // model.vocab lists it too
  bool operator==(const AddedToken&) const = default;
};

/// Finds one group of added tokens, leftmost first and, of those that begin at
/// one place, the longest. A match whose flags forbid it is skipped as a whole.
/// Immutable after construction; thread-safe.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// Contents must be distinct.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Receives the parts of a text in order: `id` of a token, or -1 for text
  /// between tokens (never empty). False ends the scan.
  using Visitor = std::function<bool(int32_t id, std::string_view part)>;
  /// False when the visitor ended the scan. O(bytes times longest content).
  bool VisitParts(std::string_view text, const SpecialScope& scope,
                  const Visitor& visit) const;
  bool has_special() const { return has_special_; }

 private:
  ByteTrie::Match MatchAt(std::string_view text, size_t at,
                          const SpecialScope& scope) const;

  bool has_special_ = false;
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // content -> index into tokens_
};

}  // namespace tarn
