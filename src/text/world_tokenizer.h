// The vocabulary of the RWKV "World" models: byte strings, matched greedily,
// the longest first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/byte_trie.h"

namespace tarn {

/// Immutable after construction; thread-safe.
class WorldTokenizer {
 public:
  /// Reads the vocabulary's text file. A line is an id, a Python literal
  /// ('...' or "..." for text, with b in front for bytes) and the number of
  /// its bytes, which serves as a checksum; ids run from 1 without a gap,
  /// 0 is the end of a text. FormatError names the line: a literal that does
  /// not parse, a wrong length, an empty, repeated or overlong token (above
  /// 256 bytes), a byte without its own token.
  static Result<WorldTokenizer> FromText(std::string_view text);

  /// The file's text, as read.
  const std::string& text() const { return text_; }
  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }
  /// The bytes of a token; token 0 has none.
  const std::string& Bytes(int32_t id) const {
    return tokens_[static_cast<size_t>(id)];
  }
  /// Cannot fail and never yields 0. O(bytes * longest token).
  std::vector<int32_t> Encode(std::string_view text) const;

 private:
  WorldTokenizer(std::string text, std::vector<std::string> tokens);

  std::string text_;
  std::vector<std::string> tokens_;
  ByteTrie trie_;
};

/// The bytes a Python literal stands for, of the kinds that repr() writes:
/// quotes of either sort, an optional b, escapes \\ \' \" \n \r \t \xNN \uNNNN
/// and \UNNNNNNNN. In text \x80 is a code point (two bytes of UTF-8), in bytes
/// a byte. Nothing is evaluated. FormatError when it is anything else.
Result<std::string> ParsePythonLiteral(std::string_view literal);

}  // namespace tarn
