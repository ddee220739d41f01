#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "text/utf8.h"

namespace tarn {
namespace {

constexpr uint32_t kAsciiEnd = 0x80;

// The same facts as utf8proc's, so that ASCII text needs no call.
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

// White_Space: the separators and six controls.
bool IsSpaceControl(uint32_t point) {
  return (point >= '\t' && point <= '\r') || point == 0x85;
}

// What \w matches although its category does not say so: the alphabetic ones
// among the symbols (circled, squared and such letters) and Join_Control.
// utf8proc keeps neither property; both are unchanged since Unicode 6.
bool IsWordByProperty(uint32_t point) {
  return (point >= 0x24B6 && point <= 0x24E9) ||
         (point >= 0x1F130 && point <= 0x1F149) ||
         (point >= 0x1F150 && point <= 0x1F169) ||
         (point >= 0x1F170 && point <= 0x1F189) || point == 0x200C ||
         point == 0x200D;
}

}  // namespace

Character ClassOf(uint32_t code_point) {
  if (code_point < kAsciiEnd) return kAscii[code_point];
  using enum CharacterClass;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return {kLetter, true, 1};
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      return {kNumber, true, 1};
    case UTF8PROC_CATEGORY_NO:
      return {kNumber, false, 1};
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return {kSpace, false, 1};
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_PC:
      return {kOther, true, 1};
    default:
      return {IsSpaceControl(code_point) ? kSpace : kOther,
              IsWordByProperty(code_point), 1};
  }
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
