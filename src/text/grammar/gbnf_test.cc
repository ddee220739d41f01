#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"

namespace tarn {
namespace {

bool Accepts(const Grammar& grammar, const std::string& text) {
  GrammarState state(grammar);
  return state.Push(text) && state.complete();
}

void ExpectTexts(const std::string& source,
                 const std::vector<std::string>& accepted,
                 const std::vector<std::string>& rejected) {
  const Result<Grammar> grammar = Grammar::FromGbnf(source);
  ASSERT_TRUE(grammar.ok()) << grammar.error().what();
  for (const std::string& text : accepted) {
    EXPECT_TRUE(Accepts(grammar.value(), text)) << source << ": " << text;
  }
  for (const std::string& text : rejected) {
    EXPECT_FALSE(Accepts(grammar.value(), text)) << source << ": " << text;
  }
}

std::string Refusal(const std::string& source) {
  const Result<Grammar> grammar = Grammar::FromGbnf(source);
  return grammar.ok() ? "" : grammar.error().what();
}

TEST(Gbnf, Notation) {
  ExpectTexts("root ::= \"a\" | [b-d] | .",
              {"a", "d", "e", "\n", "\xF0\x9F\x98\x80"},
              {"", "ab", "\xFF", "\xED\xA0\x80"});
  ExpectTexts("root ::= \"ab\"* # a comment\n", {"", "ab", "abab"},
              {"a", "aba"});
  ExpectTexts("root ::= x{2} x{0,1} y{1,}\nx ::= \"x\"\ny ::= [yz]",
              {"xxy", "xxxz", "xxyyzy"}, {"xy", "xx", "xxxxy"});
  ExpectTexts("root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\r\\\\\\\"\\[\\]\"",
              {"A\xC3\xA9\xF0\x9F\x98\x80\n\t\r\\\"[]"}, {"A"});
  ExpectTexts("root ::= [^\\x00-\\x7F]", {"\xC3\xA9", "\xEF\xBF\xBF"}, {"a"});
  ExpectTexts("root ::= [a\\-z]", {"a", "-", "z"}, {"b"});
  ExpectTexts("root ::= [a-]", {"a", "-"}, {"b"});
  ExpectTexts("root ::= [\\]x]", {"]", "x"}, {"["});
  ExpectTexts("root ::= | \"a\"", {"", "a"}, {"aa"});
  ExpectTexts("root ::= (\n  \"a\" |\n  \"b\"\n)+\n\n# end", {"ab"}, {""});
  ExpectTexts("root ::=\n \"a\" |\n\n \"b\"", {"a", "b"}, {"ab"});
  ExpectTexts("root ::= \"a\"\r\nx ::= \"b\"\r\n", {"a"}, {"b"});
  ExpectTexts("root ::= \"a\"+?{2}", {"", "a", "aaaa"}, {"b"});
  ExpectTexts("a-b ::= \"x\"\nroot ::= a-b a_2\na_2 ::= a-b", {"xx"}, {"x"});
}

TEST(Gbnf, Recursion) {
  ExpectTexts("root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"},
              {"(", "())", ")("});
  // Right recursion takes no stack; the other is limited by its depth.
  const Grammar right = Grammar::FromGbnf("root ::= \"a\" root | \"b\"").Take();
  GrammarState state(right);
  EXPECT_TRUE(state.Push(std::string(100000, 'a')));
  EXPECT_TRUE(state.Push("b") && state.complete());
  const Grammar nested =
      Grammar::FromGbnf("root ::= \"(\" root \")\" | \"\"").Take();
  GrammarState deep(nested);
  EXPECT_TRUE(deep.Push(std::string(1000, '(')));
  const std::optional<Error> error = deep.Advance(std::string(1000, '('));
  ASSERT_TRUE(error.has_value());
  EXPECT_NE(std::string(error->what()).find("1024 levels"), std::string::npos)
      << error->what();
  EXPECT_TRUE(deep.Push(std::string(1000, ')')) && deep.complete());
}

// As many derivations as there are binary trees: stacks share what they hold.
TEST(Gbnf, AmbiguityIsShared) {
  const Grammar grammar = Grammar::FromGbnf(
                              "root ::= a | b | \"x\"\n"
                              "a ::= \"(\" root \")\" | \"(\" root \"]\"\n"
                              "b ::= \"(\" root \")\" \"\" | \"(\" root \"}\"")
                              .Take();
  GrammarState state(grammar);
  ASSERT_TRUE(state.Push(std::string(200, '(') + "x"));
  EXPECT_LT(state.Save().size(), 50000u);
  ASSERT_TRUE(state.Push(std::string(100, ')') + std::string(50, ']')));
  EXPECT_FALSE(state.complete());
  ASSERT_TRUE(state.Push(std::string(50, '}')));
  EXPECT_TRUE(state.complete());
}

TEST(Gbnf, StateIsUnchangedByWhatItRefuses) {
  const Grammar grammar = Grammar::FromGbnf("root ::= \"abc\" [x-z]+").Take();
  GrammarState state(grammar);
  EXPECT_TRUE(state.Push("ab"));
  const GrammarState before = state;
  const std::optional<Error> error = state.Advance("cxyq");
  ASSERT_TRUE(error.has_value());
  EXPECT_STREQ(error->what(),
               "grammar: want text that the grammar allows, got byte 3, 0x71");
  EXPECT_EQ(error->code(), ErrorCode::kFormat);
  EXPECT_TRUE(state == before);
  EXPECT_TRUE(state.Push("") && state == before);
  EXPECT_TRUE(state.Push("cx") && !(state == before));
}

TEST(Gbnf, RefusesWithLineAndColumn) {
  const std::string at = "grammar: line ";
  EXPECT_EQ(Refusal(""), "grammar: want a rule root, got none of this name");
  EXPECT_EQ(Refusal("x ::= \"a\""),
            "grammar: want a rule root, got none of this name");
  EXPECT_EQ(Refusal("root ::= x"),
            at + "1, column 10: want a rule that is defined, got x");
  EXPECT_EQ(Refusal("root ::= \"a\"\nroot ::= \"b\""),
            at + "2, column 1: want one definition of each rule, got another "
                 "of root");
  EXPECT_EQ(Refusal("root = \"a\""), at + "1, column 6: want ::=, got '='");
  EXPECT_EQ(Refusal("root ::= \"a\"\n  | \"b\""),
            at + "2, column 3: want the name of a rule, got '|'");
  EXPECT_EQ(Refusal("root ::= \"a"),
            at + "1, column 12: want '\"', got the end");
  EXPECT_EQ(Refusal("root ::= [a"), at + "1, column 12: want ']', got the end");
  EXPECT_EQ(Refusal("root ::= []"),
            at + "1, column 10: want a class with a character, got none");
  EXPECT_EQ(Refusal("root ::= [z-a]"),
            at + "1, column 11: want a range from a smaller to a larger "
                 "character, got the reverse");
  EXPECT_EQ(Refusal("root ::= *"),
            at + "1, column 10: want something to repeat, got '*'");
  EXPECT_EQ(Refusal("root ::= \"a\"{1000000}"),
            at + "1, column 14: want at most 10000 repetitions, got more");
  EXPECT_EQ(Refusal("root ::= \"a\"{3,2}"),
            at + "1, column 13: want a repetition from a smaller to a larger "
                 "number, got the reverse");
  EXPECT_EQ(Refusal("root ::= (\"a\""),
            at + "1, column 14: want ')', got the end");
  EXPECT_EQ(Refusal("root ::= \"a\")"),
            at + "1, column 13: want the end of the rule, got ')'");
  EXPECT_EQ(Refusal("root ::= \"\\uD800\""),
            at + "1, column 11: want a Unicode scalar value, got another "
                 "number");
  EXPECT_EQ(Refusal("root ::= \"\\x4\""),
            at + "1, column 14: want 2 hexadecimal digits, got '\"'");
  EXPECT_EQ(Refusal("root ::= \"\xFF\""),
            at + "1, column 11: want valid UTF-8, got byte 0xff");
  EXPECT_NE(
      Refusal("root ::= \"\\q\"").find("line 1, column 11: want an escape"),
      std::string::npos);
  EXPECT_NE(Refusal("root ::= <think>").find("tokens are not supported"),
            std::string::npos);
}

TEST(Gbnf, RefusesGrammarsThatBeginWithThemselves) {
  const std::string wanted = "rules that do not begin with themselves";
  for (const std::string source :
       {"root ::= root \"a\" | \"b\"", "root ::= x\nx ::= y\ny ::= x | \"a\"",
        "root ::= [a]? root \"b\" | \"c\"",
        "root ::= x* root | \"a\"\nx ::= \"\"", "root ::= \"a\"\nx ::= x",
        "root ::= (\"a\" | \"\") (root | \"b\")"}) {
    const Result<Grammar> grammar = Grammar::FromGbnf(source);
    ASSERT_FALSE(grammar.ok()) << source;
    EXPECT_EQ(grammar.error().wanted(), wanted) << source;
    EXPECT_EQ(grammar.error().where().substr(0, 14), "grammar: line ");
  }
  EXPECT_NE(Refusal("root ::= \"a\" root").find("at least one sentence"),
            std::string::npos);
  // A part that cannot end is left out.
  ExpectTexts("root ::= \"a\" x | \"b\"\nx ::= \"c\" x", {"b"}, {"a", "ac"});
  const Grammar partly =
      Grammar::FromGbnf("root ::= \"a\" x | \"b\"\nx ::= \"c\" x").Take();
  EXPECT_FALSE(GrammarState(partly).Push("a"));
}

// llama.cpp's own examples, where TARN_LLAMA_CPP names its sources.
TEST(Gbnf, ReadsPublishedGrammars) {
  const char* sources = std::getenv("TARN_LLAMA_CPP");
  if (sources == nullptr) GTEST_SKIP() << "TARN_LLAMA_CPP names no checkout";
  struct Example {
    const char* file;
    std::vector<std::string> accepted, rejected;
  };
  const std::vector<Example> examples = {
      {"arithmetic.gbnf", {"1+2=3\n", "(a*b)-c=x1 \ny=2\n"}, {"1+=3\n", "1=2"}},
      {"c.gbnf",
       {"int main(){return 0;}",
        "float f(int a){int b = a*2;while(a<b){a = b;}}"},
       {"int main({}", "main(){}"}},
      {"chess.gbnf",
       {"1. e4 e5\n2. Nf3 Nc6\n", "1. d4 d5\n2. O-O Bxe4+\n"},
       {"1. e4\n", "e4 e5\n"}},
      {"english.gbnf", {"Hello, World!", "a\tb"}, {"", "\xC3\xA9"}},
      {"japanese.gbnf", {"\xE3\x81\x82\xE3\x82\xA2"}, {"abc"}},
      {"json.gbnf",
       {"{}", "{\"a\": [1, 2.5e3, null]}", "{ \"a\":{\"b\":\"\\u00e9\\n\"}}"},
       {"[1]", "{\"a\"}", "{a:1}", "{\"a\":01}"}},
      {"json_arr.gbnf", {"[\n1,\n2]", "[\n{\"a\":true}]"}, {"[1]", "{}"}},
      {"list.gbnf", {"- a\n", "- one two\n- \xC3\xA9\n"}, {"a\n", "- \n"}}};
  for (const Example& example : examples) {
    std::ifstream file(std::filesystem::path(sources) / "grammars" /
                       example.file);
    std::ostringstream text;
    text << file.rdbuf();
    ASSERT_FALSE(text.str().empty()) << example.file;
    ExpectTexts(text.str(), example.accepted, example.rejected);
  }
}

}  // namespace
}  // namespace tarn
