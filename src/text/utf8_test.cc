#include "text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace tarn {
namespace {

TEST(Utf8, EveryScalarValueSurvivesTheRoundTrip) {
  for (uint32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (!IsScalarValue(c)) continue;
    std::string text;
    AppendUtf8(c, text);
    const Utf8Head head = ReadUtf8(text + "x");
    ASSERT_EQ(head.kind, Utf8Head::kValid) << c;
    ASSERT_EQ(head.code_point, c);
    ASSERT_EQ(head.bytes, text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(ReadUtf8(text.substr(0, cut)).kind, Utf8Head::kUnfinished);
      ASSERT_EQ(UnfinishedUtf8Tail("ab" + text.substr(0, cut)), cut);
    }
    ASSERT_EQ(UnfinishedUtf8Tail(text), 0u);
  }
}

TEST(Utf8, RefusesIllFormedSequences) {
  // Stray continuation, overlong 2, 3 and 4 bytes, surrogate, above U+10FFFF,
  // bytes that never occur, broken sequence.
  for (const char* text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
        "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF",
        "\xE2\x82x"}) {
    EXPECT_EQ(ReadUtf8(text).kind, Utf8Head::kInvalid) << text;
    EXPECT_EQ(UnfinishedUtf8Tail(text), 0u) << text;
  }
}

TEST(Utf8, ReplacesEachLongestPartOnce) {
  // The worked example of Unicode 15, section 3.9, table 3-8 and after.
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("a\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "a" + bad + bad + bad + bad + bad + bad + bad + bad + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63"),
            bad + bad + bad + "b" + bad + "c");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"), bad);
  EXPECT_EQ(ReplaceInvalidUtf8("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
}

}  // namespace
}  // namespace tarn
