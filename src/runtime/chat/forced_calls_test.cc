// Random texts of the grammars of forced calls, in every form: the splitter
// finds exactly these calls, and their arguments fit the schemas.
#include "runtime/chat/forced_calls.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/chat/test_tool_calls.h"
#include "runtime/chat/thinking.h"
#include "text/grammar/grammar.h"

namespace tarn {
namespace {

using Json = nlohmann::ordered_json;

const Json& ForcedTools() {
  static const auto tools = Json::parse(R"([
    {"type": "function", "function": {"name": "look_up",
      "description": "Looks up", "parameters": {"type": "object",
      "properties": {
        "text": {"type": "string", "description": "A text"},
        "unit": {"type": "string", "enum": ["C", "F \"x\"", "a\nb"]},
        "maybe": {"type": ["string", "null"]},
        "integer": {"type": "integer", "minimum": -5, "maximum": 300},
        "number": {"type": "number"},
        "flag": {"type": "boolean"},
        "none": {"type": "null"},
        "list": {"type": "array", "items": {"type": "integer"},
                 "maxItems": 3},
        "object": {"type": "object", "properties": {
          "inner": {"type": "string", "maxLength": 9}},
          "required": ["inner"], "additionalProperties": false}},
      "required": ["unit", "integer", "object"],
      "additionalProperties": false}}},
    {"type": "function", "function": {"name": "go"}},
    {"type": "function", "function": {"name": "stop-it", "parameters": {
      "type": "object", "properties": {"why": {"type": "string"}}}}}])");
  return tools;
}

// The schemas above, checked by hand.
void ExpectFits(const ToldPart& call) {
  const Json& arguments = call.arguments;
  if (call.name == "go") {
    EXPECT_TRUE(arguments.empty()) << arguments;
    return;
  }
  if (call.name == "stop-it") {
    for (const auto& [key, value] : arguments.items()) {
      EXPECT_EQ("why", key);
      EXPECT_TRUE(value.is_string()) << value;
    }
    return;
  }
  ASSERT_EQ("look_up", call.name);
  const std::set<std::string> units = {"C", "F \"x\"", "a\nb"};
  for (const auto& [key, value] : arguments.items()) {
    if (key == "text") {
      EXPECT_TRUE(value.is_string()) << value;
    } else if (key == "unit") {
      EXPECT_TRUE(value.is_string() && units.contains(value.get<std::string>()))
          << value;
    } else if (key == "maybe") {
      EXPECT_TRUE(value.is_string() || value.is_null()) << value;
    } else if (key == "integer") {
      EXPECT_TRUE(value.is_number_integer() && value >= -5 && value <= 300)
          << value;
    } else if (key == "number") {
      EXPECT_TRUE(value.is_number()) << value;
    } else if (key == "flag") {
      EXPECT_TRUE(value.is_boolean()) << value;
    } else if (key == "none") {
      EXPECT_TRUE(value.is_null()) << value;
    } else if (key == "list") {
      EXPECT_TRUE(value.is_array() && value.size() <= 3) << value;
      for (const Json& one : value) EXPECT_TRUE(one.is_number_integer());
    } else if (key == "object") {
      ASSERT_TRUE(value.is_object() && value.size() == 1) << value;
      EXPECT_TRUE(value.contains("inner") && value["inner"].is_string());
    } else {
      ADD_FAILURE() << "unknown parameter " << key;
    }
  }
  for (const char* key : {"unit", "integer", "object"}) {
    EXPECT_TRUE(arguments.contains(key)) << key;
  }
}

// A text of the grammar, drawn byte by byte as a model of random weights would;
// it prefers to end once it has some length.
std::string RandomTextOf(const Grammar& grammar, std::mt19937_64& random,
                         size_t enough) {
  GrammarState state(grammar);
  std::string text;
  while (true) {
    if (state.complete() && (text.size() >= enough || random() % 2 == 0)) {
      return text;
    }
    // What ends a text without quotes would hardly be found by chance.
    if (random() % 25 == 0) {
      static const std::vector<std::string> ends = {"</think>", "</parameter>",
                                                    "</arg_value>"};
      const std::string& end = ends[random() % ends.size()];
      if (state.Push(end)) {
        text += end;
        continue;
      }
    }
    // Signs that close something come often enough for texts to end.
    constexpr std::string_view kClosing = "\"<}])/";
    const bool closes = random() % 3 == 0;
    bool moved = false;
    for (int i = 0; i < 12 && !moved; ++i) {
      const char one = closes ? kClosing[random() % kClosing.size()]
                              : static_cast<char>(random() % 256);
      moved = state.Push({&one, 1});
      if (moved) text += one;
    }
    // Few bytes may follow: the first from a random one on.
    const size_t begin = random() % 256;
    for (size_t i = 0; i < 256 && !moved; ++i) {
      const size_t byte = (begin + i) % 256;
      const char one = static_cast<char>(byte);
      moved = state.Push({&one, 1});
      if (moved) text += one;
    }
    if (!moved) {
      EXPECT_TRUE(state.complete()) << text;
      return text;
    }
    if (text.size() > 100000) {
      ADD_FAILURE() << "a text without an end";
      return text;
    }
  }
}

Grammar GrammarOf(const ToolCallForm& form, const ForcedCalls& forced) {
  const std::string source =
      ForcedCallsGrammar(form, ForcedTools(), forced, "tools");
  return Grammar::FromParts(source).Take();
}

// The calls of an answer without thinking, and no text around them.
std::vector<ToldPart> CallsIn(const ToolCallForm& form, const std::string& text,
                              bool thinks) {
  std::string answer;
  ThinkingSplitter thinking(thinks);
  const auto add = [&](AnswerPart part, std::string_view bytes) {
    if (part == AnswerPart::kText) answer += bytes;
  };
  thinking.Push(text, add);
  thinking.Finish(add);
  std::vector<ToldPart> told = ToldOf(&form, ForcedTools(), answer, 5);
  for (const ToldPart& part : told) {
    EXPECT_FALSE(part.name.empty())
        << form.name << ": text '" << part.text << "' of " << text;
  }
  return told;
}

TEST(ForcedCalls, RandomTextsAreCallsInEveryForm) {
  std::mt19937_64 random(7);
  for (const ToolCallForm& form : ToolCallForms()) {
    std::set<std::string> names;
    size_t most = 0;
    for (const bool several : {false, true}) {
      const Grammar grammar = GrammarOf(form, {.several = several});
      for (int i = 0; i < (several ? 40 : 12); ++i) {
        const std::string text = RandomTextOf(grammar, random, 150);
        const auto calls = CallsIn(form, text, false);
        if (several) {
          ASSERT_GE(calls.size(), 1u) << form.name << ": " << text;
        } else {
          ASSERT_EQ(1u, calls.size()) << form.name << ": " << text;
        }
        most = std::max(most, calls.size());
        for (const ToldPart& call : calls) {
          names.insert(call.name);
          ExpectFits(call);
        }
        if (HasFailure()) FAIL() << form.name << ": " << text;
      }
    }
    EXPECT_EQ(3u, names.size()) << form.name;
    EXPECT_GT(most, 1u) << form.name;
  }
}

TEST(ForcedCalls, OneFunctionAfterItsThinking) {
  std::mt19937_64 random(8);
  for (const ToolCallForm& form : ToolCallForms()) {
    const Grammar grammar =
        GrammarOf(form, {.function = "stop-it", .thinks = true});
    for (int i = 0; i < 3; ++i) {
      const std::string text = RandomTextOf(grammar, random, 100);
      EXPECT_NE(text.npos, text.find("</think>"));
      const auto calls = CallsIn(form, text, true);
      ASSERT_EQ(1u, calls.size()) << form.name << ": " << text;
      EXPECT_EQ("stop-it", calls[0].name);
      ExpectFits(calls[0]);
    }
  }
}

// What templates write is a text of the grammar.
TEST(ForcedCalls, TheUsualSpelling) {
  const auto takes = [](const char* form, const std::string& text) {
    GrammarState state(GrammarOf(*FormNamed(form), {.function = "stop-it"}));
    const auto error = state.Advance(text);
    return !error && state.complete();
  };
  EXPECT_TRUE(takes("hermes",
                    "<tool_call>\n{\"name\": \"stop-it\", \"arguments\": "
                    "{\"why\": \"a\"}}\n</tool_call>"));
  EXPECT_TRUE(takes("llama3",
                    "{\"name\": \"stop-it\", \"parameters\": {\"why\": "
                    "\"a\"}}"));
  EXPECT_TRUE(takes("function-tags",
                    "<tool_call>\n<function=stop-it>\n<parameter=why>\na\n"
                    "</parameter>\n</function>\n</tool_call>"));
  EXPECT_TRUE(
      takes("mistral-named", "[TOOL_CALLS]stop-it[ARGS]{\"why\": \"a\"}"));
  EXPECT_TRUE(takes("argument-tags",
                    "<tool_call>stop-it\n<arg_key>why</arg_key>\n"
                    "<arg_value>a</arg_value>\n</tool_call>"));
  EXPECT_FALSE(takes("hermes", "Hello"));
}

std::string ErrorOf(const char* form, const char* tools,
                    const char* function = "") {
  try {
    const std::string source = ForcedCallsGrammar(
        *FormNamed(form), Json::parse(tools), {.function = function}, "tools");
    const auto grammar = Grammar::FromParts(source);
    return grammar.ok() ? "" : grammar.error().where();
  } catch (const FormatError& error) {
    return error.where();
  }
}

TEST(ForcedCalls, WhatCannotBeWrittenIsNamed) {
  EXPECT_EQ("tools", ErrorOf("hermes", "[]"));
  EXPECT_EQ("tools", ErrorOf("hermes", R"([{"name": "a"}])", "b"));
  EXPECT_EQ("tools[0].name", ErrorOf("hermes", R"([{"name": "a b"}])"));
  EXPECT_EQ(
      "tools[0].parameters.type",
      ErrorOf("hermes", R"([{"name": "a", "parameters": {"type": "array"}}])"));
  const char* unknown = R"([{"type": "function", "function": {"name": "a",
    "parameters": {"type": "object", "properties": {
      "b": {"type": "number", "multipleOf": 3}}}}}])";
  EXPECT_EQ("tools[0].function.parameters: schema: #/properties/b/multipleOf",
            ErrorOf("hermes", unknown));
  const char* bounded = R"([{"name": "a", "parameters": {"properties": {
      "b": {"type": "string", "maxLength": 3}}}}])";
  EXPECT_EQ("", ErrorOf("hermes", bounded));
  EXPECT_EQ("tools[0].parameters.properties.b.maxLength",
            ErrorOf("function-tags", bounded));
  EXPECT_EQ("", ErrorOf("lfm2", bounded));
  const char* odd = R"([{"name": "a", "parameters": {"properties": {
      "b<": {"type": "string"}}}}])";
  EXPECT_EQ("tools[0].parameters.properties.b<", ErrorOf("seed", odd));
  EXPECT_EQ("tools[0].parameters.properties.b<", ErrorOf("lfm2", odd));
  EXPECT_EQ("", ErrorOf("kimi", odd));
}

}  // namespace
}  // namespace tarn
