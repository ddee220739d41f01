// What a character is, as regular expressions with Unicode classes see it.
#pragma once

#include <cstdint>
#include <string_view>

namespace tarn {

/// \p{L}, \p{N}, \s (White_Space) and the rest; no two overlap.
enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };

/// A character at the head of some bytes. Bytes that are not UTF-8 count as
/// characters of class kOther, one for each invalid part.
struct Character {
  CharacterClass kind = CharacterClass::kOther;
  bool in_word = false;  // \w: alphabetic, marks, digits, connectors
  uint8_t bytes = 1;
};

/// The class of a code point, by the Unicode version of the utf8proc that is
/// linked (15.0 in Debian 12, which the tests check). A character that a later
/// version assigns is kOther here until then. O(1).
Character ClassOf(uint32_t code_point);

/// `text` must not be empty.
Character ReadCharacter(std::string_view text);
/// The last character of a text, which must not be empty.
Character ReadLastCharacter(std::string_view text);

}  // namespace tarn
