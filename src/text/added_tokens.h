// Tokens that are found in the text before it is cut into pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/special_scope.h"

namespace tarn {

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
