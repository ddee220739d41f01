#include "text/split/scan.h"

namespace tarn {
namespace {

constexpr char Folded(char c, LetterCase letters) {
  const bool upper = letters == LetterCase::kAny && c >= 'A' && c <= 'Z';
  return upper ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

size_t ContractionBytes(std::string_view text, LetterCase letters) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char next = text.size() > 2 ? Folded(text[2], letters) : '\0';
  switch (Folded(text[1], letters)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return next == 'e' ? 3 : 0;
    case 'l':
      return next == 'l' ? 3 : 0;
    default:
      return letters == LetterCase::kAny &&
                     text.substr(1).starts_with("\xC5\xBF")
                 ? 3
                 : 0;
  }
}

size_t NumberBytes(std::string_view text, Character first, int most) {
  size_t at = first.bytes;
  for (int count = 1; count < most && at < text.size(); ++count) {
    const Character next = ReadCharacter(text.substr(at));
    if (next.kind != CharacterClass::kNumber) break;
    at += next.bytes;
  }
  return at;
}

size_t SpaceBytes(std::string_view text, SpaceRule rule) {
  size_t end = 0, last = 0, after_line = 0;
  while (end < text.size()) {
    const Character next = ReadCharacter(text.substr(end));
    if (next.kind != CharacterClass::kSpace) break;
    last = end;
    end += next.bytes;
    if (IsLineEnd(text[last])) after_line = end;
  }
  const bool at_end = end == text.size();
  if (rule == SpaceRule::kWholeEnd && at_end) return end;
  if (rule != SpaceRule::kPlain && after_line > 0) return after_line;
  // A run before something else leaves its last character to the next piece,
  // unless it is all there is.
  return at_end || last == 0 ? end : last;
}

}  // namespace tarn
