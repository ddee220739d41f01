// Conversations as requests of the OpenAI API write them, for chat templates.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "text/template/chat.h"

namespace tarn {

/// Of one request, and of chat_template_kwargs.
inline constexpr size_t kMaxChatMessages = 65536;
inline constexpr size_t kMaxTools = 4096;
inline constexpr size_t kMaxToolCalls = 4096;  // of a message
inline constexpr size_t kMaxTemplateVariables = 64;

/// Which tools the answer may call.
struct ToolChoice {
  enum class Mode {
    kAuto,      // any or none
    kNone,      // none
    kRequired,  // at least one
    kFunction,  // `function`
  } mode = Mode::kAuto;
  std::string function = {};
};

struct OpenAiChat {
  Chat chat;
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;  // an answer may have several
};

/// A message: role; content, a text, null or a list of parts of type text,
/// which become one text, a line break between them; name; tool_call_id;
/// reasoning_content (or reasoning), a text or null; tool_calls, of the
/// assistant, each a function with a name and with arguments as JSON text,
/// which become an object, or as the object itself. Other members are not read.
/// Without a content only the assistant's messages are allowed; it is then
/// empty. `where` names the message in errors, as "messages[2]". FormatError
/// for all else, with the path of the value at fault. O(bytes). Thread-safe.
ChatMessage MessageOfOpenAi(const nlohmann::json& message,
                            const std::string& where);

/// What a request says of its conversation: `messages`; `tools`, a list of
/// functions; `tool_choice`, "auto", "none", "required" or a function of the
/// list, by default "auto"; `parallel_tool_calls`; `chat_template_kwargs`, an
/// object whose members become variables of the template. A variable named as
/// one of the chat's own or as a special token is refused: a template's special
/// tokens are no data. With the choice "none" the chat has no tools.
/// add_generation_prompt is true. `ordered`: the request with its members in
/// their order (ParseOrderedJson of the same text), in which templates write
/// tools; null: tools are written with their members sorted. `where`: what
/// stands before paths in errors, such as "request: ". FormatError, as above.
/// O(bytes). Thread-safe.
OpenAiChat ChatOfOpenAi(const nlohmann::json& request,
                        const nlohmann::ordered_json* ordered = nullptr,
                        const std::string& where = "");

}  // namespace tarn
