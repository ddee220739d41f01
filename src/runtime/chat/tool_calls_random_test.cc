// Random answers of every form, cut at random: what was written is told; and
// changed answers against a plain parser of the whole text.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/chat/test_tool_calls.h"

namespace tarn {
namespace {

using Json = nlohmann::ordered_json;
using Parts = std::vector<ToldPart>;

struct Source {
  std::mt19937_64 random;
  size_t Below(size_t most) { return random() % most; }
  template <typename T>
  const T& Of(const std::vector<T>& list) {
    return list[Below(list.size())];
  }
};

// A parameter's first letter is its type.
const Json& RandomTools() {
  static const auto tools = Json::parse(R"([
    {"type": "function", "function": {"name": "look_up", "parameters": {
      "type": "object", "properties": {
        "text": {"type": "string"}, "integer": {"type": "integer"},
        "number": {"type": "number"}, "flag": {"type": "boolean"},
        "object": {"type": "object"}, "list": {"type": "array"},
        "none": {"type": "null"}}}}},
    {"type": "function", "function": {"name": "go"}}])");
  return tools;
}

std::string RandomText(Source& source, size_t most) {
  static const std::vector<std::string> pieces = {"a",
                                                  "Bern",
                                                  "x y",
                                                  "\xC3\xA9",
                                                  "\xF0\x9F\x98\x80",
                                                  "\"",
                                                  "'",
                                                  "\\",
                                                  "\n",
                                                  "\t",
                                                  "{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  "(",
                                                  ")",
                                                  ",",
                                                  ":",
                                                  "=",
                                                  "<",
                                                  ">",
                                                  "</",
                                                  "<|",
                                                  "</tool_call>",
                                                  "</parameter>",
                                                  "</function",
                                                  "<tool",
                                                  "</arg_value>",
                                                  "[ARGS]",
                                                  "True",
                                                  "null",
                                                  "3",
                                                  "\\u00e9",
                                                  "```",
                                                  ";"};
  std::string text;
  for (size_t i = source.Below(most); i > 0; --i) text += source.Of(pieces);
  return text;
}

Json RandomScalar(Source& source) {
  switch (source.Below(5)) {
    case 0:
      return nullptr;
    case 1:
      return source.Below(2) == 0;
    case 2:
      return static_cast<int64_t>(source.Below(2000000)) - 1000000;
    case 3:
      return (static_cast<double>(source.Below(2000)) - 1000) / 8 + 0.0625;
    default:
      return RandomText(source, 5);
  }
}

// Whether a value between tags would end before its end: no answer can say so.
bool Ambiguous(const std::string& text) {
  for (const char* end : {"</parameter>", "</arg_value>"}) {
    for (size_t at = text.find(end); at != text.npos;
         at = text.find(end, at + 1)) {
      const size_t next = text.find_first_not_of(" \t\r\n", at + 12);
      if (next == text.npos) continue;
      for (const char* tag : {"<parameter=", "</function>", "</tool_call>",
                              "</seed:tool_call>", "<arg_key>"}) {
        if (text.compare(next, std::string(tag).size(), tag) == 0) return true;
      }
    }
  }
  return false;
}

Json AnyArguments(Source& source) {
  Json arguments = Json::object();
  if (source.Below(3) > 0) arguments["text"] = RandomText(source, 8);
  if (source.Below(2) == 0) arguments["integer"] = source.Below(100);
  if (source.Below(2) == 0) arguments["number"] = 0.25;
  if (source.Below(2) == 0) arguments["flag"] = source.Below(2) == 0;
  if (source.Below(3) == 0) arguments["none"] = nullptr;
  if (source.Below(2) == 0) {
    arguments["list"] = Json::array();
    for (size_t i = source.Below(4); i > 0; --i) {
      arguments["list"].push_back(RandomScalar(source));
    }
  }
  if (source.Below(2) == 0) {
    arguments["object"] = {{"k", RandomScalar(source)},
                           {"deep", {{"l", {RandomScalar(source)}}}}};
  }
  return arguments;
}

Json RandomArguments(Source& source) {
  while (true) {
    Json arguments = AnyArguments(source);
    if (!Ambiguous(arguments.dump()) &&
        !Ambiguous(arguments.value("text", ""))) {
      return arguments;
    }
  }
}

struct WrittenCall {
  std::string name;
  Json arguments;
};

// As Python's repr, without an escape that Python does not need.
std::string Repr(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) {
    std::string text = "'";
    for (const char byte : value.get<std::string>()) {
      if (byte == '\'' || byte == '\\') text += '\\';
      if (byte == '\n') {
        text += "\\n";
      } else {
        text += byte;
      }
    }
    return text + "'";
  }
  if (value.is_array()) {
    std::string text = "[";
    for (const Json& one : value) text += Repr(one) + ", ";
    return text + "]";
  }
  if (value.is_object()) {
    std::string text = "{";
    for (const auto& [key, one] : value.items()) {
      text += text.size() > 1 ? ", " : "";
      text += Repr(key) + ": " + Repr(one);
    }
    return text + "}";
  }
  return value.dump();
}

std::string ObjectOf(const WrittenCall& call, const char* arguments) {
  return "{\"name\": \"" + call.name + "\", \"" + arguments +
         "\": " + call.arguments.dump() + "}";
}

std::string Join(const std::vector<std::string>& texts, const char* between) {
  std::string all;
  for (const std::string& text : texts) {
    all += (&text == &texts.front() ? "" : between) + text;
  }
  return all;
}

std::string TagsOf(const WrittenCall& call, bool glm, const char* line) {
  std::string text =
      (glm ? "" : "<function=") + call.name + (glm ? "\n" : ">\n");
  for (const auto& [key, value] : call.arguments.items()) {
    const std::string plain = value.is_string() ? value.get<std::string>()
                              : value.is_primitive() && !glm ? Repr(value)
                                                             : value.dump();
    text += glm ? "<arg_key>" + key + "</arg_key>\n<arg_value>" + plain +
                      "</arg_value>\n"
                : "<parameter=" + key + ">" + line + plain + line +
                      "</parameter>\n";
  }
  return text + (glm ? "" : "</function>");
}

// Calls next to each other, as models are asked to write them.
std::string Written(const std::string& form,
                    const std::vector<WrittenCall>& calls) {
  std::vector<std::string> objects, texts;
  for (const WrittenCall& call : calls) {
    const std::string dump = call.arguments.dump();
    objects.push_back(ObjectOf(call, "arguments"));
    if (form == "hermes") {
      texts.push_back("<tool_call>\n" + objects.back() + "\n</tool_call>");
    } else if (form == "function-tags") {
      texts.push_back("<tool_call>\n" + TagsOf(call, false, "\n") +
                      "\n</tool_call>");
    } else if (form == "seed") {
      texts.push_back("<seed:tool_call>\n" + TagsOf(call, false, "") +
                      "\n</seed:tool_call>");
    } else if (form == "argument-tags") {
      texts.push_back("<tool_call>" + TagsOf(call, true, "") + "</tool_call>");
    } else if (form == "llama3") {
      texts.push_back(ObjectOf(call, "parameters"));
    } else if (form == "mistral-named") {
      texts.push_back("[TOOL_CALLS]" + call.name + "[ARGS]" + dump);
    } else if (form == "function-json") {
      texts.push_back("<function=" + call.name + ">" + dump + "</function>");
    } else if (form == "kimi") {
      texts.push_back("<|tool_call_begin|>functions." + call.name + ":" +
                      std::to_string(texts.size()) +
                      "<|tool_call_argument_begin|>" + dump +
                      "<|tool_call_end|>");
    } else if (form == "deepseek-v3.1") {
      texts.push_back(DeepSeek("tool call begin") + call.name +
                      DeepSeek("tool sep") + dump + DeepSeek("tool call end"));
    } else if (form == "deepseek-r1") {
      texts.push_back(DeepSeek("tool call begin") + "function" +
                      DeepSeek("tool sep") + call.name + "\n```json\n" + dump +
                      "\n```" + DeepSeek("tool call end"));
    } else if (form == "lfm2") {
      std::vector<std::string> arguments;
      for (const auto& [key, value] : call.arguments.items()) {
        arguments.push_back(key + "=" + Repr(value));
      }
      texts.push_back(call.name + "(" + Join(arguments, ", ") + ")");
    }
  }
  if (form == "kimi") {
    return "<|tool_calls_section_begin|>" + Join(texts, "") +
           "<|tool_calls_section_end|>";
  }
  if (form.starts_with("deepseek")) {
    return DeepSeek("tool calls begin") + Join(texts, "\n") +
           DeepSeek("tool calls end");
  }
  if (form == "lfm2") {
    return "<|tool_call_start|>[" + Join(texts, ", ") + "]<|tool_call_end|>";
  }
  const std::string list = "[" + Join(objects, ", ") + "]";
  if (form == "mistral") return "[TOOL_CALLS]" + list;
  if (form == "nemotron") return "<TOOLCALL>" + list + "</TOOLCALL>";
  if (form == "tool-calls") return "<tool_calls>" + list + "</tool_calls>";
  if (form == "granite") return "<|tool_call|>" + list;
  return Join(texts, form == "llama3" ? "; " : "\n");
}

// Text without a mark, with what marks begin with.
std::string PlainText(Source& source) {
  static const std::vector<std::string> words = {
      "The",          "sky.",        "<",         "<tool",
      "<tool_call",   "[TOOL_CALL",  "<|",        "{",
      "[1]",          "}",           "<function", "</tool_call>",
      "\xEF\xBD\x9C", "\"x\"",       "\n",        "  ",
      "<|tool_call",  "<tool_calls", "<TOOLCALL", "<\xEF\xBD\x9C"};
  std::string text = "So";
  for (size_t i = source.Below(12); i > 0; --i) text += " " + source.Of(words);
  return text + " it";
}

// The parts of a random answer, and its text.
struct Answer {
  Parts parts;
  std::string text;
};

Answer RandomAnswer(const std::string& form, Source& source) {
  static const std::vector<std::string> white = {"", "\n", " ", "\n\n", " \t"};
  Answer answer;
  const auto add_text = [&] {
    answer.parts.push_back(TextPart(PlainText(source)));
    answer.text += answer.parts.back().text + source.Of(white);
  };
  // An object without a mark is a call at the beginning alone.
  if (source.Below(2) == 0 && form != "llama3") add_text();
  const size_t groups = form == "llama3" ? 1 : 1 + source.Below(2);
  for (size_t group = 0; group < groups; ++group) {
    std::vector<WrittenCall> calls;
    for (size_t i = 1 + source.Below(3); i > 0; --i) {
      calls.push_back({source.Below(2) == 0 ? "look_up" : "go", {}});
      // Without a schema no types are known.
      const bool typed = form == "lfm2" || form == "function-tags" ||
                         form == "seed" || form == "argument-tags";
      Json& arguments = calls.back().arguments;
      arguments = typed && calls.back().name == "go" ? Json::object()
                                                     : RandomArguments(source);
      answer.parts.push_back({"", calls.back().name, calls.back().arguments});
    }
    answer.text += Written(form, calls) + source.Of(white);
    if (source.Below(2) == 0) add_text();
  }
  // White space next to a call is dropped, at the end of a text it is not.
  if (answer.parts.back().name.empty()) {
    const std::string& last = answer.parts.back().text;
    const size_t at = answer.text.rfind(last);
    answer.parts.back().text = answer.text.substr(at);
  }
  return answer;
}

Parts CutAtRandom(const ToolCallForm& form, const std::string& text,
                  Source& source) {
  return ToldOf(&form, RandomTools(), text, [&] {
    return source.Below(3) == 0 ? 1 + source.Below(40) : 1 + source.Below(4);
  });
}

TEST(ToolCallsRandom, WhatIsWrittenIsTold) {
  Source source{std::mt19937_64(1)};
  for (const ToolCallForm& form : ToolCallForms()) {
    for (int i = 0; i < 150; ++i) {
      const Answer answer = RandomAnswer(std::string(form.name), source);
      for (int cut = 0; cut < 3; ++cut) {
        ASSERT_EQ(answer.parts, CutAtRandom(form, answer.text, source))
            << form.name << ": " << answer.text;
      }
    }
  }
}

// Some bytes of the answer are removed, doubled or replaced.
std::string Changed(std::string text, Source& source) {
  static const std::vector<std::string> pieces = {"<",
                                                  ">",
                                                  "{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  "\"",
                                                  "'",
                                                  "\\",
                                                  ",",
                                                  "<tool_call>",
                                                  "</tool_call>",
                                                  "{\"name\": \"go\"}",
                                                  "\n",
                                                  "\x80",
                                                  "(",
                                                  ")",
                                                  "="};
  for (size_t i = 1 + source.Below(4); i > 0 && !text.empty(); --i) {
    const size_t at = source.Below(text.size());
    const size_t size = source.Below(std::min<size_t>(9, text.size() - at));
    switch (source.Below(3)) {
      case 0:
        text.erase(at, size);
        break;
      case 1:
        text.insert(at, text.substr(at, size));
        break;
      default:
        text.insert(at, source.Of(pieces));
    }
  }
  return text;
}

// How an answer is cut makes no difference, and text is told in order: each
// text is found in the answer after the one before it.
TEST(ToolCallsRandom, ChangedAnswersDoNotDependOnCuts) {
  Source source{std::mt19937_64(2)};
  size_t calls = 0, texts = 0;
  for (const ToolCallForm& form : ToolCallForms()) {
    for (int i = 0; i < 300; ++i) {
      const std::string text =
          Changed(RandomAnswer(std::string(form.name), source).text, source);
      const Parts whole = ToldOf(&form, RandomTools(), text);
      ASSERT_EQ(whole, CutAtRandom(form, text, source)) << text;
      ASSERT_EQ(whole, ToldOf(&form, RandomTools(), text, 1)) << text;
      size_t at = 0;
      for (const ToldPart& part : whole) {
        if (!part.name.empty()) {
          ++calls;
          continue;
        }
        // White space that a call swallows splits a text only at its ends.
        at = text.find(part.text, at);
        ASSERT_NE(text.npos, at) << part.text << " in " << text;
        at += part.text.size();
        ++texts;
      }
    }
  }
  EXPECT_GT(calls, 3000u);
  EXPECT_GT(texts, 3000u);
}

// The form "hermes" with one object between marks, from its description: the
// whole text is searched again for each mark.
class PlainHermes {
 public:
  explicit PlainHermes(std::string text) : text_(std::move(text)) {}

  Parts Read() {
    size_t at = 0;
    while (true) {
      const size_t mark = text_.find(kMark, at);
      if (mark == text_.npos) break;
      Text(text_.substr(at, mark - at));
      at = Call(mark);
    }
    Text(text_.substr(at));
    // White space before a call belongs to it.
    Parts parts;
    for (size_t i = 0; i < parts_.size(); ++i) {
      ToldPart part = parts_[i];
      if (part.name.empty()) {
        const bool begins = i == 0 || !parts_[i - 1].name.empty();
        if (begins && i > 0) part.text.erase(0, White(part.text, 0));
        if (i + 1 < parts_.size()) {
          part.text.erase(part.text.find_last_not_of(" \t\r\n") + 1);
        }
        if (part.text.empty()) continue;
      }
      parts.push_back(part);
    }
    return parts;
  }

 private:
  static constexpr char kMark[] = "<tool_call>", kEnd[] = "</tool_call>";

  static size_t White(const std::string& text, size_t at) {
    const size_t found = text.find_first_not_of(" \t\r\n", at);
    return found == text.npos ? text.size() : found;
  }

  void Text(const std::string& text) {
    if (text.empty()) return;
    if (parts_.empty() || !parts_.back().name.empty()) parts_.push_back({});
    parts_.back().text += text;
  }

  // Reads objects from a mark on; returns where text begins again.
  size_t Call(size_t mark) {
    size_t from = mark, at = White(text_, mark + sizeof(kMark) - 1);
    bool list = false, first = true;
    if (text_.substr(at, 1) == "[") {
      list = true;
      at = White(text_, at + 1);
    }
    while (text_.substr(at, 1) == "{") {
      const auto [end, complete] = ObjectEnd(at);
      const std::string object = text_.substr(at, end - at);
      if (!complete || !Take(object)) {
        Text(text_.substr(from, end - from));
        return end;
      }
      first = false;
      from = end;
      at = White(text_, end);
      if (list && text_.substr(at, 1) == "]") {
        from = at + 1;
        at = White(text_, from);
        break;
      }
      if (list && text_.substr(at, 1) == ",") {
        at = White(text_, at + 1);
        if (text_.substr(at, 1) == "{") continue;
        Text(text_.substr(from, at - from));
        return at;
      }
      if (list) break;
    }
    if (first) {
      Text(text_.substr(mark, at - mark));
      return at;
    }
    if (text_.compare(at, sizeof(kEnd) - 1, kEnd) == 0) {
      return at + sizeof(kEnd) - 1;
    }
    return from;
  }

  // Where the object ends, or where it is seen that it is none.
  std::pair<size_t, bool> ObjectEnd(size_t begin) const {
    std::string open;
    bool string = false;
    size_t quotes = 0, key = 0;
    for (size_t i = begin; i < text_.size(); ++i) {
      const char c = text_[i];
      if (i > begin && quotes == 0 && c != '"' && c != '}' &&
          White(text_, i) == i) {
        return {i, false};
      }
      if (string && quotes > 1 && c == '\\') {
        ++i;
        continue;
      }
      if (c == '"') {
        string = !string;
        if (++quotes == 1) key = i + 1;
        if (quotes == 2 && !Known(text_.substr(key, i - key))) {
          return {i, false};
        }
      } else if (string) {
        if (static_cast<unsigned char>(c) < 0x20) return {i, false};
        if (quotes == 1 && i + 1 - key > 16) return {i, false};
      } else if (c == '{' || c == '[') {
        open += c;
      } else if (c == '}' || c == ']') {
        if (open.back() != (c == '}' ? '{' : '[')) return {i, false};
        open.pop_back();
        if (open.empty()) return {i + 1, true};
      }
    }
    return {text_.size(), false};
  }

  static bool Known(const std::string& key) {
    static const std::vector<std::string> keys = {
        "name", "arguments", "parameters",  "function",
        "type", "id",        "tool_call_id"};
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }

  bool Take(const std::string& text) {
    const Json object = Json::parse(text, nullptr, false);
    if (!object.is_object()) return false;
    // A key that comes twice is lost in the value.
    std::vector<std::set<std::string>> keys;
    bool twice = false;
    const Json kept = Json::parse(
        text, [&](int, Json::parse_event_t event, const Json& value) {
          using Event = Json::parse_event_t;
          if (event == Event::object_start) keys.push_back({});
          if (event == Event::object_end) keys.pop_back();
          if (event == Event::key && !keys.back().insert(value).second) {
            twice = true;
          }
          return true;
        });
    if (twice || !object.contains("name") || !object["name"].is_string()) {
      return false;
    }
    const std::string name = object["name"];
    if (name.find_first_of(" <>{}[]()\"'`\n\t") != name.npos || name.empty()) {
      return false;
    }
    Json arguments =
        object.value("arguments", object.value("parameters", Json::object()));
    if (arguments.is_string()) {
      const std::string inner = arguments;
      arguments = White(inner, 0) == inner.size()
                      ? Json::object()
                      : Json::parse(inner, nullptr, false);
    }
    if (!arguments.is_object()) return false;
    parts_.push_back({"", name, arguments});
    return true;
  }

  const std::string text_;
  Parts parts_;
};

TEST(ToolCallsRandom, AsAPlainParserOfTheWholeText) {
  Source source{std::mt19937_64(3)};
  size_t calls = 0, texts = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = RandomAnswer("hermes", source).text;
    if (i % 4 > 0) text = Changed(text, source);
    const Parts plain = PlainHermes(text).Read();
    ASSERT_EQ(plain, CutAtRandom(*FormNamed("hermes"), text, source)) << text;
    for (const ToldPart& part : plain) ++(part.name.empty() ? texts : calls);
  }
  EXPECT_GT(calls, 3000u);
  EXPECT_GT(texts, 3000u);
}

}  // namespace
}  // namespace tarn
