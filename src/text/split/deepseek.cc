#include "text/split/deepseek.h"

#include "text/split/scan.h"
#include "text/utf8.h"

namespace tarn {
namespace {

// `match`: bytes of the match at the start of a text, or 0, then in O(1).
template <typename Match>
size_t MatchOrGap(std::string_view text, const Match& match) {
  if (const size_t bytes = match(text)) return bytes;
  size_t at = ReadCharacter(text).bytes;
  while (at < text.size() && match(text.substr(at)) == 0) {
    at += ReadCharacter(text.substr(at)).bytes;
  }
  return at;
}

bool IsAsciiLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAsciiSign(char c) {
  return c > ' ' && c < '\x7F' && !IsAsciiLetter(c) && !IsAsciiDigit(c);
}

bool InDeepSeekWord(Character c) {
  return c.kind == CharacterClass::kLetter ||
         c.category == UnicodeCategory::kMark;
}
bool IsSign(Character c) {
  return c.category == UnicodeCategory::kPunctuation ||
         c.category == UnicodeCategory::kSymbol;
}

size_t WordsMatch(std::string_view text) {
  if (text.size() > 1 && IsAsciiSign(text[0]) && IsAsciiLetter(text[1])) {
    size_t at = 2;
    while (at < text.size() && IsAsciiLetter(text[at])) ++at;
    return at;
  }
  const Character first = ReadCharacter(text);
  if (InDeepSeekWord(first)) {
    return RunEnd(text, first.bytes, InDeepSeekWord);
  }
  if (!IsLineEnd(text[0]) && !IsSign(first)) {
    const size_t end = RunEnd(text, first.bytes, InDeepSeekWord);
    if (end > first.bytes) return end;
  }
  const size_t begin = text[0] == ' ' ? 1 : 0;
  const size_t end = RunEnd(text, begin, IsSign);
  if (end > begin) return LineEndsEnd(text, end);
  if (first.kind != CharacterClass::kSpace) return 0;
  return SpaceBytes(text, SpaceRule::kLineEnds);
}

bool IsHanOrKana(std::string_view text) {
  const Utf8Head head = ReadUtf8(text);
  return (head.code_point >= 0x4E00 && head.code_point <= 0x9FA5) ||
         (head.code_point >= 0x3040 && head.code_point <= 0x30FF);
}

}  // namespace

size_t ThreeNumbersPieceBytes(std::string_view text) {
  const Character first = ReadCharacter(text);
  const auto is_number = [](Character c) {
    return c.kind == CharacterClass::kNumber;
  };
  if (is_number(first)) return NumberBytes(text, first, 3);
  return RunEnd(text, first.bytes, [&](Character c) { return !is_number(c); });
}

size_t HanKanaPieceBytes(std::string_view text) {
  const bool inside = IsHanOrKana(text);
  size_t at = 0;
  while (at < text.size() && IsHanOrKana(text.substr(at)) == inside) {
    at += ReadUtf8(text.substr(at)).bytes;
  }
  return at;
}

size_t DeepSeekWordsPieceBytes(std::string_view text) {
  return MatchOrGap(text, WordsMatch);
}

size_t ThreeDigitsPieceBytes(std::string_view text) {
  return MatchOrGap(text, [](std::string_view rest) -> size_t {
    return rest.size() >= 3 && IsAsciiDigit(rest[0]) && IsAsciiDigit(rest[1]) &&
                   IsAsciiDigit(rest[2])
               ? 3
               : 0;
  });
}

}  // namespace tarn
