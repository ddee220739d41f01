// Character classes, GPT-2's splitter and NFC.
#include "text/unicode/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "text/split/gpt2.h"
#include "text/unicode/nfc.h"
#include "text/utf8.h"

namespace tarn {
namespace {

std::string Utf8(std::initializer_list<uint32_t> points) {
  std::string text;
  for (const uint32_t point : points) AppendUtf8(point, text);
  return text;
}

// Letters, numbers and so on of all code points: the sizes of the classes in
// the `tokenizers` package, which has Unicode 16.0.
TEST(Unicode, CountsOfUnicode16) {
  std::array<int, 4> of_kind{};
  std::array<int, 9> of_category{};
  int in_word = 0, digits = 0, punctuation = 0;
  for (uint32_t point = 0; point <= kMaxCodePoint; ++point) {
    const Character character = ClassOf(point);
    ++of_kind[static_cast<size_t>(character.kind)];
    ++of_category[static_cast<size_t>(character.category)];
    in_word += character.in_word;
    digits += character.digit;
    punctuation += character.punctuation;
  }
  EXPECT_EQ(of_kind, (std::array<int, 4>{971148, 141028, 1911, 25}));
  EXPECT_EQ(of_category, (std::array<int, 9>{959278, 1889, 2258, 136881, 2501,
                                             1911, 855, 8514, 25}));
  EXPECT_EQ(in_word, 144667);
  EXPECT_EQ(digits, 1924);
  EXPECT_EQ(punctuation, 726);
}

TEST(Unicode, ClassesOfWellKnownCharacters) {
  struct Case {
    uint32_t point;
    CharacterClass kind;
    bool in_word;
  };
  using enum CharacterClass;
  for (const Case& c :
       std::vector<Case>{{'a', kLetter, true},     {'5', kNumber, true},
                         {'_', kOther, true},      {'-', kOther, false},
                         {0x0B, kSpace, false},    {0x1C, kOther, false},
                         {0x85, kSpace, false},    {0xA0, kSpace, false},
                         {0xAA, kLetter, true},    {0xB2, kNumber, false},
                         {0x2167, kNumber, true},  {0x300, kOther, true},
                         {0x3000, kSpace, false},  {0x180E, kOther, false},
                         {0x200B, kOther, false},  {0x200D, kOther, true},
                         {0x4E2D, kLetter, true},  {0xAC00, kLetter, true},
                         {0x1F600, kOther, false}, {0x10FFFF, kOther, false}}) {
    EXPECT_EQ(ClassOf(c.point).kind, c.kind) << c.point;
    EXPECT_EQ(ClassOf(c.point).in_word, c.in_word) << c.point;
  }
}

TEST(Unicode, ReadsFromBothEnds) {
  const std::string text = "a\xE4\xB8\xAD\xFF";
  EXPECT_EQ(ReadCharacter("\xE4\xB8\xAD").bytes, 3);
  EXPECT_EQ(ReadLastCharacter(text).bytes, 1);
  EXPECT_EQ(ReadLastCharacter(text.substr(0, 4)).bytes, 3);
  EXPECT_EQ(ReadLastCharacter(text.substr(0, 4)).kind, CharacterClass::kLetter);
  EXPECT_EQ(ReadLastCharacter("\x80\x80\x80\x80\x80").bytes, 1);
}

// --- GPT-2's pattern, read as a regular expression ---

using Classes = std::vector<CharacterClass>;

// Matches one alternative at `at`: an optional space, then one or more of
// `kind`. The longest match first, as a greedy regular expression has it.
size_t SpaceThenRun(const std::string& text, const Classes& kinds, size_t at,
                    CharacterClass kind) {
  for (const size_t skip : {1, 0}) {
    if (skip == 1 && text[at] != ' ') continue;
    size_t end = at + skip;
    while (end < kinds.size() && kinds[end] == kind) ++end;
    if (end > at + skip) return end - at;
  }
  return 0;
}

// The alternatives in the pattern's order over ASCII, by trial: an oracle that
// shares nothing with the scanner.
size_t PieceByDefinition(const std::string& text, const Classes& kinds,
                         size_t at) {
  using enum CharacterClass;
  for (const char* word : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.compare(at, std::string(word).size(), word) == 0) {
      return std::string(word).size();
    }
  }
  for (const CharacterClass kind : {kLetter, kNumber, kOther}) {
    if (const size_t bytes = SpaceThenRun(text, kinds, at, kind)) return bytes;
  }
  size_t end = at;
  while (end < kinds.size() && kinds[end] == kSpace) ++end;
  // \s+(?!\S): the longest run that no other character follows.
  for (size_t stop = end; stop > at; --stop) {
    if (stop == kinds.size() || kinds[stop] == kSpace) return stop - at;
  }
  return end - at;  // \s+
}

TEST(Splitter, FollowsThePattern) {
  // Weighted towards the characters that the pattern distinguishes.
  const std::string alphabet = "   \n\t'''stremvldaZ09.!_-";
  std::mt19937 random(5);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text(1 + random() % 24, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    Classes kinds;
    for (const char c : text) kinds.push_back(ReadCharacter({&c, 1}).kind);
    for (size_t at = 0; at < text.size();) {
      const size_t want = PieceByDefinition(text, kinds, at);
      ASSERT_EQ(Gpt2PieceBytes(std::string_view(text).substr(at)), want)
          << text << "|" << at;
      at += want;
    }
  }
}

TEST(Splitter, CutsUnicodeAndBrokenBytes) {
  const auto pieces = [](std::string_view text) {
    std::vector<std::string> parts;
    while (!text.empty()) {
      const size_t bytes = Gpt2PieceBytes(text);
      parts.emplace_back(text.substr(0, bytes));
      text.remove_prefix(bytes);
    }
    return parts;
  };
  using Parts = std::vector<std::string>;
  EXPECT_EQ(pieces("\xC3\xA9t\xC3\xA9 \xC2\xB2\xC2\xB3"),
            (Parts{"\xC3\xA9t\xC3\xA9", " \xC2\xB2\xC2\xB3"}));
  // An ideographic space joins nothing; of two the first is a piece alone.
  EXPECT_EQ(pieces("\xE3\x80\x80\xE3\x80\x80x"),
            (Parts{"\xE3\x80\x80", "\xE3\x80\x80", "x"}));
  EXPECT_EQ(pieces("a\xFF\xFE\xE4\xB8 b"),
            (Parts{"a", "\xFF\xFE\xE4\xB8", " b"}));
  EXPECT_EQ(pieces("we'll 'S"), (Parts{"we", "'ll", " '", "S"}));
}

// --- NFC ---

TEST(Nfc, WellKnownCases) {
  struct Case {
    std::string text, want;
  };
  for (const Case& c : std::vector<Case>{
           {"plain", "plain"},
           {Utf8({'e', 0x301}), Utf8({0xE9})},
           {Utf8({0xE9}), Utf8({0xE9})},
           // Marks are put in order before they join (D116).
           {Utf8({'a', 0x301, 0x323}), Utf8({0x1EA1, 0x301})},
           {Utf8({'D', 0x307, 0x323}), Utf8({0x1E0C, 0x307})},
           // A mark of the same class blocks.
           {Utf8({'a', 0x305, 0x301}), Utf8({'a', 0x305, 0x301})},
           // Singletons and exclusions decompose for good.
           {Utf8({0x212B}), Utf8({0xC5})},
           {Utf8({0x2126}), Utf8({0x3A9})},
           {Utf8({0x958}), Utf8({0x915, 0x93C})},
           {Utf8({0x344}), Utf8({0x308, 0x301})},
           {Utf8({0xF900}), Utf8({0x8C48})},
           // Nested mappings: U+1F82 is three characters.
           {Utf8({0x3B1, 0x313, 0x300, 0x345}), Utf8({0x1F82})},
           // Hangul.
           {Utf8({0x1112, 0x1161, 0x11AB}), Utf8({0xD55C})},
           {Utf8({0xAC00, 0x11A8}), Utf8({0xAC01})},
           {Utf8({0xAC00, 0x11A7}), Utf8({0xAC00, 0x11A7})},
           {Utf8({0xAC01, 0x11A8}), Utf8({0xAC01, 0x11A8})},
           {Utf8({0x1100, 0x1161, 0x11A7}), Utf8({0xAC00, 0x11A7})},
           // Starters that join: U+09C7 U+09BE.
           {Utf8({0x9C7, 0x9BE}), Utf8({0x9CB})},
           // Invalid bytes stay and separate the text.
           {"e\xFF" + Utf8({0x301}), "e\xFF" + Utf8({0x301})},
           {"e" + Utf8({0x301}) + "\xE4\xB8", Utf8({0xE9}) + "\xE4\xB8"},
           {Utf8({0x301}), Utf8({0x301})},
           {"", ""}}) {
    EXPECT_EQ(ToNfc(c.text), c.want) << testing::PrintToString(c.text);
    EXPECT_EQ(ToNfc(c.want), c.want);
  }
}

// Every character normalises to the same text as its decomposition, and no part
// after the first one passes for a character that joins nothing before it. This
// checks the rule by which nfc.cc finds stretches, for the version linked here.
TEST(Nfc, EveryMappingComesBackOrStaysDecomposed) {
  int mappings = 0;
  for (uint32_t point = 0; point <= kMaxCodePoint; ++point) {
    if (!IsScalarValue(point)) continue;
    utf8proc_int32_t parts[16];
    int state = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), parts, 16,
                                UTF8PROC_DECOMPOSE, &state);
    const std::string one = Utf8({point});
    if (count == 1 && parts[0] == static_cast<utf8proc_int32_t>(point)) {
      ASSERT_EQ(ToNfc(one), one) << point;
      continue;
    }
    ++mappings;
    std::string all;
    for (int i = 0; i < count; ++i) {
      const auto part = static_cast<uint32_t>(parts[i]);
      AppendUtf8(part, all);
      if (i > 0) {
        ASSERT_EQ(NfcPrefix("a" + Utf8({part})), 0u) << part;
      }
    }
    ASSERT_EQ(ToNfc(one), ToNfc(all)) << point;
    ASSERT_EQ(ToNfc(ToNfc(all)), ToNfc(all)) << point;
  }
  // Unicode 15.0 has 2,061 mappings and 11,172 Hangul syllables; later versions
  // take none away.
  EXPECT_GE(mappings, 2061 + 11172);
}

TEST(Nfc, PrefixIsWhatStays) {
  EXPECT_EQ(NfcPrefix("plain text"), 10u);
  EXPECT_EQ(NfcPrefix("plai" + Utf8({'n', 0x301})), 4u);
  EXPECT_EQ(NfcPrefix(Utf8({0x4E2D, 0xE9})), 5u);
  // A long run of marks costs a sort, no more.
  std::string marks = "a";
  for (int i = 0; i < 1 << 19; ++i) marks += i % 2 ? "\xCC\x81" : "\xCC\xA3";
  // One of the lower marks joins: 1 + 2 bytes become 3.
  EXPECT_EQ(ToNfc(marks).size(), marks.size());
  EXPECT_TRUE(ToNfc(marks).starts_with("\xE1\xBA\xA1\xCC\xA3"));
}

}  // namespace
}  // namespace tarn
