// What the tests of tool calls share: what a splitter tells, and the forms
// written by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/chat/tool_calls.h"
#include "runtime/chat/tool_forms/form.h"

namespace tarn {

/// A text, or a call where `name` is not empty.
struct ToldPart {
  std::string text, name;
  nlohmann::ordered_json arguments = nullptr;
  bool operator==(const ToldPart&) const = default;
};

inline void PrintTo(const ToldPart& part, std::ostream* out) {
  if (part.name.empty()) {
    *out << "text "
         << nlohmann::json(part.text).dump(
                -1, ' ', false, nlohmann::json::error_handler_t::replace);
  } else {
    *out << "call " << part.name << " " << part.arguments;
  }
}

inline ToldPart TextPart(std::string text) { return {std::move(text), ""}; }
inline ToldPart CallPart(std::string name, const std::string& arguments) {
  return {"", std::move(name), nlohmann::ordered_json::parse(arguments)};
}

inline const ToolCallForm* FormNamed(std::string_view name) {
  for (const ToolCallForm& form : ToolCallForms()) {
    if (form.name == name) return &form;
  }
  ADD_FAILURE() << "no form " << name;
  return nullptr;
}

/// A special token of DeepSeek's templates: between U+FF5C, with U+2581 for
/// spaces.
inline std::string DeepSeek(const std::string& words) {
  std::string text = "<\xEF\xBD\x9C";
  for (const char byte : words) {
    text += byte == ' ' ? "\xE2\x96\x81" : std::string(1, byte);
  }
  return text + "\xEF\xBD\x9C>";
}

/// What is told of an answer that comes in pieces of the sizes that `size`
/// gives; neighbouring texts are one part.
inline std::vector<ToldPart> ToldOf(const ToolCallForm* form,
                                    const nlohmann::ordered_json& tools,
                                    std::string_view answer,
                                    const std::function<size_t()>& size) {
  std::vector<ToldPart> parts;
  size_t calls = 0;
  const auto on_text = [&](std::string_view text) {
    EXPECT_FALSE(text.empty());
    if (parts.empty() || !parts.back().name.empty()) parts.push_back({});
    parts.back().text += text;
  };
  const auto on_call = [&](const ToolCallPart& call) {
    EXPECT_EQ(calls++, call.index);
    EXPECT_FALSE(call.name.empty());
    EXPECT_TRUE(nlohmann::json::accept(call.arguments)) << call.arguments;
    parts.push_back(CallPart(call.name, call.arguments));
    EXPECT_TRUE(parts.back().arguments.is_object());
  };
  ToolCallSplitter splitter(form, tools);
  while (!answer.empty()) {
    const size_t piece = std::min(size(), answer.size());
    splitter.Push(answer.substr(0, piece), on_text, on_call);
    answer.remove_prefix(piece);
  }
  splitter.Finish(on_text);
  EXPECT_EQ(calls, splitter.calls());
  return parts;
}

inline std::vector<ToldPart> ToldOf(const ToolCallForm* form,
                                    const nlohmann::ordered_json& tools,
                                    std::string_view answer,
                                    size_t piece = 1 << 20) {
  return ToldOf(form, tools, answer, [=] { return piece; });
}

}  // namespace tarn
