// Hostile templates and contexts cost bounded time and memory.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "text/template/chat_template.h"

namespace tarn {
namespace {

std::string Repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

// What the error asks for; "" without an error.
std::string Refused(const std::string& source,
                    const std::string& context = "{}",
                    const TemplateLimits& limits = {}) {
  const Result<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.error().wanted();
  RenderOptions options;
  options.limits = limits;
  const Result<RenderedText> text = parsed.value().RenderJson(context, options);
  return text.ok() ? "" : text.error().wanted();
}

TEST(ChatTemplateLimits, Steps) {
  const std::string range = "range(100000)";
  EXPECT_EQ(Refused("{% for a in " + range + " %}{% for b in " + range +
                    " %}{% endfor %}{% endfor %}"),
            "at most 10000000 steps");
  TemplateLimits limits;
  limits.max_steps = 100;
  EXPECT_EQ(Refused("{% for a in range(200) %}{% endfor %}", "{}", limits),
            "at most 100 steps");
  EXPECT_EQ(Refused("{{ x }}{{ x }}",
                    "{\"x\": \"" + std::string(6000, 'x') + "\"}", limits),
            "at most 100 steps");
  // Quadratic work on texts counts by the byte.
  EXPECT_EQ(Refused("{% set t = 'x' * 1000000 %}{% for i in range(100000) %}"
                    "{% set n = t.find('y') %}{% endfor %}"),
            "at most 10000000 steps");
}

TEST(ChatTemplateLimits, Memory) {
  TemplateLimits limits;
  limits.max_memory_bytes = 1 << 20;
  const std::string wanted = "at most 1048576 bytes of values";
  for (const char* source :
       {"{{ 'x' * 10000000 }}", "{{ [1] * 10000000 }}",
        "{{ 'abcdefgh'.center(10000000) }}", "{{ range(90000) | list }}",
        "{{ 'x'.replace('', 'y' * 1000000) }}",
        "{% set ns = namespace(t='x') %}{% for i in range(40) %}"
        "{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
        "{% set ns = namespace(t=[1]) %}{% for i in range(40) %}"
        "{% set ns.t = ns.t + ns.t %}{% endfor %}",
        "{% for i in range(90000) %}{% set n = namespace() %}{% endfor %}"}) {
    EXPECT_EQ(Refused(source, "{}", limits), wanted) << source;
  }
  EXPECT_EQ(
      Refused("x", "{\"x\": \"" + std::string(2 << 20, 'x') + "\"}", limits),
      wanted);
  // What is dropped is returned.
  EXPECT_EQ(Refused("{% for i in range(100) %}{% set t = 'x' * 100000 %}"
                    "{% endfor %}",
                    "{}", limits),
            "");
}

TEST(ChatTemplateLimits, Output) {
  TemplateLimits limits;
  limits.max_output_bytes = 10;
  EXPECT_EQ(Refused("0123456789", "{}", limits), "");
  EXPECT_EQ(Refused("01234567890", "{}", limits), "at most 10 bytes of output");
  EXPECT_EQ(Refused("{% for i in range(11) %}x{% endfor %}", "{}", limits),
            "at most 10 bytes of output");
}

TEST(ChatTemplateLimits, NestingOfTheSource) {
  const std::string levels = "at most 150 levels of ";
  for (const std::string& source :
       {"{{ " + Repeated("(", 50000) + "1" + Repeated(")", 50000) + " }}",
        "{{ " + Repeated("[", 50000) + "1" + Repeated("]", 50000) + " }}",
        "{{ " + Repeated("not ", 50000) + "1 }}",
        "{{ " + Repeated("-", 100000) + "1 }}",
        "{{ 1" + Repeated(" + 1", 40000) + " }}",
        "{{ x" + Repeated(".y", 100000) + " }}",
        "{{ x" + Repeated("|f", 100000) + " }}",
        "{{ x" + Repeated(" if x", 40000) + " }}",
        "{{ " + Repeated("1 if 1 else ", 20000) + "1 }}",
        "{{ " + Repeated("f(", 50000) + Repeated(")", 50000) + " }}",
        Repeated("{% if 1 %}", 20000), Repeated("{% for x in y %}", 15000),
        "{% set " + Repeated("(", 50000) + "a" + Repeated(")", 50000) + "%}"}) {
    EXPECT_EQ(Refused(source).substr(0, levels.size()), levels)
        << source.substr(0, 30);
  }
  EXPECT_EQ(Refused(std::string(kMaxTemplateBytes + 1, 'x')),
            "a source of at most 262144 bytes");
  EXPECT_EQ(Refused("{{ " + Repeated("'x' ~ ", 20000) + "'x' }}"), "");
}

TEST(ChatTemplateLimits, DepthOfCallsAndValues) {
  EXPECT_EQ(Refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
            "at most 800 nested evaluations");
  EXPECT_EQ(Refused("{% set ns = namespace(l=[]) %}{% for i in range(100) %}"
                    "{% set ns.l = [ns.l] %}{% endfor %}"),
            "at most 64 levels of lists and objects");
  EXPECT_EQ(Refused("{% set ns = namespace(l={}) %}{% for i in range(100) %}"
                    "{% set ns.l = {'k': ns.l} %}{% endfor %}"),
            "at most 64 levels of lists and objects");
  EXPECT_EQ(Refused("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"),
            "at most 150 levels to print");
  EXPECT_EQ(Refused("x", "{\"a\": " + std::string(100000, '[')),
            "the context to be at most 64 levels deep");
  EXPECT_EQ(Refused("{{ a }}", "{\"a\": " + std::string(64, '[') +
                                   std::string(64, ']') + "}"),
            "");
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 70; ++i) deep = nlohmann::ordered_json::array({deep});
  EXPECT_FALSE(ChatTemplate::Parse("x").Take().Render({{"a", deep}}).ok());
}

TEST(ChatTemplateLimits, ManyKeysAndVariables) {
  std::string context = "{\"m\": {\"k\": 0";
  for (int i = 0; i < 30000; ++i) {
    context += ", \"k" + std::to_string(i) + "\": 1";
  }
  context += "}}";
  EXPECT_EQ(Refused("{% for k in m %}{{ m[k] }}{% endfor %}", context), "");
  std::string source;
  for (int i = 0; i < 8000; ++i) {
    source += "{% set v" + std::to_string(i) + " = 1 %}";
  }
  EXPECT_EQ(Refused(source), "");
  EXPECT_EQ(
      Refused("{% if 1 %}{% with %}" + source + "{% endwith %}{% endif %}"),
      "");
}

// Whatever a byte becomes, the result is a text or one line of an error.
TEST(ChatTemplateLimits, MutationsOfEveryByte) {
  const std::string folder =
      std::string(TARN_SOURCE_DIR) + "/tests/golden/chat_templates/";
  const auto read = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  };
  const auto goldens =
      nlohmann::ordered_json::parse(read(folder + "goldens.json"));
  const std::string context = goldens["contexts"]["tool_calls"].dump();
  RenderOptions options;
  options.limits.max_steps = 20000;
  options.limits.max_memory_bytes = 4 << 20;
  options.now = CalendarTime{2026, 3, 7, 9, 5, 4};
  const std::string replacements("{}%#-'\"(|\\\n\xff\0x", 15);
  uint64_t texts = 0, errors = 0, next = 0;
  for (const auto& [name, golden] : goldens["templates"].items()) {
    const std::string source = read(folder + "templates/" + name);
    ASSERT_FALSE(source.empty());
    for (size_t i = 0; i < source.size(); ++i) {
      std::string changed = source;
      switch (next++ % 3) {
        case 0:
          changed[i] = replacements[next / 3 % replacements.size()];
          break;
        case 1:
          changed.erase(i, 1);
          break;
        default:
          changed.resize(i);
      }
      const Result<ChatTemplate> parsed = ChatTemplate::Parse(changed);
      if (!parsed.ok()) {
        ++errors;
        EXPECT_EQ(std::string(parsed.error().what()).find('\n'),
                  std::string::npos);
        continue;
      }
      const bool ok = parsed.value().RenderJson(context, options).ok();
      ++(ok ? texts : errors);
    }
  }
  EXPECT_GT(texts, 1000u);
  EXPECT_GT(errors, 1000u);
}

}  // namespace
}  // namespace tarn
