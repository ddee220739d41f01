// Each form of tool calls by examples, and what is no call.
#include "runtime/chat/tool_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/chat/test_tool_calls.h"

namespace tarn {
namespace {

using Parts = std::vector<ToldPart>;

const nlohmann::ordered_json& Tools() {
  static const auto tools = nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "weather", "parameters": {
      "type": "object", "properties": {
        "place": {"type": "string"}, "days": {"type": "integer"},
        "wind": {"type": "boolean"}, "at": {"type": ["string", "null"]},
        "share": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "list": {"type": "array"}, "unit": {"enum": ["C", "F"]},
        "options": {"type": "object"}}}}},
    {"name": "clock", "parameters": {"type": "object", "properties": {}}}])");
  return tools;
}

void Expect(const char* form, const std::string& answer, const Parts& parts) {
  for (const size_t piece : {1, 2, 3, 7, 1000000}) {
    EXPECT_EQ(parts, ToldOf(FormNamed(form), Tools(), answer, piece))
        << form << " in pieces of " << piece << ": " << answer;
  }
}

const ToldPart kBern = CallPart("weather", R"({"place":"Bern","days":2})");
const ToldPart kClock = CallPart("clock", "{}");

TEST(ToolCalls, Hermes) {
  const std::string bern =
      R"({"name": "weather", "arguments": {"place": "Bern", "days": 2}})";
  const std::string call = "<tool_call>\n" + bern + "\n</tool_call>";
  Expect("hermes", call, {kBern});
  Expect("hermes", "Wait.\n" + call + "\n" + call + "\nDone. ",
         {TextPart("Wait."), kBern, kBern, TextPart("Done. ")});
  // Without end marks, as a list, and as objects in a row.
  Expect("hermes", "<tool_call>" + bern, {kBern});
  Expect("hermes", "<tool_call>" + bern + "<tool_call>" + bern, {kBern, kBern});
  Expect("hermes", "<tool_call>[" + bern + ", " + bern + "]</tool_call>.",
         {kBern, kBern, TextPart(".")});
  Expect("hermes", "<tool_call>" + bern + "\n" + bern + "</tool_call>",
         {kBern, kBern});
  // The arguments first, as a text, under other names, absent.
  for (
      const char* one :
      {R"({"arguments": {"place": "Bern", "days": 2}, "name": "weather"})",
       R"({"name": "weather", "arguments": "{\"place\": \"Bern\", \"days\": 2}"})",
       R"({"type": "function", "name": "weather",
            "parameters": {"place": "Bern", "days": 2}, "id": "x"})",
       R"({"id": "x", "function": {"name": "weather",
            "\u0061rguments": {"place": "Bern", "days": 2}}})"}) {
    Expect("hermes", "<tool_call>" + std::string(one), {kBern});
  }
  for (const char* one :
       {R"({"name": "clock"})", R"({"name": "clock", "arguments": null})",
        R"({"name": "clock", "arguments": ""})"}) {
    Expect("hermes", "<tool_call>" + std::string(one), {kClock});
  }
}

TEST(ToolCalls, ArgumentsStayAsTheyAreWritten) {
  const std::string arguments =
      R"({"b" : 123456789012345678901234567890, "a":1.50,  "c":"\u00e9</tool_call>"})";
  std::string told;
  ToolCallSplitter splitter(FormNamed("hermes"));
  splitter.Push(
      "<tool_call>{\"name\":\"f\",\"arguments\":" + arguments + "}",
      [](std::string_view) { FAIL(); },
      [&](const ToolCallPart& call) { told = call.arguments; });
  EXPECT_EQ(arguments, told);
}

TEST(ToolCalls, WhatIsNoCallIsText) {
  for (const char* answer :
       {"",
        " ",
        "a <b> c",
        "<tool_call",
        "<tool_call>",
        "<tool_call> and",
        "<tool_call>{",
        "<tool_call>{\"name\": \"f\"",
        "<tool_call>[]",
        "<tool_call>{\"name\": \"f\"]",
        "<tool_call>{}</tool_call>",
        "<tool_call>{\"name\": 3}",
        "<tool_call>{\"name\": \"\"}",
        "<tool_call>{\"name\": \"a b\"}",
        "<tool_call>{\"name\": \"f\", }",
        "<tool_call>{'name': 'f'}",
        "<tool_call>{\"other\": {}}",
        "<tool_call>{\"name\": \"f\", \"name\": \"g\"}",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"x\"}",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\n\"}}",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\xff\"}}"}) {
    Parts parts;
    if (*answer != 0) parts.push_back(TextPart(answer));
    Expect("hermes", answer, parts);
    EXPECT_EQ(parts, ToldOf(nullptr, nullptr, answer, 3));
  }
  // A call after it is found.
  const std::string call = "<tool_call>{\"name\": \"clock\"}</tool_call>";
  Expect("hermes", "<tool_call> or " + call,
         {TextPart("<tool_call> or"), kClock});
  Expect("hermes", "<tool_call>" + call, {TextPart("<tool_call>"), kClock});
  Expect("hermes", "<tool_c" + call, {TextPart("<tool_c"), kClock});
  Expect("hermes", call + "</tool_call> x",
         {kClock, TextPart("</tool_call> x")});
  Expect("hermes", "<tool_call>[{\"name\": \"clock\"}, 5]" + call,
         {kClock, TextPart(", 5]"), kClock});
}

TEST(ToolCalls, FunctionTags) {
  const std::string bern =
      "<function=weather>\n<parameter=place>\nBern\n</parameter>\n"
      "<parameter=days>\n2\n</parameter>\n</function>";
  const char* form = "function-tags";
  Expect(form, "<tool_call>\n" + bern + "\n</tool_call>", {kBern});
  Expect(form,
         "Look:\n\n<tool_call>" + bern + "</tool_call>\n<tool_call>" + bern +
             "</tool_call>!",
         {TextPart("Look:"), kBern, kBern, TextPart("!")});
  Expect(form, bern + " x", {kBern, TextPart("x")});
  Expect(form, "<tool_call>" + bern + bern + "</tool_call>", {kBern, kBern});
  Expect(form, "<tool_call><function=clock></function></tool_call>", {kClock});
  Expect(form, "<tool_call><function=clock>",
         {TextPart("<tool_call><function=clock>")});
  Expect(form, "<tool_call><tool_call>" + bern,
         {TextPart("<tool_call>"), kBern});
  // Without the end of the function.
  Expect(form,
         "<tool_call><function=weather><parameter=place>Bern</parameter>"
         "<parameter=days>2</parameter></tool_call>",
         {kBern});
  const auto value = [&](const char* key, const std::string& text,
                         const std::string& json) {
    Expect(
        form,
        "<function=weather><parameter=" + std::string(key) + ">\n" + text +
            "\n</parameter></function>",
        {CallPart("weather", "{\"" + std::string(key) + "\":" + json + "}")});
  };
  value("place", "3", "\"3\"");
  value("place", "\n a \n", "\"\\n a \\n\"");
  value("place", "\"Bern\"", R"("\"Bern\"")");
  value("place", "a</parameter>b<parameter=c>",
        R"("a</parameter>b<parameter=c>")");
  value("place", "a</parameter>\n</parameter>",
        R"("a</parameter>\n</parameter>")");
  value("place", "\xff\xc3\xa9", "\"\xEF\xBF\xBD\xC3\xA9\"");
  value("days", " 3 ", "3");
  value("days", "3.5", "\"3.5\"");
  value("days", "three", "\"three\"");
  value("wind", "True", "true");
  value("wind", "false", "false");
  value("wind", "1", "\"1\"");
  value("at", "None", "null");
  value("at", "5", "\"5\"");
  value("share", "1e3", "1000.0");
  value("share", "null", "null");
  value("list", "[1, \"a\"]", "[1,\"a\"]");
  value("list", "['it\\'s', None, (1, 2,)]", "[\"it's\",null,[1,2]]");
  value("options", "{\"a\": {}}", "{\"a\":{}}");
  value("unit", "5", "\"5\"");
  value("unknown", "5", "5");
  value("unknown", "five", "\"five\"");
  value("unknown", "[x]", "\"[x]\"");
  // A parameter may come once, a name must be one.
  for (const char* answer :
       {"<function=f><parameter=a>1</parameter><parameter=a>2</parameter>"
        "</function>",
        "<function=>", "<function=a b>", "<function=f>x",
        "<function=f><parameter=>1</parameter>",
        "<function=f><parameter=a>1</parameter>x"}) {
    Expect(form, answer, {TextPart(answer)});
  }
}

TEST(ToolCalls, OtherTags) {
  Expect("argument-tags",
         "So\n<tool_call>weather\n<arg_key>place</arg_key>\n"
         "<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n"
         "<arg_value>2</arg_value>\n</tool_call><tool_call>clock</tool_call>",
         {TextPart("So"), kBern, kClock});
  Expect("argument-tags", "<tool_call>two words</tool_call>",
         {TextPart("<tool_call>two words</tool_call>")});
  Expect("seed",
         "<seed:tool_call>\n<function=weather>\n<parameter=place>Bern"
         "</parameter>\n<parameter=days>2</parameter>\n</function>\n"
         "</seed:tool_call>",
         {kBern});
}

TEST(ToolCalls, Pythonic) {
  Expect("lfm2",
         "Look.<|tool_call_start|>[weather(place=\"Bern\", days=2), clock()]"
         "<|tool_call_end|>Done",
         {TextPart("Look."), kBern, kClock, TextPart("Done")});
  const auto value = [&](const std::string& text, const std::string& json) {
    const std::string answer = "<|tool_call_start|>[f(a=" + text + ")]";
    if (json.empty()) {
      const auto parts = ToldOf(FormNamed("lfm2"), Tools(), answer, 1);
      EXPECT_EQ(Parts{TextPart(answer)}, parts) << text;
    } else {
      Expect("lfm2", answer, {CallPart("f", "{\"a\":" + json + "}")});
    }
  };
  value("'it\\'s \"so\"'", R"("it's \"so\"")");
  value(R"('\n\t\\\x41\u00e9\U0001f600\ud83d\ude00\q')",
        R"("\n\t\\A\u00e9\ud83d\ude00\ud83d\ude00\\q")");
  value("')],'", R"(")],")");
  value("[1, -2.5e3, (True, False,), None,]", "[1,-2.5e3,[true,false],null]");
  value("{'k': {\"l\": [null, true]}}", R"({"k":{"l":[null,true]}})");
  value("''", R"("")");
  for (const char* wrong : {"", "x", "1 2", "'a' 'b'", "[1", "{1: 2}", "'\\x4'",
                            "'\\ud83d'", "1, b", "f(1)", "1, a=2", "]"}) {
    value(wrong, "");
  }
  // The types of the schema, where a value has another.
  Expect(
      "lfm2",
      "<|tool_call_start|>[weather(place=3, days='2', wind='True', at=None)",
      {CallPart("weather", R"({"place":"3","days":2,"wind":true,"at":null})")});
  for (const char* answer :
       {"<|tool_call_start|>clock()", "<|tool_call_start|>[clock",
        "<|tool_call_start|>[clock 1]", "<|tool_call_start|>[]"}) {
    Expect("lfm2", answer, {TextPart(answer)});
  }
}

TEST(ToolCalls, NamesBeforeObjects) {
  const std::string bern = R"({"place": "Bern", "days": 2})";
  Expect("mistral-named",
         "[TOOL_CALLS]weather[ARGS]" + bern + "[TOOL_CALLS]clock[ARGS]{}",
         {kBern, kClock});
  Expect("mistral-named", "[TOOL_CALLS]weather[CALL_ID]abc[ARGS]" + bern,
         {kBern});
  Expect("mistral-named", "[TOOL_CALLS]a b[ARGS]{}",
         {TextPart("[TOOL_CALLS]a b[ARGS]{}")});
  Expect("mistral-named", "[TOOL_CALLS]f[ARGS][1]",
         {TextPart("[TOOL_CALLS]f[ARGS][1]")});
  const std::string kimi =
      "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>" +
      bern + "<|tool_call_end|>";
  Expect("kimi",
         "Hm<|tool_calls_section_begin|>" + kimi + "\n" + kimi +
             "<|tool_calls_section_end|>x",
         {TextPart("Hm"), kBern, kBern, TextPart("x")});
  Expect("kimi", kimi, {kBern});
  Expect("kimi", "<|tool_calls_section_begin|><|tool_calls_section_end|>",
         {TextPart("<|tool_calls_section_begin|><|tool_calls_section_end|>")});
  Expect("function-json",
         "<function=weather>" + bern + "</function>\n<function=clock>{}",
         {kBern, kClock});
}

TEST(ToolCalls, DeepSeek) {
  const std::string bern = R"({"place": "Bern", "days": 2})";
  Expect("deepseek-v3.1",
         DeepSeek("tool calls begin") + DeepSeek("tool call begin") +
             "weather" + DeepSeek("tool sep") + bern +
             DeepSeek("tool call end") + DeepSeek("tool call begin") + "clock" +
             DeepSeek("tool sep") + "{}" + DeepSeek("tool call end") +
             DeepSeek("tool calls end") + ".",
         {kBern, kClock, TextPart(".")});
  const std::string old = DeepSeek("tool call begin") + "function" +
                          DeepSeek("tool sep") + "weather\n```json\n" + bern +
                          "\n```" + DeepSeek("tool call end");
  Expect("deepseek-r1",
         DeepSeek("tool calls begin") + old + "\n" + old +
             DeepSeek("tool calls end"),
         {kBern, kBern});
}

TEST(ToolCalls, MarkedLists) {
  const std::string list =
      R"([{"name": "weather", "arguments": {"place": "Bern", "days": 2}}, )"
      R"({"name": "clock", "arguments": {}, "id": "call00001"}])";
  Expect("mistral", "[TOOL_CALLS]" + list + ".",
         {kBern, kClock, TextPart(".")});
  Expect("nemotron", "<TOOLCALL>" + list + "</TOOLCALL>\n", {kBern, kClock});
  Expect("tool-calls", "\n<tool_calls>" + list + "</tool_calls>",
         {kBern, kClock});
  Expect("tool-calls",
         "<tool_calls>\n{\"name\": \"clock\", \"arguments\": {}}\n"
         "{\"name\": \"clock\", \"arguments\": {}}\n</tool_calls>",
         {kClock, kClock});
  Expect("granite", "<|tool_call|>" + list, {kBern, kClock});
  Expect("granite", "<tool_call>" + list, {kBern, kClock});
}

TEST(ToolCalls, LlamasObjectsWithoutMarks) {
  const std::string bern =
      R"({"name": "weather", "parameters": {"place": "Bern", "days": 2}})";
  Expect("llama3", bern, {kBern});
  Expect("llama3", "\n" + bern + "; " + R"({"name": "clock"})",
         {kBern, kClock});
  Expect("llama3", "<|python_tag|>" + bern, {kBern});
  Expect("llama3", "As <|python_tag|>" + bern, {TextPart("As"), kBern});
  // Not at the beginning, no function of the list, no call.
  for (const std::string& answer :
       {"As " + bern, std::string(R"({"name": "other", "parameters": {}})"),
        std::string(R"({"answer": {"name": "clock"}})"), std::string("{x"),
        "[" + bern + "]", "{" + bern, std::string("<|python_tag|>print(1)")}) {
    Expect("llama3", answer, {TextPart(answer)});
  }
}

// Text is told with the bytes that show it to be text.
TEST(ToolCalls, TextIsNotHeldBack) {
  std::string told;
  const auto on_text = [&](std::string_view text) { told += text; };
  const auto on_call = [](const ToolCallPart&) { FAIL(); };
  ToolCallSplitter splitter(FormNamed("llama3"), Tools());
  splitter.Push("{\"answer\"", on_text, on_call);
  EXPECT_EQ("{\"answer\"", told);
  splitter.Push(": 1} <|py", on_text, on_call);
  EXPECT_EQ("{\"answer\": 1}", told);
  splitter.Push("x", on_text, on_call);
  EXPECT_EQ("{\"answer\": 1} <|pyx", told);
}

TEST(ToolCalls, WhiteSpaceIsHeldBackUpToALimit) {
  const std::string white(kMaxHeldWhiteBytes + 1, '\n');
  const std::string call = "<tool_call>{\"name\": \"clock\"}</tool_call>";
  Expect("hermes", "a" + white + call, {TextPart("a" + white), kClock});
  Expect("hermes", "a" + white.substr(1) + call, {TextPart("a"), kClock});
  Expect("hermes", call + white + white + call + white, {kClock, kClock});
}

}  // namespace
}  // namespace tarn
