#include "text/unicode.h"

#include <algorithm>
#include <array>

#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace tarn {
namespace {

constexpr uint32_t kAsciiEnd = 0x80;

// The same facts as the table's, so that ASCII text needs no search.
constexpr std::array<Character, kAsciiEnd> MakeAscii() {
  std::array<Character, kAsciiEnd> ascii{};
  for (uint32_t c = 0; c < kAsciiEnd; ++c) {
    const bool digit = c >= '0' && c <= '9';
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    ascii[c].kind = digit    ? CharacterClass::kNumber
                    : letter ? CharacterClass::kLetter
                    : space  ? CharacterClass::kSpace
                             : CharacterClass::kOther;
    ascii[c].in_word = digit || letter || c == '_';
  }
  return ascii;
}
constexpr std::array<Character, kAsciiEnd> kAscii = MakeAscii();

}  // namespace

Character ClassOf(uint32_t code_point) {
  if (code_point < kAsciiEnd) return kAscii[code_point];
  // The last entry that begins at or before the code point.
  const auto after = std::upper_bound(
      kCharacterClasses.begin(), kCharacterClasses.end(), code_point,
      [](uint32_t point, uint32_t entry) { return point < entry >> 3; });
  const uint32_t value = *(after - 1);
  return {static_cast<CharacterClass>(value & 3), (value & 4) != 0, 1};
}

Character ReadCharacter(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < kAsciiEnd) return kAscii[first];
  const Utf8Head head = ReadUtf8(text);
  Character character;
  if (head.kind == Utf8Head::kValid) character = ClassOf(head.code_point);
  character.bytes = static_cast<uint8_t>(head.bytes);
  return character;
}

Character ReadLastCharacter(std::string_view text) {
  constexpr size_t kLongest = 4;  // bytes of a UTF-8 sequence
  for (size_t bytes = 2; bytes <= std::min(kLongest, text.size()); ++bytes) {
    const std::string_view tail = text.substr(text.size() - bytes);
    const Utf8Head head = ReadUtf8(tail);
    if (head.kind == Utf8Head::kValid && head.bytes == bytes) {
      return ReadCharacter(tail);
    }
  }
  // ASCII, or a byte that ends no valid sequence.
  return ReadCharacter(text.substr(text.size() - 1));
}

}  // namespace tarn
