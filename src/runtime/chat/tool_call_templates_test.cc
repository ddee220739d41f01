// What templates write for an assistant's calls is told as these calls: our own
// templates of every form, and published ones where llama.cpp's folder or the
// tokenizers' data are.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/chat/test_tool_calls.h"
#include "runtime/chat/thinking.h"
#include "text/template/chat_format.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Parts = std::vector<ToldPart>;

constexpr char kQuestion[] = "What-is-the-weather";

const Json& TemplateTools() {
  static const auto tools = Json::parse(R"([
    {"type": "function", "function": {"name": "get_weather",
      "description": "The weather", "parameters": {"type": "object",
      "properties": {"place": {"type": "string", "description": "A city"},
        "days": {"type": "integer", "description": "From today"},
        "wind": {"type": "boolean", "description": "Too"},
        "tags": {"type": "array", "description": "Words",
                 "items": {"type": "string"}},
        "options": {"type": "object", "description": "More"}},
      "required": ["place"]}}},
    {"type": "function", "function": {"name": "get_time",
      "description": "The time", "parameters": {"type": "object",
      "properties": {"zone": {"type": "string", "description": "Its name"}},
      "required": []}}}])");
  return tools;
}

ChatToolCall Call(const char* id, const char* name, const char* arguments) {
  return {.id = id, .name = name, .arguments = Json::parse(arguments)};
}

// The first `count` of two calls; plain: with values that need no quotes.
std::vector<ChatToolCall> CallsOf(size_t count, bool plain) {
  std::vector<ChatToolCall> calls = {
      Call("call00001", "get_weather",
           plain ? R"({"place": "Bern", "days": 2})"
                 : R"({"place": "Z\u00fcrich, \"HB\"\n2", "days": 2,
           "wind": true, "tags": ["a", "b c"], "options": {"unit": "C"}})"),
      Call("call00002", "get_time", R"({"zone": "UTC"})")};
  calls.resize(count);
  return calls;
}

std::string RenderedBy(const ChatFormat& format, Chat chat) {
  RenderOptions options;
  options.now = CalendarTime{2026, 3, 7, 9, 5, 4};
  Result<RenderedText> text = format.Render(std::move(chat), options);
  return text.ok() ? text.value().Text() : "";
}

// What a template can render.
struct Abilities {
  bool tools = true;
  /// The content of a message with calls must be null, and its arguments texts.
  bool only_texts = false;
};

// The calls told of a rendered answer with these calls; nothing where the
// template does not render it.
std::vector<ToldPart> CallsTold(const ChatFormat& format,
                                const std::vector<ChatToolCall>& calls,
                                const Abilities& can = {}) {
  Chat chat;
  if (can.tools) chat.tools = TemplateTools();
  chat.messages.push_back({.role = "user", .content = kQuestion});
  chat.add_generation_prompt = true;
  const std::string prompt = RenderedBy(format, chat);
  chat.add_generation_prompt = false;
  chat.messages.push_back({.role = "assistant", .tool_calls = calls});
  if (can.only_texts) {
    chat.messages.back().parts = nullptr;
    for (ChatToolCall& call : chat.messages.back().tool_calls) {
      call.arguments = call.arguments.dump();
    }
  }
  std::string answer = RenderedBy(format, chat);
  if (answer.empty()) return {};
  if (answer.starts_with(prompt)) {
    answer.erase(0, prompt.size());
  } else {
    answer.erase(0, answer.rfind(kQuestion) + sizeof(kQuestion) - 1);
  }
  std::string text;
  ThinkingSplitter thinking;
  const auto add = [&](AnswerPart part, std::string_view bytes) {
    if (part == AnswerPart::kText) text += bytes;
  };
  thinking.Push(answer, add);
  thinking.Finish(add);
  const ToolCallForm* form = ToolCallFormOf(format);
  Parts told = ToldOf(form, TemplateTools(), text, 3);
  std::erase_if(told, [](const ToldPart& part) { return part.name.empty(); });
  return told;
}

Parts PartsOf(const std::vector<ChatToolCall>& calls) {
  Parts parts;
  for (const ChatToolCall& call : calls) {
    parts.push_back({"", call.name, call.arguments});
  }
  return parts;
}

ChatFormat FormatOfSource(const std::string& source) {
  return {source, ChatTemplate::Parse(source).Take(), {}};
}

// What a template writes for each call, and around all of them.
struct OwnTemplate {
  const char* form;
  std::string before, call, after;
};

std::vector<OwnTemplate> OwnTemplates() {
  const std::string object =
      R"({"name": {{ f.name | tojson }}, "arguments": {{ f.arguments | tojson }}})";
  const std::string list = object + "{{ ', ' if not loop.last }}";
  const std::string plain =
      "{{ v if v is string else v | tojson if v is iterable else v | string }}";
  const auto tags = [&](const std::string& line) {
    return "<function={{ f.name }}>\n{% for k, v in f.arguments.items() %}"
           "<parameter={{ k }}>" +
           line + plain + line + "</parameter>\n{% endfor %}</function>\n";
  };
  const std::string python =
      "{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}="
      "{{ v | tojson if v is string or v is mapping else v }}"
      "{{ ', ' if not loop.last }}{% endfor %}){{ ', ' if not loop.last }}";
  const std::string json = "{{ f.arguments | tojson }}";
  return {
      {"hermes", "", "\n<tool_call>\n" + object + "\n</tool_call>", ""},
      {"function-tags", "", "\n<tool_call>\n" + tags("\n") + "</tool_call>",
       ""},
      {"seed", "", "<seed:tool_call>\n" + tags("") + "</seed:tool_call>\n", ""},
      {"argument-tags", "",
       "<tool_call>{{ f.name }}\n{% for k, v in f.arguments.items() %}"
       "<arg_key>{{ k }}</arg_key>\n<arg_value>"
       "{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}"
       "</tool_call>",
       ""},
      {"lfm2", "<|tool_call_start|>[", python, "]<|tool_call_end|>"},
      {"mistral", "[TOOL_CALLS][", list, "]"},
      {"mistral-named", "", "[TOOL_CALLS]{{ f.name }}[ARGS]" + json, ""},
      {"nemotron", "<TOOLCALL>[", list, "]</TOOLCALL>"},
      {"tool-calls", "\n<tool_calls>[", list, "]</tool_calls>"},
      {"granite", "<|tool_call|>[", list, "]"},
      {"llama3", "{{ '' if true else '<|python_tag|>' }}",
       object + "{{ '; ' if not loop.last }}", ""},
      {"function-json", "", "<function={{ f.name }}>" + json + "</function>\n",
       ""},
      {"kimi", "<|tool_calls_section_begin|>",
       "<|tool_call_begin|>functions.{{ f.name }}:{{ loop.index0 }}"
       "<|tool_call_argument_begin|>" +
           json + "<|tool_call_end|>",
       "<|tool_calls_section_end|>"},
      {"deepseek-v3.1", DeepSeek("tool calls begin"),
       DeepSeek("tool call begin") + "{{ f.name }}" + DeepSeek("tool sep") +
           json + DeepSeek("tool call end"),
       DeepSeek("tool calls end")},
      {"deepseek-r1", DeepSeek("tool calls begin"),
       DeepSeek("tool call begin") + "function" + DeepSeek("tool sep") +
           "{{ f.name }}\n```json\n" + json + "\n```" +
           DeepSeek("tool call end"),
       DeepSeek("tool calls end")},
  };
}

TEST(ToolCallTemplates, OwnTemplatesOfEveryForm) {
  const std::vector<OwnTemplate> own = OwnTemplates();
  EXPECT_EQ(ToolCallForms().size(), own.size());
  for (const OwnTemplate& one : own) {
    const std::string source =
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        "{% if m.tool_calls %}" +
        one.before + "{% for c in m.tool_calls %}{% set f = c.function %}" +
        one.call + "{% endfor %}" + one.after +
        "{% endif %}{% if not loop.last %}<|end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|end|>\n<|assistant|>{% endif %}";
    const ChatFormat format = FormatOfSource(source);
    const ToolCallForm* form = ToolCallFormOf(format);
    ASSERT_NE(nullptr, form) << one.form;
    EXPECT_EQ(one.form, form->name);
    for (const size_t count : {1, 2}) {
      const auto calls = CallsOf(count, false);
      EXPECT_EQ(PartsOf(calls), CallsTold(format, calls)) << one.form;
    }
  }
}

TEST(ToolCallTemplates, TemplatesWithoutCallsHaveNoForm) {
  for (const auto& entry : fs::directory_iterator(
           TARN_SOURCE_DIR "/tests/golden/chat_templates/templates")) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    ASSERT_FALSE(text.str().empty());
    EXPECT_EQ(nullptr, ToolCallFormOf(text.str())) << entry.path();
  }
  EXPECT_EQ(nullptr, ToolCallFormOf(""));
}

// The most calls in one answer that the template writes, and whether texts and
// integers without quotes are all that it writes as it should.
struct PublishedTemplate {
  const char* form;
  size_t calls = 2;
  bool plain = false;
  Abilities can = {};
};

// Templates of llama.cpp's folder that show a form; 0 calls: they write none.
const std::map<std::string, PublishedTemplate>& Published() {
  static const std::map<std::string, PublishedTemplate> table = {
      {"Apriel-1.6-15b-Thinker-fixed", {"tool-calls"}},
      {"Bielik-11B-v3.0-Instruct", {"hermes"}},
      {"ByteDance-Seed-OSS", {"seed"}},
      {"GLM-4.6", {"argument-tags"}},
      {"GLM-4.7-Flash", {"argument-tags"}},
      // These append to lists, which transformers refuses too.
      {"Kimi-K2-Instruct", {"kimi", 0}},
      {"Kimi-K2-Thinking", {"kimi", 0}},
      {"LFM2-8B-A1B", {"lfm2", 0}},
      {"LFM2.5-8B-A1B", {"lfm2", 2, true}},
      {"LFM2.5-Instruct", {"lfm2", 0}},
      {"MiMo-VL", {"hermes"}},
      {"MiniMax-M1", {"tool-calls"}},
      {"Mistral-Small-3.2-24B-Instruct-2506", {"mistral-named"}},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"function-tags"}},
      {"NVIDIA-Nemotron-Nano-v2", {"nemotron"}},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", {"hermes"}},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", {"hermes"}},
      {"Qwen-QwQ-32B", {"hermes"}},
      {"Qwen-Qwen2.5-7B-Instruct", {"hermes"}},
      {"Qwen-Qwen3-0.6B", {"hermes"}},
      {"Qwen3-Coder", {"function-tags"}},
      {"Qwen3.5-4B", {"function-tags"}},
      {"Reka-Edge", {"hermes"}},
      {"Spark2.5", {"argument-tags"}},
      {"StepFun3.5-Flash", {"function-tags"}},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
       {"deepseek-r1", 2, false, {.only_texts = true}}},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"deepseek-r1"}},
      {"deepseek-ai-DeepSeek-V3.1", {"deepseek-v3.1"}},
      {"ibm-granite-granite-3.3-2B-Instruct", {"granite", 0}},
      {"ibm-granite-granite-4.0", {"hermes"}},
      {"ibm-granite-granite-4.1", {"hermes"}},
      {"inclusionai-ling-3.0-flash", {"argument-tags"}},
      {"llama-cpp-deepseek-r1", {"deepseek-r1", 2, false, {.tools = false}}},
      {"meetkai-functionary-medium-v3.1", {"function-json"}},
      {"meta-llama-Llama-3.1-8B-Instruct", {"llama3", 1}},
      {"meta-llama-Llama-3.2-3B-Instruct", {"llama3", 1}},
      {"meta-llama-Llama-3.3-70B-Instruct", {"llama3", 1}},
      {"mistralai-Ministral-3-14B-Reasoning-2512", {"mistral-named"}},
      {"mistralai-Mistral-Nemo-Instruct-2407", {"mistral"}},
      {"moonshotai-Kimi-K2", {"kimi"}},
      {"poolside-Laguna-S-2.1", {"argument-tags"}},
      {"poolside-Laguna-XS-2.1", {"argument-tags"}},
      {"poolside-Laguna-XS.2", {"argument-tags"}},
      {"unsloth-Apriel-1.5", {"tool-calls"}},
      {"unsloth-mistral-Devstral-Small-2507", {"mistral-named"}},
  };
  return table;
}

TEST(ToolCallTemplates, PublishedTemplates) {
  const char* checkout = std::getenv("TARN_LLAMA_CPP");
  if (checkout == nullptr) GTEST_SKIP() << "TARN_LLAMA_CPP names no checkout";
  size_t found = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(checkout) / "models/templates")) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().stem().string();
    const Result<ChatFormat> format =
        ChatFormat::Open("/nonexistent", entry.path().string());
    ASSERT_TRUE(format.ok()) << name << ": " << format.error().what();
    const ToolCallForm* form = ToolCallFormOf(format.value());
    const auto row = Published().find(name);
    if (row == Published().end()) {
      EXPECT_EQ(nullptr, form) << name;
      continue;
    }
    ++found;
    ASSERT_NE(nullptr, form) << name;
    EXPECT_EQ(row->second.form, form->name) << name;
    for (size_t count = 1; count <= row->second.calls; ++count) {
      const auto calls = CallsOf(count, row->second.plain);
      EXPECT_EQ(PartsOf(calls),
                CallsTold(format.value(), calls, row->second.can))
          << name;
    }
  }
  EXPECT_GT(found, 0u);
}

TEST(ToolCallTemplates, Qwen3) {
  const char* data = std::getenv("TARN_DATA");
  const fs::path folder =
      (data != nullptr ? fs::path(data)
                       : fs::path(TARN_SOURCE_DIR) / "../shared/data") /
      "tokenizers/qwen3";
  if (!fs::exists(folder)) GTEST_SKIP() << "no " << folder;
  const ChatFormat format = ChatFormat::Open(folder.string()).Take();
  ASSERT_NE(nullptr, ToolCallFormOf(format));
  EXPECT_EQ("hermes", ToolCallFormOf(format)->name);
  const auto calls = CallsOf(2, false);
  EXPECT_EQ(PartsOf(calls), CallsTold(format, calls));
}

}  // namespace
}  // namespace tarn
