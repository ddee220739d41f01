#include "core/json.h"

#include <gtest/gtest.h>

#include "core/test_util.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr uint64_t kMegabyte = 1 << 20;

Result<nlohmann::json> Parse(const std::string& text) {
  return ParseStrictJson(text, "source", kMegabyte);
}

TEST(Json, AcceptsWhatTheStandardAllows) {
  for (const char* text :
       {"{}", "[]", "null", "true", "-0", "0.5e-3", "\"\"", " [1 , 2]\n\t\r ",
        R"({"a":{"a":[{"a":1},{"a":2}]},"b":1})", R"("\ud83d\ude00\u0000")",
        "\"\xf0\x9f\x98\x80\"", "1e308", "18446744073709551615"}) {
    const auto result = Parse(text);
    EXPECT_TRUE(result.ok()) << text;
    if (result.ok()) {
      EXPECT_EQ(result.value(), nlohmann::json::parse(text));
    }
  }
}

TEST(Json, RefusesEverythingElse) {
  const std::string nul(1, '\0');
  for (const std::string& text :
       std::vector<std::string>{"",
                                " ",
                                "{",
                                "}",
                                "[1,]",
                                "{\"a\":1,}",
                                "{a:1}",
                                "'a'",
                                "[1 2]",
                                "{\"a\" 1}",
                                "{\"a\":1 \"b\":2}",
                                "01",
                                "1.",
                                ".5",
                                "+1",
                                "1e",
                                "0x10",
                                "NaN",
                                "[Infinity]",
                                "-Infinity",
                                "nan",
                                "[1e999]",
                                "-1e999",
                                "tru",
                                "True",
                                "{} {}",
                                "[] x",
                                "// c\n1",
                                "/* c */ 1",
                                "\"a\nb\"",
                                "\"\\x41\"",
                                "\"\\u12\"",
                                "\"abc",
                                "[1]" + nul,
                                "[1]" + nul + "[2]",
                                nul,
                                "\"a" + nul + "\"",
                                R"({"a":1,"a":2})",
                                R"({"x":{"a":1,"b":2,"a":3}})",
                                R"({"a":1,"\u0061":2})",
                                R"("\ud800")",
                                R"("\udc00")",
                                R"("\ud800\ud800")",
                                R"("\ud800x")",
                                "\"\xff\"",
                                "\"\xc0\xaf\"",
                                "\"\xed\xa0\x80\"",
                                "\"\xf5\x80\x80\x80\"",
                                "\"\xe2\x82\"",
                                "\xef\xbb\xbf{}",
                                "\xff\xfe{"}) {
    const auto result = Parse(text);
    ASSERT_FALSE(result.ok()) << Quoted(text);
    EXPECT_EQ(result.error().code(), ErrorCode::kFormat);
    EXPECT_TRUE(result.error().where().starts_with("source")) << text;
    for (const char c : std::string(result.error().what())) {
      ASSERT_TRUE(c >= 0x20 && c < 0x7f) << "not printable: " << text;
    }
  }
}

TEST(Json, SyntaxErrorsCarryTheByteOffset) {
  EXPECT_EQ(Parse(R"({"a": NaN})").error().where(), "source: byte 6");
  EXPECT_TRUE(Parse("[1, 1e999]").error().where().starts_with("source: byte "));
  EXPECT_EQ(Parse(std::string("[1]\0", 4)).error().where(), "source: byte 3");
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(Parse(nested(kMaxJsonDepth)).ok());
  EXPECT_FALSE(Parse(nested(kMaxJsonDepth + 1)).ok());
  // Neither time nor stack may depend on depths that are refused anyway.
  EXPECT_FALSE(Parse(std::string(kMegabyte, '[')).ok());
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_EQ(Parse(objects).error().wanted(), "at most 64 levels of nesting");
}

TEST(Json, SizeIsBounded) {
  EXPECT_TRUE(ParseStrictJson("[1]", "source", 3).ok());
  const auto result = ParseStrictJson("[12]", "source", 3);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().wanted(), "at most 3 bytes");
  EXPECT_EQ(result.error().given(), "4");
}

TEST(Json, CountOfValuesIsBounded) {
  std::string text = "[0";
  for (uint64_t i = 0; i + 3 < kMaxJsonValues; ++i) text += ",0";
  EXPECT_TRUE(ParseStrictJson(text + ",0]", "source", 1 << 30).ok());
  EXPECT_FALSE(ParseStrictJson(text + ",0,0]", "source", 1 << 30).ok());
}

// Linear time: tests/counts/growth_counts.py counts it.
TEST(Json, LongTokens) {
  EXPECT_TRUE(Parse(StrCat(1, std::string(100, '0'))).ok());
  EXPECT_FALSE(Parse(std::string(kMegabyte, '1')).ok()) << "beyond double";
  EXPECT_TRUE(Parse(StrCat("0.", std::string(kMegabyte - 2, '1'))).ok());
  const auto text = Parse(StrCat('"', std::string(kMegabyte - 2, 'x')));
  EXPECT_LT(std::string(text.error().what()).size(), 500u)
      << "an error repeats no more than a line of its input";
}

TEST(Json, VisitHandsOverMembersInOrder) {
  std::string seen;
  const auto error = VisitStrictJson(
      R"({"b":[1,{"b":2}],"a":{"b":null},"c":3})", "source", kMegabyte,
      kMaxJsonValues, [&](const std::string& key, nlohmann::json& value) {
        seen += key + value.dump() + ";";
        return std::optional<Error>();
      });
  EXPECT_FALSE(error);
  EXPECT_EQ(seen, R"(b[1,{"b":2}];a{"b":null};c3;)");
}

TEST(Json, VisitKeepsTheRulesAndStopsOnRequest) {
  int members = 0;
  const auto visit = [&](const std::string& text) {
    members = 0;
    return VisitStrictJson(
        text, "source", kMegabyte, 3,
        [&](const std::string& key, nlohmann::json&) -> std::optional<Error> {
          ++members;
          if (key == "stop") return FormatError("asked to stop");
          return std::nullopt;
        });
  };
  EXPECT_TRUE(visit("[]"));
  EXPECT_TRUE(visit("1"));
  EXPECT_TRUE(visit("{\"a\":1,\"a\":2}"));
  EXPECT_TRUE(visit("{\"a\":{\"b\":1,\"b\":2}}"));
  EXPECT_TRUE(visit("{\"a\":1} x"));
  EXPECT_FALSE(visit("{}"));
  EXPECT_FALSE(visit("{\"a\":[1,2],\"b\":[1,2]}")) << "counted by member";
  EXPECT_TRUE(visit("{\"a\":[1,2,3]}"));
  const auto stopped = visit("{\"a\":1,\"stop\":2,\"c\":3}");
  ASSERT_TRUE(stopped);
  EXPECT_STREQ(stopped->what(), "asked to stop");
  EXPECT_EQ(members, 2);
}

TEST(Json, IntegersAreNotCoerced) {
  const auto integer = [](const std::string& text) {
    return JsonInteger(Parse(text).Take());
  };
  EXPECT_EQ(integer("256"), 256);
  EXPECT_EQ(integer("256.0"), 256);
  EXPECT_EQ(integer("2.56e2"), 256);
  EXPECT_EQ(integer("-3"), -3);
  EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(integer("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(integer("9223372036854775808"), std::nullopt);
  EXPECT_EQ(integer("1e300"), std::nullopt);
  EXPECT_EQ(integer("1e18"), std::nullopt);
  EXPECT_EQ(integer("0.5"), std::nullopt);
  EXPECT_EQ(integer("\"256\""), std::nullopt);
  EXPECT_EQ(integer("true"), std::nullopt);
  EXPECT_EQ(integer("null"), std::nullopt);
}

TEST(Text, PrintableEscapesAndCuts) {
  EXPECT_EQ(Printable("abc d"), "abc d");
  EXPECT_EQ(Printable(std::string_view("a\0\n\\\xff", 5)),
            "a\\x00\\x0a\\x5c\\xff");
  EXPECT_EQ(Printable("abcdef", 3), "abc...");
  EXPECT_EQ(Quoted("abc", 3), "'abc'");
}

}  // namespace
}  // namespace tarn
