#include "runtime/chat/openai_chat.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "text/template/ordered_json.h"

namespace tarn {
namespace {

using nlohmann::json;

ChatMessage Message(const std::string& text) {
  return MessageOfOpenAi(json::parse(text), "messages[2]");
}

OpenAiChat Request(const std::string& text) {
  const auto ordered = ParseOrderedJson(text, "request", text.size()).Take();
  return ChatOfOpenAi(json::parse(text), &ordered);
}

template <typename Call>
std::string Refused(const Call& call) {
  try {
    call();
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no error";
}

TEST(OpenAiChat, Messages) {
  ChatMessage message = Message(R"({"role": "user", "content": "Hi"})");
  EXPECT_EQ("user", message.role);
  EXPECT_EQ("Hi", message.content);
  EXPECT_TRUE(message.parts.is_discarded());
  EXPECT_FALSE(message.reasoning);

  message = Message(R"({"role": "system", "name": "n", "other": [1],
    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})");
  EXPECT_EQ("a\nb", message.content);
  EXPECT_EQ("n", message.name);

  message = Message(R"({"role": "tool", "content": "", "tool_call_id": "c1"})");
  EXPECT_EQ("", message.content);
  EXPECT_EQ("c1", message.tool_call_id);

  message = Message(
      R"({"role": "assistant", "content": null, "reasoning_content": "Hm",
      "function_call": null, "tool_calls": [
      {"id": "c1", "type": "function", "function":
        {"name": "f", "arguments": "{\"z\": 1, \"a\": [true]}"}},
      {"function": {"name": "g", "arguments": " "}},
      {"function": {"name": "h"}},
      {"function": {"name": "i", "arguments": {"k": 2}}}]})");
  EXPECT_EQ("", message.content);
  EXPECT_EQ("Hm", message.reasoning);
  ASSERT_EQ(4u, message.tool_calls.size());
  EXPECT_EQ("c1", message.tool_calls[0].id);
  EXPECT_EQ("f", message.tool_calls[0].name);
  EXPECT_EQ(R"({"z":1,"a":[true]})", message.tool_calls[0].arguments.dump());
  EXPECT_EQ("", message.tool_calls[1].id);
  EXPECT_EQ("{}", message.tool_calls[1].arguments.dump());
  EXPECT_EQ("{}", message.tool_calls[2].arguments.dump());
  EXPECT_EQ(R"({"k":2})", message.tool_calls[3].arguments.dump());

  EXPECT_EQ(
      "r",
      Message(R"({"role": "assistant", "reasoning": "r"})").reasoning.value());
  EXPECT_EQ("developer",
            Message(R"({"role": "developer", "content": "x"})").role);
}

TEST(OpenAiChat, FaultsOfMessagesHavePaths) {
  const auto refused = [](const std::string& text) {
    return Refused([&] { Message(text); });
  };
  EXPECT_EQ("messages[2]: want an object, got 3", refused("3"));
  EXPECT_EQ("messages[2].role: want a value, got none", refused("{}"));
  EXPECT_EQ(
      "messages[2].role: want system, developer, user, assistant or tool, got "
      "'x'",
      refused(R"({"role": "x", "content": ""})"));
  EXPECT_EQ("messages[2].content: want a text or a list of parts, got none",
            refused(R"({"role": "user", "content": null})"));
  EXPECT_EQ("messages[2].content: want a text or a list of parts, got 3",
            refused(R"({"role": "user", "content": 3})"));
  EXPECT_EQ("messages[2].content[1].type: want 'text', got 'image_url'",
            refused(R"({"role": "user", "content": [
              {"type": "text", "text": ""}, {"type": "image_url"}]})"));
  EXPECT_EQ("messages[2].content[0].text: want a text, got 1",
            refused(R"({"role": "user", "content": [
              {"type": "text", "text": 1}]})"));
  EXPECT_EQ("messages[2].content[0]: want an object, got the text 'a'",
            refused(R"({"role": "user", "content": ["a"]})"));
  EXPECT_EQ("messages[2].name: want a text, got 3",
            refused(R"({"role": "user", "content": "", "name": 3})"));
  EXPECT_EQ("messages[2].reasoning_content: want a text, got an array",
            refused(R"({"role": "assistant", "reasoning_content": []})"));
  EXPECT_EQ("messages[2].tool_calls: want a list, got an object",
            refused(R"({"role": "assistant", "tool_calls": {}})"));
  EXPECT_EQ(
      "messages[2].tool_calls: want none but of the assistant, got some of "
      "the role 'user'",
      refused(R"({"role": "user", "content": "", "tool_calls": [
        {"function": {"name": "f"}}]})"));
  EXPECT_EQ("messages[2].function_call: want tool_calls instead, got an object",
            refused(R"({"role": "assistant", "function_call": {}})"));
  const auto call = [&](const std::string& text) {
    return refused(R"({"role": "assistant", "tool_calls": [)" + text + "]}");
  };
  EXPECT_EQ("messages[2].tool_calls[0].function: want a value, got none",
            call("{}"));
  EXPECT_EQ("messages[2].tool_calls[0].type: want 'function', got 'custom'",
            call(R"({"type": "custom"})"));
  EXPECT_EQ(
      "messages[2].tool_calls[0].function.name: want a text, got an empty one",
      call(R"({"function": {"name": ""}})"));
  EXPECT_EQ(
      "messages[2].tool_calls[0].function.arguments: want a JSON object as a "
      "text, got the text '[1]'",
      call(R"({"function": {"name": "f", "arguments": "[1]"}})"));
  EXPECT_EQ(
      "messages[2].tool_calls[0].function.arguments: want a JSON object as a "
      "text, got 3",
      call(R"({"function": {"name": "f", "arguments": 3}})"));
  EXPECT_TRUE(call(R"({"function": {"name": "f", "arguments": "{"}})")
                  .starts_with("messages[2].tool_calls[0].function.arguments: "
                               "byte 1: want strict JSON, got "));
}

constexpr char kStart[] =
    R"({"messages": [{"role": "user", "content": "Hi"}], )";
constexpr char kTools[] = R"("tools": [
  {"type": "function", "function": {"name": "f", "parameters":
    {"type": "object", "properties": {"z": {}, "a": {}}}}},
  {"type": "function", "function": {"name": "g", "description": "G"}}])";

TEST(OpenAiChat, Requests) {
  OpenAiChat request = Request(std::string(kStart) + kTools + "}");
  EXPECT_EQ(1u, request.chat.messages.size());
  EXPECT_TRUE(request.chat.add_generation_prompt);
  EXPECT_EQ(ToolChoice::Mode::kAuto, request.tool_choice.mode);
  EXPECT_TRUE(request.chat.variables.is_null());
  ASSERT_EQ(2u, request.chat.tools.size());
  EXPECT_EQ(
      R"({"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"z":{},"a":{}}}}})",
      request.chat.tools[0].dump());
  // Without the order of the text.
  request = ChatOfOpenAi(json::parse(std::string(kStart) + kTools + "}"));
  EXPECT_TRUE(request.chat.tools[0].dump().starts_with(R"({"function":)"));

  const auto choice = [&](const std::string& text) {
    return Request(std::string(kStart) + kTools + ", \"tool_choice\": " + text +
                   "}");
  };
  EXPECT_EQ(ToolChoice::Mode::kAuto, choice("null").tool_choice.mode);
  EXPECT_EQ(ToolChoice::Mode::kAuto, choice("\"auto\"").tool_choice.mode);
  EXPECT_EQ(ToolChoice::Mode::kRequired,
            choice("\"required\"").tool_choice.mode);
  EXPECT_EQ(ToolChoice::Mode::kNone, choice("\"none\"").tool_choice.mode);
  EXPECT_TRUE(choice("\"none\"").chat.tools.is_null());
  const OpenAiChat named =
      choice(R"({"type": "function", "function": {"name": "g"}})");
  EXPECT_EQ(ToolChoice::Mode::kFunction, named.tool_choice.mode);
  EXPECT_EQ("g", named.tool_choice.function);
  EXPECT_EQ(2u, named.chat.tools.size());

  request = Request(std::string(kStart) + R"("tools": [],
    "chat_template_kwargs": {"enable_thinking": false, "a": {"z": 1, "b": 2}}})");
  EXPECT_TRUE(request.chat.tools.is_null());
  EXPECT_EQ(R"({"enable_thinking":false,"a":{"z":1,"b":2}})",
            request.chat.variables.dump());
}

TEST(OpenAiChat, FaultsOfRequestsHavePaths) {
  const auto refused = [](const std::string& text) {
    return Refused(
        [&] { ChatOfOpenAi(json::parse(text), nullptr, "request: "); });
  };
  const auto with = [&](const std::string& text) {
    return refused(std::string(kStart) + text + "}");
  };
  EXPECT_EQ("request: messages: want a value, got none", refused("{}"));
  EXPECT_EQ("request: messages: want at least one, got none",
            refused(R"({"messages": []})"));
  EXPECT_EQ("request: messages[1].role: want a text, got 1",
            refused(R"({"messages": [{"role": "assistant"}, {"role": 1}]})"));
  EXPECT_EQ("request: tools: want a list, got an object",
            with("\"tools\": {}"));
  EXPECT_EQ("request: tools[0].type: want 'function', got 'web'",
            with(R"("tools": [{"type": "web"}])"));
  EXPECT_EQ("request: tools[0].function.name: want a value, got none",
            with(R"("tools": [{"function": {}}])"));
  EXPECT_EQ("request: tools[0].function.parameters: want an object, got 3",
            with(R"("tools": [{"function": {"name": "f", "parameters": 3}}])"));
  EXPECT_EQ(
      "request: tools[1].function.name: want each function once, got 'f' twice",
      with(R"("tools": [{"function": {"name": "f"}},
                        {"function": {"name": "f"}}])"));
  EXPECT_EQ(
      "request: tool_choice: want 'auto', 'none', 'required' or a function, "
      "got the text 'any'",
      with(R"("tool_choice": "any")"));
  EXPECT_EQ("request: tool_choice: want tools to call, got none",
            with(R"("tool_choice": "required")"));
  EXPECT_EQ(
      "request: tool_choice.function.name: want a function of tools, got 'h'",
      with(std::string(kTools) +
           R"(, "tool_choice": {"function": {"name": "h"}})"));
  EXPECT_EQ("request: chat_template_kwargs: want an object, got an array",
            with(R"("chat_template_kwargs": [])"));
}

// A special token of the template's own must not come from a request.
TEST(OpenAiChat, VariablesCannotBeSpecialTokens) {
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token",
                           "messages", "tools", "add_generation_prompt"}) {
    const std::string message = Refused([&] {
      Request(std::string(kStart) + "\"chat_template_kwargs\": {\"" + name +
              "\": \"<|im_end|>\"}}");
    });
    EXPECT_EQ("chat_template_kwargs." + std::string(name) +
                  ": want other variables than the chat's own, got the text "
                  "'<|im_end|>'",
              message);
  }
  std::string many;
  for (int i = 0; i < 65; ++i) {
    many += (i > 0 ? ", \"v" : "\"v") + std::to_string(i) + "\": 0";
  }
  EXPECT_EQ("chat_template_kwargs: want at most 64, got 65", Refused([&] {
              Request(std::string(kStart) + "\"chat_template_kwargs\": {" +
                      many + "}}");
            }));
}

}  // namespace
}  // namespace tarn
