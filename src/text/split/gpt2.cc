#include "text/split/gpt2.h"

#include "text/split/scan.h"

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

}  // namespace

size_t Gpt2PieceBytes(std::string_view text) {
  if (const size_t bytes = ContractionBytes(text)) return bytes;
  // One space joins the run after it.
  const size_t begin = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const Character first = ReadCharacter(text.substr(begin));
  if (first.kind == CharacterClass::kSpace) {
    return SpaceBytes(text, SpaceRule::kPlain);
  }
  return RunEnd(text, begin + first.bytes,
                [&](Character next) { return next.kind == first.kind; });
}

}  // namespace tarn
