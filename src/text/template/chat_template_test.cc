// Errors with their positions, what is data, the typed conversation, threads.
#include "text/template/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "text/template/chat.h"

namespace tarn {
namespace {

using Json = nlohmann::ordered_json;

RenderedText Render(const std::string& source, const Json& context,
                    const RenderOptions& options = {}) {
  return ChatTemplate::Parse(source).Take().Render(context, options).Take();
}

// The pieces, data in brackets: "a[b]c".
std::string Marked(const std::string& source, const Json& context) {
  std::string text;
  for (const RenderedPiece& piece : Render(source, context).pieces) {
    text += piece.from_data ? "[" + piece.text + "]" : piece.text;
  }
  return text;
}

std::string ErrorOf(const std::string& source, const Json& context,
                    ErrorCode code = ErrorCode::kFormat) {
  const Result<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) {
    EXPECT_EQ(parsed.error().code(), code);
    return parsed.error().what();
  }
  const Result<RenderedText> text = parsed.value().Render(context);
  if (text.ok()) return "no error: " + text.value().Text();
  EXPECT_EQ(text.error().code(), code);
  return text.error().what();
}

TEST(ChatTemplate, ErrorsNameLineAndColumn) {
  const Json none = Json::object();
  EXPECT_EQ(ErrorOf("a\n  {{ x + }}", none),
            "chat template, line 2, column 10: want an expression, got '}}'");
  EXPECT_EQ(ErrorOf("{% for x in %}", none),
            "chat template, line 1, column 13: want an expression, got '%}'");
  EXPECT_EQ(ErrorOf("\n\n{% if x %}", none),
            "chat template, line 3, column 11: want '{% endif %}', got the end "
            "of the template");
  EXPECT_EQ(ErrorOf("{{ 'x' }}\r\n {{ 'a' + 1 }}", none),
            "chat template, line 2, column 9: want values for the operator +, "
            "got a value of type str and a value of type int");
  EXPECT_EQ(ErrorOf("{{ 1 | nope }}", none),
            "chat template, line 1, column 8: want a filter that is supported, "
            "got 'nope'");
  EXPECT_EQ(
      ErrorOf("x\n{{ m.y.z }}", {{"m", Json::object()}}),
      "chat template, line 2, column 7: want a value with attributes, got "
      "'dict object' has no attribute 'y'");
  EXPECT_EQ(
      ErrorOf("{% macro m() %}\n{{ nothing() }}{% endmacro %}{{ m() }}", none),
      "chat template, line 2, column 11: want a function or macro to "
      "call, got 'nothing' is undefined");
  EXPECT_EQ(
      ErrorOf("{{ raise_exception('no\ntools') }}", none, ErrorCode::kArgument),
      "chat template, line 1, column 19: the template refuses the "
      "conversation: no\\x0atools");
  EXPECT_EQ(ErrorOf("{% include 'x' %}", none).substr(0, 43),
            "chat template, line 1, column 4: want a tag");
  EXPECT_EQ(ErrorOf("{{ strftime_now('%Y') }}", none),
            "chat template, line 1, column 16: want the time from the caller "
            "(RenderOptions::now) for strftime_now, got none");
  EXPECT_EQ(ErrorOf("x", Json::array(), ErrorCode::kArgument),
            "chat template: want the context to be an object, got a list");
}

TEST(ChatTemplate, ContextMustBeJson) {
  const ChatTemplate parsed = ChatTemplate::Parse("{{ a }}").Take();
  EXPECT_EQ(parsed.RenderJson(R"({"a": 1.0})").Take().Text(), "1.0");
  for (const char* broken :
       {"", "{", "[]", "1", "{\"a\":}", "{\"a\":1}x", "{\"a\":\"\xff\"}",
        "{\"a\": 99999999999999999999}", "{\"a\": 18446744073709551615}"}) {
    const Result<RenderedText> text = parsed.RenderJson(broken);
    ASSERT_FALSE(text.ok()) << broken;
    EXPECT_EQ(text.error().code(), ErrorCode::kArgument) << broken;
  }
}

TEST(ChatTemplate, TextOfTheContextIsData) {
  const Json context = {{"x", "<eos>"},
                        {"l", {"a", "b"}},
                        {"m", {{"k", "v"}}},
                        {"bos_token", "<s>"},
                        {"n", 5}};
  EXPECT_EQ(Marked("<eos>{{ x }}<eos>", context), "<eos>[<eos>]<eos>");
  EXPECT_EQ(Marked("{{ '<' + x + '>' }}", context), "<[<eos>]>");
  EXPECT_EQ(Marked("{{ '<' ~ x ~ n }}", context), "<[<eos>]5");
  EXPECT_EQ(Marked("{{ ('ab' + x + 'cd')[1:-1] }}", context), "b[<eos>]c");
  EXPECT_EQ(Marked("{{ (x + 'cd')[::-1] }}", context), "dc[>soe<]");
  EXPECT_EQ(Marked("{{ x | upper }}{{ (x ~ 'y').title() }}", context),
            "[<EOS><Eos>]Y");
  EXPECT_EQ(Marked("{{ ('  a' + x + ' ') | trim }}", context), "a[<eos>]");
  EXPECT_EQ(Marked("{{ 'a-b' | replace('-', x) }}", context), "a[<eos>]b");
  EXPECT_EQ(Marked("{{ x | replace('e', 'E') }}", context), "[<]E[os>]");
  EXPECT_EQ(Marked("{{ (x ~ ',' ~ x).split(',') | join(';') }}", context),
            "[<eos>];[<eos>]");
  EXPECT_EQ(Marked("{{ l | join(', ') }}", context), "[a], [b]");
  EXPECT_EQ(Marked("{{ l }}{{ m }}", context), "['[a]', '[b]']{'[k]': '[v]'}");
  EXPECT_EQ(Marked("{{ [x, 'y', n] | tojson }}", context),
            "[\"[<eos>]\", \"y\", 5]");
  EXPECT_EQ(Marked("{{ m | tojson(indent=1) }}", context),
            "{\n \"[k]\": \"[v]\"\n}");
  EXPECT_EQ(Marked("{% for c in x %}{{ c }}.{% endfor %}", context),
            "[<].[e].[o].[s].[>].");
  EXPECT_EQ(Marked("{% for k in m %}{{ k }}{{ m[k] }}{% endfor %}", context),
            "[kv]");
  EXPECT_EQ(
      Marked("{% macro f(a) %}({{ a }}){% endmacro %}{{ f(x) }}", context),
      "([<eos>])");
  EXPECT_EQ(Marked("{% set b %}({{ x }}){% endset %}{{ b | upper }}", context),
            "([<EOS>])");
  EXPECT_EQ(Marked("{% filter upper %}a{{ x }}{% endfilter %}", context),
            "A[<EOS>]");
  EXPECT_EQ(Marked("{% set ns = namespace(t='') %}{% for i in l %}"
                   "{% set ns.t = ns.t ~ i ~ '|' %}{% endfor %}{{ ns.t }}",
                   context),
            "[a]|[b]|");
  EXPECT_EQ(Marked("{{ '{}-{}'.format(x, 'y') }}{{ '%s.' % x }}", context),
            "[<eos>]-y[<eos>].");
  EXPECT_EQ(Marked("{{ 'a\nb' | indent(x) }}", context), "a\n[<eos>]b");
  EXPECT_EQ(Marked("{{ x | e }}{{ x | urlencode }}", context),
            "[&lt;eos&gt;%3Ceos%3E]");
  EXPECT_EQ(Marked("{{ x * 2 }}{{ x.center(9, '-') }}", context),
            "[<eos><eos>]--[<eos>]--");
  EXPECT_EQ(Marked("{{ bos_token }}{{ x }}", context), "<s>[<eos>]");
}

TEST(ChatTemplate, KnownRolesCountAsTheTemplatesOwn) {
  const Json context = {
      {"messages",
       {{{"role", "user"}, {"content", "user"}},
        {{"role", "<eos>"}, {"content", {{{"role", "user"}}}}}}}};
  const std::string source =
      "{% for m in messages %}<|{{ m.role }}|>{% endfor %}";
  EXPECT_EQ(Marked(source, context), "<|user|><|[<eos>]|>");
  EXPECT_EQ(Marked("{{ messages[0].content }}{{ messages[1].content[0].role }}",
                   context),
            "[useruser]");
}

TEST(ChatTemplate, TypedConversation) {
  Chat chat;
  chat.messages.resize(3);
  chat.messages[0] = {.role = "user",
                      .content = "Hi",
                      .reasoning = {},
                      .tool_calls = {},
                      .tool_call_id = "",
                      .name = ""};
  chat.messages[1].role = "assistant";
  chat.messages[1].reasoning = "hm";
  chat.messages[1].tool_calls.push_back({"1", "f", {{"b", 1}, {"a", 2}}});
  chat.messages[2].role = "tool";
  chat.messages[2].parts = {{{"type", "text"}, {"text", "t"}}};
  chat.messages[2].tool_call_id = "1";
  chat.tools = {{{"type", "function"}}};
  chat.add_generation_prompt = true;
  chat.bos_token = "<s>";
  chat.variables = {{"enable_thinking", false}, {"bos_token", "other"}};
  const ChatTemplate parsed =
      ChatTemplate::Parse(
          "{{ bos_token }}{% for m in messages %}{{ m.role }}:"
          "{{ m.content if m.content is string else m.content[0].text }}"
          "{{ m.thinking }}{{ m.reasoning_content }}"
          "{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}"
          "{% endfor %};{% endfor %}{{ tools[0].type }} {{ documents }} "
          "{{ enable_thinking }} {{ add_generation_prompt }}")
          .Take();
  EXPECT_EQ(
      RenderChat(parsed, chat).Take().Text(),
      "<s>user:Hi;assistant:hmhm{\"b\": 1, \"a\": 2};tool:t;function None "
      "False True");
  chat.tools = 5;
  EXPECT_THROW(ChatContext(chat), ArgumentError);
  chat.tools = nullptr;
  chat.variables = Json::array();
  EXPECT_THROW(ChatContext(chat), ArgumentError);
}

TEST(ChatTemplate, ThreadsShareAProgram) {
  const ChatTemplate parsed =
      ChatTemplate::Parse(
          "{% set l = ['a', {'k': 1}] %}{% for m in messages %}"
          "{{ l | tojson }}{{ m.role ~ 'x' }}{% endfor %}")
          .Take();
  const Json context = {{"messages", Json::array()}};
  Json full = context;
  for (int i = 0; i < 50; ++i) full["messages"].push_back({{"role", "user"}});
  const std::string wanted = parsed.Render(full).Take().Text();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      const ChatTemplate copy = parsed;
      for (int i = 0; i < 20; ++i) {
        count += copy.Render(full).Take().Text() != wanted;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace tarn
