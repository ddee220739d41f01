#include "text/split/o200k.h"

#include "text/split/scan.h"

namespace tarn {
namespace {

// Letters without case and marks are in both of the pattern's classes.
bool IsShared(Character c) {
  return c.category == UnicodeCategory::kOtherLetter ||
         c.category == UnicodeCategory::kMark;
}
bool IsCapital(Character c) {
  return c.category == UnicodeCategory::kUpper || IsShared(c);
}
bool IsSmall(Character c) {
  return c.category == UnicodeCategory::kLower || IsShared(c);
}

// A run of capitals from `at`, and in it the end of its last character that is
// shared (0: none has been seen).
struct Capitals {
  size_t end = 0, after_shared = 0;
};

Capitals ReadCapitals(std::string_view text, size_t at) {
  Capitals run{at, 0};
  while (run.end < text.size()) {
    const Character next = ReadCharacter(text.substr(run.end));
    if (!IsCapital(next)) break;
    run.end += next.bytes;
    if (IsShared(next)) run.after_shared = run.end;
  }
  return run;
}

// End of [capital]*[small]+ at `at`, or 0. Where no lower-case letter follows
// the capitals, they give back as many as the second run needs: its first
// character is then the last shared one, and what comes after that is a
// capital, which ends the run.
size_t SmallWordEnd(std::string_view text, size_t at, const Capitals& run) {
  const size_t end = RunEnd(text, run.end, IsSmall);
  if (end > run.end) return end;
  return run.after_shared > at ? run.after_shared : 0;
}

size_t WithContraction(std::string_view text, size_t end) {
  return end + ContractionBytes(text.substr(end), LetterCase::kAny);
}

// The first two alternatives, each with and without the character before the
// word; 0: there is no word.
size_t WordBytes(std::string_view text, Character first) {
  const bool may_precede = first.kind != CharacterClass::kLetter &&
                           first.kind != CharacterClass::kNumber &&
                           !IsLineEnd(text[0]);
  Capitals after;
  if (may_precede) {
    after = ReadCapitals(text, first.bytes);
    const size_t end = SmallWordEnd(text, first.bytes, after);
    if (end > 0) return WithContraction(text, end);
  }
  const Capitals run = ReadCapitals(text, 0);
  if (const size_t end = SmallWordEnd(text, 0, run)) {
    return WithContraction(text, end);
  }
  // Capitals alone.
  if (after.end > first.bytes) return WithContraction(text, after.end);
  return run.end > 0 ? WithContraction(text, run.end) : 0;
}

}  // namespace

size_t O200kPieceBytes(std::string_view text) {
  using enum CharacterClass;
  const Character first = ReadCharacter(text);
  if (const size_t bytes = WordBytes(text, first)) return bytes;
  if (first.kind == kNumber) return NumberBytes(text, first, 3);
  const size_t begin = text[0] == ' ' ? 1 : 0;
  size_t end =
      RunEnd(text, begin, [](Character c) { return c.kind == kOther; });
  if (end > begin) {
    while (end < text.size() && (IsLineEnd(text[end]) || text[end] == '/')) {
      ++end;
    }
    return end;
  }
  return SpaceBytes(text, SpaceRule::kLineEnds);
}

}  // namespace tarn
