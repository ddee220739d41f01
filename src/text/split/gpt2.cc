#include "text/split/gpt2.h"

#include "text/unicode.h"

namespace tarn {
namespace {

// 's 't 're 've 'm 'll 'd, case-sensitive; 0 when there is none.
size_t ContractionBytes(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  switch (text[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return text.size() > 2 && text[2] == 'e' ? 3 : 0;
    case 'l':
      return text.size() > 2 && text[2] == 'l' ? 3 : 0;
    default:
      return 0;
  }
}

// End of the run of characters of one class that begins at `at`.
size_t RunEnd(std::string_view text, size_t at, CharacterClass kind) {
  while (at < text.size()) {
    const Character next = ReadCharacter(text.substr(at));
    if (next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

// \s+(?!\S)|\s+: a run before something else leaves its last character to the
// next piece, unless it is all there is.
size_t SpaceBytes(std::string_view text) {
  size_t at = 0, last = 0;
  while (at < text.size()) {
    const Character next = ReadCharacter(text.substr(at));
    if (next.kind != CharacterClass::kSpace) return last == 0 ? at : last;
    last = at;
    at += next.bytes;
  }
  return at;
}

}  // namespace

size_t Gpt2PieceBytes(std::string_view text) {
  if (const size_t bytes = ContractionBytes(text)) return bytes;
  // One space joins the run after it.
  const size_t begin = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const Character first = ReadCharacter(text.substr(begin));
  if (first.kind == CharacterClass::kSpace) return SpaceBytes(text);
  return RunEnd(text, begin + first.bytes, first.kind);
}

}  // namespace tarn
