#include "text/unicode/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "text/utf8.h"

namespace tarn {
namespace {

// First code point of a run << 8 | flags: a UnicodeCategory in the low 4 bits,
// then the bits below.
constexpr uint32_t kRuns[] = {
#include "text/unicode/character_table.inc"
};
constexpr uint8_t kCategoryBits = 15, kWordBit = 16, kDigitBit = 32,
                  kPunctuationBit = 64, kHanBit = 128;
constexpr size_t kRunCount = std::size(kRuns);

// The last run that begins at or before a multiple of 256.
constexpr uint32_t kPages = 0x1100;
constexpr std::array<uint16_t, kPages + 1> MakeFirstRuns() {
  std::array<uint16_t, kPages + 1> first{};
  size_t run = 0;
  for (uint32_t page = 0; page <= kPages; ++page) {
    while (run + 1 < kRunCount && kRuns[run + 1] >> 8 <= page << 8) ++run;
    first[page] = static_cast<uint16_t>(run);
  }
  return first;
}
constexpr std::array<uint16_t, kPages + 1> kFirstRuns = MakeFirstRuns();

constexpr Character CharacterOf(uint32_t flags) {
  const auto category = static_cast<UnicodeCategory>(flags & kCategoryBits);
  CharacterClass kind = CharacterClass::kOther;
  switch (category) {
    case UnicodeCategory::kUpper:
    case UnicodeCategory::kLower:
    case UnicodeCategory::kOtherLetter:
      kind = CharacterClass::kLetter;
      break;
    case UnicodeCategory::kNumber:
      kind = CharacterClass::kNumber;
      break;
    case UnicodeCategory::kSpace:
      kind = CharacterClass::kSpace;
      break;
    default:
      break;
  }
  return {kind,
          (flags & kWordBit) != 0,
          1,
          category,
          (flags & kDigitBit) != 0,
          (flags & kPunctuationBit) != 0,
          (flags & kHanBit) != 0};
}

// The scripts of two-byte characters alternate between cases, so that their
// runs are short: they have a table without runs.
constexpr uint32_t kDirectEnd = 0x800;
constexpr std::array<Character, kDirectEnd> MakeDirect() {
  std::array<Character, kDirectEnd> direct{};
  size_t run = 0;
  for (uint32_t point = 0; point < kDirectEnd; ++point) {
    while (kRuns[run + 1] >> 8 <= point) ++run;
    direct[point] = CharacterOf(kRuns[run] & 255);
  }
  return direct;
}
constexpr std::array<Character, kDirectEnd> kDirect = MakeDirect();
constexpr uint32_t kAsciiEnd = 0x80;

}  // namespace

Character ClassOf(uint32_t code_point) {
  if (code_point < kDirectEnd) return kDirect[code_point];
  if (code_point > kMaxCodePoint) return {};
  const uint32_t page = code_point >> 8;
  const uint32_t* begin = kRuns + kFirstRuns[page];
  const uint32_t* end = kRuns + kFirstRuns[page + 1] + 1;
  const uint32_t* after =
      std::upper_bound(begin, end, code_point << 8 | uint32_t{255});
  return CharacterOf(after[-1] & 255);
}

Character ReadCharacter(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < kAsciiEnd) return kDirect[first];
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
