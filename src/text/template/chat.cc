#include "text/template/chat.h"

namespace tarn {
namespace {

nlohmann::ordered_json MessageJson(const ChatMessage& message) {
  nlohmann::ordered_json json;
  json["role"] = message.role;
  if (message.parts.is_discarded()) {
    json["content"] = message.content;
  } else {
    json["content"] = message.parts;
  }
  if (message.reasoning) {
    // Templates differ in the name that they read.
    json["thinking"] = *message.reasoning;
    json["reasoning_content"] = *message.reasoning;
  }
  for (const ChatToolCall& call : message.tool_calls) {
    nlohmann::ordered_json row;
    if (!call.id.empty()) row["id"] = call.id;
    row["type"] = "function";
    row["function"]["name"] = call.name;
    row["function"]["arguments"] = call.arguments;
    json["tool_calls"].push_back(std::move(row));
  }
  if (!message.tool_call_id.empty()) {
    json["tool_call_id"] = message.tool_call_id;
  }
  if (!message.name.empty()) json["name"] = message.name;
  return json;
}

}  // namespace

nlohmann::ordered_json ChatContext(const Chat& chat) {
  if (!chat.tools.is_null() && !chat.tools.is_array()) {
    throw ArgumentError("chat: tools", "a list or null",
                        chat.tools.type_name());
  }
  if (!chat.variables.is_null() && !chat.variables.is_object()) {
    throw ArgumentError("chat: variables", "an object or null",
                        chat.variables.type_name());
  }
  nlohmann::ordered_json context = nlohmann::ordered_json::object();
  context["documents"] = nullptr;
  if (chat.variables.is_object()) context.update(chat.variables);
  context["messages"] = nlohmann::ordered_json::array();
  for (const ChatMessage& message : chat.messages) {
    context["messages"].push_back(MessageJson(message));
  }
  context["tools"] = chat.tools;
  context["add_generation_prompt"] = chat.add_generation_prompt;
  context["bos_token"] = chat.bos_token;
  context["eos_token"] = chat.eos_token;
  return context;
}

Result<RenderedText> RenderChat(const ChatTemplate& chat_template,
                                const Chat& chat,
                                const RenderOptions& options) {
  return chat_template.Render(ChatContext(chat), options);
}

}  // namespace tarn
