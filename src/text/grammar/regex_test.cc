// Regular expressions against Python's (tests/golden/grammars/make_regexes.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"

namespace tarn {
namespace {

bool Accepts(const Grammar& grammar, const std::string& text) {
  GrammarState state(grammar);
  return state.Push(text) && state.complete();
}

std::string Refusal(const std::string& pattern) {
  const Result<Grammar> grammar = Grammar::FromRegex(pattern);
  return grammar.ok() ? "" : grammar.error().what();
}

TEST(Regex, AgreesWithPython) {
  std::ifstream file(std::string(TARN_SOURCE_DIR) +
                     "/tests/golden/grammars/regexes.json");
  const auto rows = nlohmann::json::parse(file);
  size_t texts = 0;
  for (const auto& row : rows) {
    const auto pattern = row["pattern"].get<std::string>();
    const Result<Grammar> grammar = Grammar::FromRegex(pattern);
    ASSERT_TRUE(grammar.ok()) << grammar.error().what();
    for (const auto& text : row["accepted"]) {
      EXPECT_TRUE(Accepts(grammar.value(), text)) << pattern << ": " << text;
      ++texts;
    }
    for (const auto& text : row["rejected"]) {
      EXPECT_FALSE(Accepts(grammar.value(), text)) << pattern << ": " << text;
      ++texts;
    }
  }
  EXPECT_GT(rows.size(), 50u);
  EXPECT_GT(texts, 1000u);
}

// Where ECMAScript differs from Python, or Python has no such notation.
TEST(Regex, AsEcmaScriptDefines) {
  const auto expect = [](const char* pattern, const std::string& text,
                         bool wanted) {
    const Result<Grammar> grammar = Grammar::FromRegex(pattern);
    ASSERT_TRUE(grammar.ok()) << grammar.error().what();
    EXPECT_EQ(Accepts(grammar.value(), text), wanted) << pattern << text;
  };
  for (const char* end : {"\n", "\r", "\xE2\x80\xA8", "\xE2\x80\xA9"}) {
    expect(".", end, false);
    expect("\\s", end, true);
    expect("\\S", end, false);
  }
  expect("\\s", "\xC2\xA0", true);
  expect("\\s", "\xEF\xBB\xBF", true);
  expect("\\d", "\xD9\xA3", false);
  expect("\\w", "\xC3\xA9", false);
  expect("\\u{1F600}", "\xF0\x9F\x98\x80", true);
  expect("\\uD83D\\uDE00", "\xF0\x9F\x98\x80", true);
  expect("\\cJ", "\n", true);
  expect("[\\b]", "\b", true);
  expect("(?<year>\\d+)", "19", true);
  expect("^a$", "a", true);
  expect("^a|b$", "a", true);
  expect("^a|b$", "ab", false);
  expect("a", "\xFF", false);
}

TEST(Regex, RefusesWithTheOffset) {
  EXPECT_EQ(Refusal("ab(?=c)"),
            "pattern: byte 2: want groups without assertions or flags, got "
            "'(?='");
  EXPECT_NE(Refusal("(?<=a)b").find("byte 0"), std::string::npos);
  EXPECT_NE(Refusal("(?!a)").find("assertions"), std::string::npos);
  EXPECT_NE(Refusal("(a)\\1").find("byte 3: want an escape"),
            std::string::npos);
  EXPECT_NE(Refusal("a\\b").find("byte 1: want an escape"), std::string::npos);
  EXPECT_NE(Refusal("\\p{L}").find("byte 0: want an escape"),
            std::string::npos);
  EXPECT_NE(Refusal("\\k<a>").find("byte 0"), std::string::npos);
  EXPECT_EQ(Refusal("a^b"),
            "pattern: byte 1: want ^ at the beginning of the pattern alone, "
            "got '^'");
  EXPECT_NE(Refusal("(^a)").find("byte 1"), std::string::npos);
  EXPECT_NE(Refusal("(a$)").find("byte 2"), std::string::npos);
  EXPECT_NE(Refusal("a$b").find("byte 1"), std::string::npos);
  EXPECT_EQ(Refusal("a**"),
            "pattern: byte 2: want something to repeat, got '*'");
  EXPECT_EQ(Refusal("*"), "pattern: byte 0: want something to repeat, got '*'");
  EXPECT_EQ(Refusal("(a"), "pattern: byte 2: want ')', got the end");
  EXPECT_EQ(Refusal("a)"),
            "pattern: byte 1: want an opened group before ')', got ')'");
  EXPECT_EQ(Refusal("a{1\n}"), "pattern: byte 3: want '}', got '\\x0a'");
  EXPECT_NE(Refusal("[a").find("byte 0: want a class that ends"),
            std::string::npos);
  EXPECT_NE(Refusal("[z-a]").find("byte 1"), std::string::npos);
  EXPECT_NE(Refusal("[\\d-z]").find("byte 1"), std::string::npos);
  EXPECT_NE(Refusal("[]").find("byte 0: want a class"), std::string::npos);
  EXPECT_NE(Refusal("a{2,1}").find("byte 1"), std::string::npos);
  EXPECT_NE(Refusal("a{,3}").find("byte 2: want a number"), std::string::npos);
  EXPECT_NE(Refusal("a{1000000}").find("byte 2: want at most 10000"),
            std::string::npos);
  EXPECT_NE(Refusal("\\xg1").find("byte 2: want a hexadecimal digit"),
            std::string::npos);
  EXPECT_NE(Refusal("\\uD800").find("byte 0"), std::string::npos);
  EXPECT_NE(Refusal("\xFF").find("byte 0: want valid UTF-8"),
            std::string::npos);
  EXPECT_NE(Refusal("\\").find("byte 1"), std::string::npos);
}

}  // namespace
}  // namespace tarn
