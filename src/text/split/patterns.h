// The patterns that cut a text into the pieces BPE works on: a table, one row
// for each. A tokenizer.json that writes a row's pattern letter for letter gets
// its scanner; there is no engine for regular expressions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tarn {

struct SplitPattern {
  const char* name;          // "GPT-2's pattern", in messages
  std::string_view pattern;  // as tokenizer.json writes it
  /// Bytes of the first piece of a text, at least 1; the text is not empty.
  size_t (*first_piece_bytes)(std::string_view text);
  /// Whether matches cover any text. If not, what lies between them is a piece.
  bool covers_all = true;
};

/// Every pattern; the first is GPT-2's, which a ByteLevel pre-tokenizer uses by
/// itself. Rows live as long as the program.
std::span<const SplitPattern> SplitPatterns();
inline const SplitPattern& Gpt2Split() { return SplitPatterns().front(); }
/// The row of a pattern, or null.
const SplitPattern* FindSplitPattern(std::string_view pattern);
/// "GPT-2's pattern or ...": the names of all rows, for messages.
std::string SplitPatternNames();

}  // namespace tarn
