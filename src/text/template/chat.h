// A conversation as a program has it, and as the variables that chat templates
// expect.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/template/chat_template.h"

namespace tarn {

struct ChatToolCall {
  std::string id;    // empty: none
  std::string name;  // of the function
  /// An object, as templates expect it; a text is passed on as it is.
  nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
};

struct ChatMessage {
  std::string role = {};
  std::string content = {};
  /// Instead of `content`: a list of parts ({"type": "text", "text": ...}), or
  /// null for none. Discarded: `content` is used.
  nlohmann::ordered_json parts = nlohmann::ordered_json::value_t::discarded;
  /// The model's reasoning; templates find it as reasoning_content and
  /// thinking.
  std::optional<std::string> reasoning = {};
  std::vector<ChatToolCall> tool_calls = {};
  std::string tool_call_id = {}, name = {};  // of a tool's result; empty: none
};

struct Chat {
  std::vector<ChatMessage> messages;
  /// JSON schemas of functions, a list; null: none.
  nlohmann::ordered_json tools;
  bool add_generation_prompt = false;
  std::string bos_token, eos_token;
  /// More variables (enable_thinking, documents, date_string, ...), an object
  /// or null. They cannot replace the ones above.
  nlohmann::ordered_json variables;
};

/// The variables messages, tools, documents, add_generation_prompt, bos_token,
/// eos_token and chat.variables. Throws ArgumentError if `tools` is neither a
/// list nor null, or `variables` neither an object nor null. O(bytes).
nlohmann::ordered_json ChatContext(const Chat& chat);

/// ChatTemplate::Render of ChatContext.
Result<RenderedText> RenderChat(const ChatTemplate& chat_template,
                                const Chat& chat,
                                const RenderOptions& options = {});

}  // namespace tarn
