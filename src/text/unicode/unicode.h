// What a character is, as regular expressions with Unicode classes see it.
#pragma once

#include <cstdint>
#include <string_view>

namespace tarn {

/// \p{L}, \p{N}, \s (White_Space) and the rest; no two overlap.
enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };

/// The same, in more detail. No two overlap; kOther: none of the others.
enum class UnicodeCategory : uint8_t {
  kOther,
  kUpper,        // \p{Lu}, \p{Lt}
  kLower,        // \p{Ll}
  kOtherLetter,  // \p{Lm}, \p{Lo}: letters without case
  kMark,         // \p{M}
  kNumber,       // \p{N}
  kPunctuation,  // \p{P}
  kSymbol,       // \p{S}
  kSpace,        // \s
};

/// A character at the head of some bytes. Bytes that are not UTF-8 count as
/// characters of class kOther, one for each invalid part.
struct Character {
  CharacterClass kind = CharacterClass::kOther;
  bool in_word = false;  // \w: alphabetic, marks, digits, connectors
  uint8_t bytes = 1;
  UnicodeCategory category = UnicodeCategory::kOther;
  bool digit = false;        // what the step "Digits" cuts out
  bool punctuation = false;  // what the step "Punctuation" cuts out
  bool han = false;          // \p{Han}
};

/// The class of a code point by character_table.inc, which holds what the
/// `tokenizers` package takes each for (Unicode 16.0). A character that a later
/// version assigns is kOther here. O(log of the runs among 256 code points).
Character ClassOf(uint32_t code_point);

/// `text` must not be empty.
Character ReadCharacter(std::string_view text);
/// The last character of a text, which must not be empty.
Character ReadLastCharacter(std::string_view text);

}  // namespace tarn
