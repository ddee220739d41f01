// Answers that would cost much: bounded memory, linear time, no recursion.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/chat/test_tool_calls.h"

namespace tarn {
namespace {

std::string Times(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

std::string MarkOf(const ToolCallForm& form) {
  return std::string(form.marks[0]);
}

// What begins the arguments of a call of the form.
std::string OpenCall(const ToolCallForm& form) {
  switch (form.body) {
    case ToolCallForm::Body::kObjects:
      return MarkOf(form) + "{\"name\": \"f\", \"arguments\": {\"a\": ";
    case ToolCallForm::Body::kNamed:
      return std::string(form.named.call.empty() ? form.marks[0]
                                                 : form.named.call) +
             std::string(form.named.name_after) + "f" +
             std::string(form.named.arguments) + "{\"a\": ";
    case ToolCallForm::Body::kTagged:
      return MarkOf(form) + std::string(form.tagged.function) + "f" +
             (form.tagged.name_end.empty() ? "\n" : ">") +
             std::string(form.tagged.key) + "a" +
             std::string(form.tagged.key_end) + std::string(form.tagged.value);
    case ToolCallForm::Body::kPythonic:
      return MarkOf(form) + "[f(a=";
  }
  return "";
}

// Whatever stays open is text, none of it is lost, and it is told before more
// than the limit of a call has come.
TEST(ToolCallsHostile, WhatStaysOpenBecomesText) {
  for (const ToolCallForm& form : ToolCallForms()) {
    // What texts in values look like does not matter: one of letters.
    const std::string open =
        OpenCall(form) + (form.body == ToolCallForm::Body::kTagged ? "" : "\"");
    std::string answer = open + std::string(kMaxToolCallBytes + 100000, 'x');
    size_t told = 0, most = 0, sent = 0;
    const auto on_text = [&](std::string_view text) { told += text.size(); };
    const auto on_call = [](const ToolCallPart&) { FAIL(); };
    ToolCallSplitter splitter(&form);
    for (size_t at = 0; at < answer.size(); at += 4096) {
      const std::string_view piece = std::string_view(answer).substr(at, 4096);
      splitter.Push(piece, on_text, on_call);
      sent += piece.size();
      most = std::max(most, sent - told);
    }
    splitter.Finish(on_text);
    EXPECT_EQ(answer.size(), told) << form.name;
    EXPECT_LE(most, kMaxToolCallBytes + 4096) << form.name;
    EXPECT_GE(most, kMaxToolCallBytes / 2) << form.name;
  }
}

TEST(ToolCallsHostile, ACallOfAlmostTheLimitIsTold) {
  const std::string text(kMaxToolCallBytes - 100, 'x');
  for (const char* form : {"hermes", "function-tags", "lfm2"}) {
    const ToolCallForm& row = *FormNamed(form);
    const bool tagged = row.body == ToolCallForm::Body::kTagged;
    const std::string answer =
        OpenCall(row) + (tagged ? text : "\"" + text + "\"") +
        (tagged                                      ? "</parameter></function>"
         : row.body == ToolCallForm::Body::kPythonic ? ")"
                                                     : "}}");
    const auto parts = ToldOf(&row, nullptr, answer);
    ASSERT_EQ(1u, parts.size()) << form;
    ASSERT_EQ("f", parts[0].name) << form;
    EXPECT_EQ(text, parts[0].arguments["a"]);
  }
}

TEST(ToolCallsHostile, NestingIsNotFollowedFarther) {
  for (const ToolCallForm& form : ToolCallForms()) {
    for (const char* bracket : {"[", "{\"a\":", "(", "{'a': "}) {
      const std::string deep = Times(bracket, 20000);
      const std::string answer = OpenCall(form) + deep;
      const auto parts = ToldOf(&form, nullptr, answer, 1000);
      ASSERT_EQ(1u, parts.size()) << form.name;
      EXPECT_EQ(answer, parts[0].text) << form.name;
    }
  }
  // As deep as JSON may be.
  const auto nested = [](size_t depth) {
    return "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " +
           Times("[", depth) + Times("]", depth) + "}}";
  };
  EXPECT_EQ("f", ToldOf(FormNamed("hermes"), nullptr, nested(62))[0].name);
  EXPECT_EQ("", ToldOf(FormNamed("hermes"), nullptr, nested(63))[0].name);
}

// A reader that went back to each mark would not come to an end.
TEST(ToolCallsHostile, ManyBeginningsTakeLinearTime) {
  for (const ToolCallForm& form : ToolCallForms()) {
    const std::string mark = MarkOf(form), open = OpenCall(form);
    const std::string end(form.end);
    std::vector<std::string> units = {
        mark,       mark.substr(0, mark.size() - 1),
        open,       open + "\"",
        mark + " ", "{\"name\": ",
        "{",        mark.substr(0, 1)};
    if (!end.empty()) {
      units.push_back(end);
      units.push_back(end.substr(0, end.size() - 1));
    }
    for (const std::string& unit : units) {
      const std::string answer = Times(unit, 100000 / unit.size());
      std::string told;
      for (const ToldPart& part : ToldOf(&form, nullptr, answer, 5)) {
        EXPECT_EQ("", part.name);
        told += part.text;
      }
      EXPECT_EQ(answer, told) << form.name << " " << unit;
    }
  }
}

TEST(ToolCallsHostile, ManyEndsOfAValueTakeLinearTime) {
  for (const char* form : {"function-tags", "seed", "argument-tags"}) {
    const ToolCallForm& row = *FormNamed(form);
    const std::string end(row.tagged.value_end);
    for (const std::string& unit :
         {end, end + std::string(50, ' '), end + "<", end + "</function"}) {
      const std::string answer =
          OpenCall(row) + Times(unit, 300000 / unit.size());
      const auto parts = ToldOf(&row, nullptr, answer, 3);
      ASSERT_EQ(1u, parts.size());
      EXPECT_EQ(answer, parts[0].text);
    }
  }
}

TEST(ToolCallsHostile, ManyMembersAndCalls) {
  std::string members = "\"m0\": 0", parameters;
  for (int i = 1; i < 4000; ++i) {
    members += ", \"m" + std::to_string(i) + "\": 0";
  }
  for (int i = 0; i < 2000; ++i) {
    parameters += "<parameter=m" + std::to_string(i) + ">0</parameter>";
  }
  EXPECT_EQ(4000u, ToldOf(FormNamed("hermes"), nullptr,
                          "<tool_call>{\"name\": \"f\", \"arguments\": {" +
                              members + "}}")[0]
                       .arguments.size());
  EXPECT_EQ(2000u, ToldOf(FormNamed("function-tags"), nullptr,
                          "<function=f>" + parameters + "</function>")[0]
                       .arguments.size());
  EXPECT_EQ(20000u,
            ToldOf(FormNamed("mistral"), nullptr,
                   "[TOOL_CALLS][" + Times("{\"name\": \"f\"}, ", 20000))
                    .size() -
                1);
}

TEST(ToolCallsHostile, SchemasOfToolsMayBeAnything) {
  using Json = nlohmann::ordered_json;
  Json deep = {{"type", "string"}};
  for (int i = 0; i < 200; ++i) {
    Json outer = Json::object();
    outer["anyOf"] = Json::array();
    outer["anyOf"].push_back(deep);
    deep = outer;
  }
  for (const Json& tools :
       {Json(nullptr), Json(3), Json("x"), Json::array({1, nullptr, "x"}),
        Json::parse(R"([{"function": 3}, {"name": 3}, {"name": "f"},
          {"name": "f", "parameters": []},
          {"name": "f", "parameters": {"properties": [1]}},
          {"name": "f", "parameters": {"properties": {"a": 3, "b": {
             "type": [1, {}], "enum": 3, "anyOf": {"x": 1}}}}}])")}) {
    EXPECT_EQ(CallPart("f", R"({"a":1})"),
              ToldOf(FormNamed("function-tags"), tools,
                     "<function=f><parameter=a>1</parameter></function>")[0]);
  }
  Json tools = Json::array();
  tools.push_back(
      {{"name", "f"}, {"parameters", {{"properties", {{"a", deep}}}}}});
  EXPECT_EQ(CallPart("f", R"({"a":"1"})"),
            ToldOf(FormNamed("function-tags"), tools,
                   "<function=f><parameter=a>1</parameter></function>")[0]);
}

}  // namespace
}  // namespace tarn
