#include "text/template/ordered_json.h"

#include <gtest/gtest.h>

#include <string>

#include "core/json.h"

namespace tarn {
namespace {

constexpr uint64_t kMost = uint64_t{64} << 20;

TEST(OrderedJson, KeepsTheOrderAtEveryLevel) {
  const std::string text =
      R"({"z":1,"a":{"y":[{"c":null,"b":true}],"x":-2},"m":"t","k":0.5})";
  const auto value = ParseOrderedJson(text, "text", kMost);
  ASSERT_TRUE(value.ok()) << value.error().what();
  EXPECT_EQ(text, value.value().dump());
}

TEST(OrderedJson, ScalarsAndEmptyContainers) {
  for (const char* text : {"null", "[]", "{}", "\"a\"", "7", "-7",
                           "18446744073709551615", "1.25", "false"}) {
    const auto value = ParseOrderedJson(text, "text", kMost);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(text, value.value().dump());
  }
}

TEST(OrderedJson, RefusesWhatStrictJsonRefuses) {
  const std::string deep(65, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string(R"({"a":1,"a":2})"),
        std::string("[1] 2"), std::string("nan"), std::string("\"\xff\""),
        deep + std::string(65, ']'), std::string("[1e999]")}) {
    const auto value = ParseOrderedJson(text, "text", kMost);
    const auto strict = ParseStrictJson(text, "text", kMost);
    ASSERT_FALSE(strict.ok()) << text;
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_STREQ(strict.error().what(), value.error().what());
  }
  EXPECT_FALSE(ParseOrderedJson("[1, 2]", "text", 5).ok());
}

// A search for each member's name would take some 10^10 comparisons.
TEST(OrderedJson, ManyMembersTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) {
    text += (i > 0 ? ",\"" : "\"") + std::to_string(i * 7919 % 1000003) +
            "\":" + std::to_string(i);
  }
  const auto value = ParseOrderedJson(text + "}", "text", kMost);
  ASSERT_TRUE(value.ok());
  ASSERT_EQ(200000u, value.value().size());
  EXPECT_EQ(0, value.value().begin().value());
  EXPECT_EQ("7919", (++value.value().begin()).key());
}

}  // namespace
}  // namespace tarn
