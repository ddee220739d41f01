#include "text/split/gpt2.h"

#include "text/split/scan.h"

namespace tarn {

size_t Gpt2PieceBytes(std::string_view text) {
  if (const size_t bytes = ContractionBytes(text, LetterCase::kLower))
    return bytes;
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
