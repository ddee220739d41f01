#include "text/split/o200k.h"

#include "text/split/scan.h"

namespace tarn {
namespace {

// The characters of words. Letters without case and marks are in both of the
// pattern's classes.
struct AllLetters {
  static bool IsShared(Character c) {
    return c.category == UnicodeCategory::kOtherLetter ||
           c.category == UnicodeCategory::kMark;
  }
};

// Han is no part of words.
struct LettersButHan {
  static bool IsShared(Character c) {
    return AllLetters::IsShared(c) && !c.han;
  }
};

// A run of capitals from `at`, and in it the end of its last character that is
// shared (0: none has been seen).
struct Capitals {
  size_t end = 0, after_shared = 0;
};

template <typename Letters>
Capitals ReadCapitals(std::string_view text, size_t at) {
  Capitals run{at, 0};
  while (run.end < text.size()) {
    const Character next = ReadCharacter(text.substr(run.end));
    const bool shared = Letters::IsShared(next);
    if (!shared && next.category != UnicodeCategory::kUpper) break;
    run.end += next.bytes;
    if (shared) run.after_shared = run.end;
  }
  return run;
}

// End of [capital]*[small]+ at `at`, or 0. Where no lower-case letter follows
// the capitals, they give back as many as the second run needs: its first
// character is then the last shared one, and what comes after that is a
// capital, which ends the run.
template <typename Letters>
size_t SmallWordEnd(std::string_view text, size_t at, const Capitals& run) {
  const size_t end = RunEnd(text, run.end, [](Character c) {
    return c.category == UnicodeCategory::kLower || Letters::IsShared(c);
  });
  if (end > run.end) return end;
  return run.after_shared > at ? run.after_shared : 0;
}

// The first two alternatives but for a contraction after the word, each with
// and without the character before it; 0: there is no word.
template <typename Letters = AllLetters>
size_t WordBytes(std::string_view text, Character first) {
  const bool may_precede = first.kind != CharacterClass::kLetter &&
                           first.kind != CharacterClass::kNumber &&
                           !IsLineEnd(text[0]);
  Capitals after;
  if (may_precede) {
    after = ReadCapitals<Letters>(text, first.bytes);
    const size_t end = SmallWordEnd<Letters>(text, first.bytes, after);
    if (end > 0) return end;
  }
  const Capitals run = ReadCapitals<Letters>(text, 0);
  if (const size_t end = SmallWordEnd<Letters>(text, 0, run)) return end;
  // Capitals alone.
  return after.end > first.bytes ? after.end : run.end;
}

// Signs, or white space. slashes: some may come among the line ends after
// signs.
size_t OtherBytes(std::string_view text, bool slashes = true) {
  const size_t begin = text[0] == ' ' ? 1 : 0;
  size_t end = RunEnd(text, begin, [](Character c) {
    return c.kind == CharacterClass::kOther;
  });
  if (end == begin) return SpaceBytes(text, SpaceRule::kLineEnds);
  while (end < text.size() &&
         (IsLineEnd(text[end]) || (slashes && text[end] == '/'))) {
    ++end;
  }
  return end;
}

}  // namespace

size_t O200kPieceBytes(std::string_view text) {
  const Character first = ReadCharacter(text);
  if (const size_t bytes = WordBytes(text, first)) {
    return bytes + ContractionBytes(text.substr(bytes), LetterCase::kAny);
  }
  return first.kind == CharacterClass::kNumber ? NumberBytes(text, first, 3)
                                               : OtherBytes(text);
}

size_t TekkenPieceBytes(std::string_view text) {
  const Character first = ReadCharacter(text);
  if (const size_t bytes = WordBytes(text, first)) return bytes;
  return first.kind == CharacterClass::kNumber ? first.bytes : OtherBytes(text);
}

size_t KimiK2PieceBytes(std::string_view text) {
  const Character first = ReadCharacter(text);
  if (first.han) {
    return RunEnd(text, first.bytes, [](Character c) { return c.han; });
  }
  if (const size_t bytes = WordBytes<LettersButHan>(text, first)) {
    return bytes + ContractionBytes(text.substr(bytes), LetterCase::kAny);
  }
  return first.kind == CharacterClass::kNumber
             ? NumberBytes(text, first, 3)
             : OtherBytes(text, /*slashes=*/false);
}

}  // namespace tarn
