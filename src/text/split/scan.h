// What the scanners of several patterns share. `text` holds the rest of a text;
// all results are bytes from its start.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/unicode/unicode.h"

namespace tarn {

/// End of the run of characters that `fits` and that begins at `at`.
template <typename Fits>
size_t RunEnd(std::string_view text, size_t at, const Fits& fits) {
  while (at < text.size()) {
    const Character next = ReadCharacter(text.substr(at));
    if (!fits(next)) break;
    at += next.bytes;
  }
  return at;
}

inline bool IsLineEnd(char c) { return c == '\r' || c == '\n'; }

/// [\r\n]*
inline size_t LineEndsEnd(std::string_view text, size_t at) {
  while (at < text.size() && IsLineEnd(text[at])) ++at;
  return at;
}

/// Which letters a contraction may have. kAny: (?i:...), where U+017F, whose
/// upper case is S, counts as an s.
enum class LetterCase { kLower, kAny };

/// 's|'t|'re|'ve|'m|'ll|'d at the start of `text`; 0 when there is none. O(1).
size_t ContractionBytes(std::string_view text, LetterCase letters);

/// \p{N}{1,most}; `first` is the number that `text` begins with.
size_t NumberBytes(std::string_view text, Character first, int most);

/// How a pattern ends: what it does with white space.
enum class SpaceRule {
  kPlain,     // \s+(?!\S)|\s+
  kLineEnds,  // \s*[\r\n]+|\s+(?!\S)|\s+
  kWholeEnd,  // \s++$|\s*[\r\n]|\s+(?!\S)|\s
};

/// `text` begins with white space. O(run), and no piece makes the next one read
/// the run again: with a line end the piece reaches the last of them.
size_t SpaceBytes(std::string_view text, SpaceRule rule);

}  // namespace tarn
