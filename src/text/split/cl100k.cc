#include "text/split/cl100k.h"

#include <limits>

#include "text/split/scan.h"

namespace tarn {
namespace {

// How the patterns differ.
struct Cl100kRules {
  int most_numbers;  // in a piece
  bool marks;        // marks are parts of words
  SpaceRule spaces;
};

size_t BytesByRules(std::string_view text, const Cl100kRules& rules) {
  using enum CharacterClass;
  if (const size_t bytes = ContractionBytes(text, LetterCase::kAny))
    return bytes;
  const auto in_word = [&](Character c) {
    return c.kind == kLetter ||
           (rules.marks && c.category == UnicodeCategory::kMark);
  };
  const Character first = ReadCharacter(text);
  if (in_word(first)) return RunEnd(text, first.bytes, in_word);
  if (first.kind == kNumber) {
    return NumberBytes(text, first, rules.most_numbers);
  }
  // Any one character but a line end joins the word after it.
  if (!IsLineEnd(text[0])) {
    const size_t end = RunEnd(text, first.bytes, in_word);
    if (end > first.bytes) return end;
  }
  const auto is_other = [&](Character c) {
    return c.kind == kOther && !in_word(c);
  };
  const size_t begin = text[0] == ' ' ? 1 : 0;
  const size_t end = RunEnd(text, begin, is_other);
  if (end > begin) return LineEndsEnd(text, end);
  return SpaceBytes(text, rules.spaces);
}

}  // namespace

size_t Cl100kPieceBytes(std::string_view text) {
  return BytesByRules(text, {3, false, SpaceRule::kLineEnds});
}

size_t NewCl100kPieceBytes(std::string_view text) {
  constexpr int kAll = std::numeric_limits<int>::max();
  return BytesByRules(text, {kAll, false, SpaceRule::kWholeEnd});
}

size_t Qwen2PieceBytes(std::string_view text) {
  return BytesByRules(text, {1, false, SpaceRule::kLineEnds});
}

size_t Qwen35PieceBytes(std::string_view text) {
  return BytesByRules(text, {1, true, SpaceRule::kLineEnds});
}

}  // namespace tarn
