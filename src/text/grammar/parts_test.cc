// Texts and schemas put together, and tokens that may be marks.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/bpe_tokenizer.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_masks.h"

namespace tarn {
namespace {

bool Takes(const Grammar& grammar, const std::string& text) {
  GrammarState state(grammar);
  return state.Push(text) && state.complete();
}

Grammar Parts(const std::string& text) {
  return Grammar::FromParts("{\"text\": " + text + "}").Take();
}

TEST(Parts, EachSaysWhatItSays) {
  EXPECT_TRUE(Takes(Parts(R"("abc")"), "abc"));
  EXPECT_FALSE(Takes(Parts(R"("abc")"), "ab"));
  EXPECT_TRUE(Takes(Parts(R"(["a", "b", "\u00e9"])"), "ab\xC3\xA9"));
  const Grammar any = Parts(R"({"any": ["a", ["b", "c"]]})");
  EXPECT_TRUE(Takes(any, "a") && Takes(any, "bc"));
  EXPECT_FALSE(Takes(any, "b") || Takes(any, ""));
  const Grammar optional = Parts(R"([{"optional": "a"}, "b"])");
  EXPECT_TRUE(Takes(optional, "ab") && Takes(optional, "b"));
  const Grammar repeat = Parts(R"({"repeat": "a", "between": ","})");
  EXPECT_TRUE(Takes(repeat, "a") && Takes(repeat, "a,a,a"));
  EXPECT_FALSE(Takes(repeat, "") || Takes(repeat, "a,") || Takes(repeat, "aa"));
  const Grammar members =
      Parts(R"({"members": [[false, "a"], [true, "b"], [false, "c"]],
                "between": ","})");
  for (const char* text : {"b", "a,b", "b,c", "a,b,c"}) {
    EXPECT_TRUE(Takes(members, text)) << text;
  }
  for (const char* text : {"", "a", "a,c", "b,a", "ab"}) {
    EXPECT_FALSE(Takes(members, text)) << text;
  }
  EXPECT_TRUE(Takes(Parts(R"({"regex": "[0-9]{2}"})"), "42"));
  const Grammar schema = Parts(
      R"(["<", {"schema": {"type": "array", "items": {"$ref": "#/$defs/n"},
                           "$defs": {"n": {"type": "integer"}}}}, ">"])");
  EXPECT_TRUE(Takes(schema, "<[1, 2]>"));
  EXPECT_FALSE(Takes(schema, "<[1.5]>"));
}

TEST(Parts, SchemasKeepTheirOwnReferences) {
  const Grammar both = Parts(
      R"([{"schema": {"$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}}}, "|",
          {"schema": {"$ref": "#/$defs/a", "$defs": {"a": {"const": 2}}}}])");
  EXPECT_TRUE(Takes(both, "1|2"));
  EXPECT_FALSE(Takes(both, "1|1"));
}

TEST(Parts, UntilEndsAtTheFirst) {
  for (const std::string end : {"</p>", "aab", "aaa", "abab", "x"}) {
    const Grammar grammar = Parts("[{\"until\": \"" + end + "\"}, \"!\"]");
    // All texts of a few signs, against a search.
    const std::string signs = "ab<x!/p>";
    std::vector<std::string> texts = {""};
    for (size_t i = 0; i < texts.size() && texts[i].size() < 5; ++i) {
      for (const char sign : signs) texts.push_back(texts[i] + sign);
    }
    size_t taken = 0;
    for (const std::string& head : texts) {
      const std::string text = head + end + "!";
      const bool wanted = text.find(end) == text.size() - end.size() - 1;
      ASSERT_EQ(wanted, Takes(grammar, text)) << end << " in " << text;
      taken += wanted ? 1 : 0;
    }
    EXPECT_GT(taken, 100u);
    EXPECT_TRUE(Takes(grammar, "\xE2\x82\xAC\n\x01" + end + "!"));
    EXPECT_FALSE(Takes(grammar, "\xFF" + end + "!"));
  }
}

TEST(Parts, NumbersAreShort) {
  const Grammar grammar = Parts(R"({"schema": {"type": "number"}})");
  for (const char* text : {"0", "-1.5", "1e99", "123456789012345678"}) {
    EXPECT_TRUE(Takes(grammar, text)) << text;
  }
  EXPECT_FALSE(Takes(grammar, "1e100"));
  EXPECT_FALSE(Takes(grammar, "1234567890123456789"));
}

TEST(Parts, BadDocumentsAreRefused) {
  for (const char* document :
       {"", "[]", "{}", R"({"text": 3})", R"({"text": {}})",
        R"({"text": {"any": []}})", R"({"text": {"any": "a"}})",
        R"({"text": {"until": ""}})", R"({"text": {"until": "\u00e9"}})",
        R"({"text": {"regex": "("}})", R"({"text": {"regex": 1}})",
        R"({"text": {"schema": 3}})", R"({"text": {"schema": {"not": {}}}})",
        R"({"text": {"members": [["a", "b"]]}})", R"({"text": {"members": 3}})",
        R"({"text": "a", "marks": 3})", R"({"text": "a", "marks": [3]})"}) {
    std::vector<std::string> marks;
    EXPECT_FALSE(Grammar::FromParts(document, &marks).ok()) << document;
  }
}

TEST(Parts, MarksAreTokensAsOthers) {
  std::vector<std::string> marks;
  const Grammar grammar =
      Grammar::FromParts(R"({"marks": ["<call>"], "text": ["<call>", "a"]})",
                         &marks)
          .Take();
  EXPECT_EQ(std::vector<std::string>{"<call>"}, marks);
  BpeDefinition definition;
  for (int b = 0; b < 256; ++b) {
    definition.tokens.emplace_back(1, static_cast<char>(b));
  }
  definition.tokens.insert(definition.tokens.end(), {"<call>", "<other>"});
  definition.added = {{.id = 256, .content = "<call>", .special = true},
                      {.id = 257, .content = "<other>"}};
  const Tokenizer tokenizer = Tokenizer::Bpe(std::move(definition));
  ASSERT_EQ(258, tokenizer.vocab_size());
  const auto allows = [&](const TokenMasks& masks, int32_t token) {
    std::vector<uint32_t> mask(static_cast<size_t>(masks.mask_words()));
    masks.Fill(GrammarState(grammar), mask);
    return (mask[static_cast<size_t>(token / 32)] >> (token % 32) & 1) != 0;
  };
  const TokenMasks plain(grammar, tokenizer, {});
  const TokenMasks marked(grammar, tokenizer, {}, {.marks = marks});
  EXPECT_TRUE(allows(plain, '<') && allows(marked, '<'));
  EXPECT_FALSE(allows(plain, 256));
  EXPECT_TRUE(allows(marked, 256));
  EXPECT_FALSE(allows(marked, 257));
}

}  // namespace
}  // namespace tarn
