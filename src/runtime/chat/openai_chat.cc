#include "runtime/chat/openai_chat.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/json/json_object.h"
#include "core/text.h"
#include "text/template/ordered_json.h"

namespace tarn {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

void WantAtMost(const std::string& where, size_t count, size_t most) {
  if (count <= most) return;
  throw FormatError(where, StrCat("at most ", most), StrCat(count));
}

std::string NonEmptyText(const JsonObject& object, const char* key) {
  std::string text = object.Text(key);
  if (text.empty()) throw FormatError(object.At(key), "a text", "an empty one");
  return text;
}

// A type that is absent or is the one that is supported.
void WantType(const JsonObject& object, const std::string& type) {
  const auto found = object.FindText("type");
  if (found && *found != type) {
    throw FormatError(object.At("type"), "'" + type + "'", Quoted(*found));
  }
}

std::string TextOfPart(const json& part, const std::string& where) {
  const JsonObject object(part, where);
  const std::string type = object.Text("type");
  if (type != "text") {
    throw FormatError(object.At("type"), "'text'", Quoted(type));
  }
  return object.Text("text");
}

std::string ContentOf(const JsonObject& message, bool may_lack) {
  const std::string where = message.At("content");
  if (!message.Has("content")) {
    if (may_lack) return "";
    throw FormatError(where, "a text or a list of parts", "none");
  }
  const json& content = message.Value("content");
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    throw FormatError(where, "a text or a list of parts", JsonGiven(content));
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    if (i > 0) text += '\n';
    text += TextOfPart(content[i], ElementName(where, i));
  }
  return text;
}

ordered_json ArgumentsOf(const JsonObject& function) {
  if (!function.Has("arguments")) return ordered_json::object();
  const json& value = function.Value("arguments");
  const std::string where = function.At("arguments");
  constexpr const char* kWanted = "a JSON object as a text";
  if (value.is_object()) return ordered_json(value);
  if (!value.is_string()) throw FormatError(where, kWanted, JsonGiven(value));
  const auto& text = value.get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == text.npos) {
    return ordered_json::object();
  }
  ordered_json arguments = ParseOrderedJson(text, where, text.size()).Take();
  if (!arguments.is_object()) {
    throw FormatError(where, kWanted, "the text " + Quoted(text));
  }
  return arguments;
}

ChatToolCall ToolCallOf(const json& value, const std::string& where) {
  const JsonObject call(value, where);
  WantType(call, "function");
  const JsonObject function = call.Object("function");
  return {.id = call.FindText("id").value_or(""),
          .name = NonEmptyText(function, "name"),
          .arguments = ArgumentsOf(function)};
}

std::vector<ChatToolCall> ToolCallsOf(const JsonObject& message) {
  std::vector<ChatToolCall> calls;
  const json* list = message.FindList("tool_calls");
  if (list == nullptr) return calls;
  const std::string where = message.At("tool_calls");
  WantAtMost(where, list->size(), kMaxToolCalls);
  for (const json& call : *list) {
    calls.push_back(ToolCallOf(call, ElementName(where, calls.size())));
  }
  return calls;
}

void CheckRole(const JsonObject& message, const std::string& role) {
  constexpr const char* kRoles[] = {"system", "developer", "user", "assistant",
                                    "tool"};
  const bool known = std::any_of(std::begin(kRoles), std::end(kRoles),
                                 [&](const char* r) { return role == r; });
  if (known) return;
  throw FormatError(message.At("role"),
                    "system, developer, user, assistant or tool", Quoted(role));
}

std::set<std::string> ToolNames(const JsonObject& request) {
  std::set<std::string> names;
  const json* list = request.FindList("tools");
  if (list == nullptr) return names;
  const std::string where = request.At("tools");
  WantAtMost(where, list->size(), kMaxTools);
  for (size_t i = 0; i < list->size(); ++i) {
    const JsonObject tool((*list)[i], ElementName(where, i));
    WantType(tool, "function");
    const JsonObject function = tool.Object("function");
    const std::string name = NonEmptyText(function, "name");
    function.FindText("description");
    function.FindObject("parameters");
    if (!names.insert(name).second) {
      throw FormatError(function.At("name"), "each function once",
                        Quoted(name) + " twice");
    }
  }
  return names;
}

ToolChoice ChoiceOf(const JsonObject& request,
                    const std::set<std::string>& names) {
  using Mode = ToolChoice::Mode;
  if (!request.Has("tool_choice")) return {};
  const json& value = request.Value("tool_choice");
  const std::string where = request.At("tool_choice");
  ToolChoice choice;
  if (value == "auto" || value == "none") {
    if (value == "none") choice.mode = Mode::kNone;
    return choice;
  }
  if (value == "required") {
    if (names.empty()) throw FormatError(where, "tools to call", "none");
    choice.mode = Mode::kRequired;
    return choice;
  }
  if (!value.is_object()) {
    throw FormatError(where, "'auto', 'none', 'required' or a function",
                      JsonGiven(value));
  }
  const JsonObject object(value, where);
  WantType(object, "function");
  const JsonObject function = object.Object("function");
  choice.mode = Mode::kFunction;
  choice.function = function.Text("name");
  if (!names.contains(choice.function)) {
    throw FormatError(function.At("name"), "a function of tools",
                      Quoted(choice.function));
  }
  return choice;
}

// Members of the request as the template gets them.
ordered_json OrderedMember(const JsonObject& request,
                           const ordered_json* ordered, const char* key) {
  if (ordered != nullptr && ordered->is_object()) {
    const auto found = ordered->find(key);
    if (found != ordered->end()) return *found;
  }
  return ordered_json(request.Value(key));
}

ordered_json VariablesOf(const JsonObject& request,
                         const ordered_json* ordered) {
  constexpr char kKey[] = "chat_template_kwargs";
  const auto object = request.FindObject(kKey);
  if (!object) return nullptr;
  WantAtMost(request.At(kKey), object->value().size(), kMaxTemplateVariables);
  std::vector<std::string> own = RenderOptions().trusted;
  own.insert(own.end(), {"messages", "tools", "add_generation_prompt"});
  for (const auto& [name, value] : object->value().items()) {
    if (std::find(own.begin(), own.end(), name) == own.end()) continue;
    throw FormatError(object->At(name), "other variables than the chat's own",
                      JsonGiven(value));
  }
  return OrderedMember(request, ordered, kKey);
}

}  // namespace

ChatMessage MessageOfOpenAi(const json& message, const std::string& where) {
  const JsonObject object(message, where);
  ChatMessage result;
  result.role = object.Text("role");
  CheckRole(object, result.role);
  const bool answers = result.role == "assistant";
  if (object.Has("function_call")) {
    throw FormatError(object.At("function_call"), "tool_calls instead",
                      JsonGiven(object.Value("function_call")));
  }
  result.content = ContentOf(object, answers);
  result.tool_calls = ToolCallsOf(object);
  if (!answers && !result.tool_calls.empty()) {
    throw FormatError(object.At("tool_calls"), "none but of the assistant",
                      "some of the role " + Quoted(result.role));
  }
  result.reasoning = object.FindText("reasoning_content");
  if (!result.reasoning) result.reasoning = object.FindText("reasoning");
  result.tool_call_id = object.FindText("tool_call_id").value_or("");
  result.name = object.FindText("name").value_or("");
  return result;
}

OpenAiChat ChatOfOpenAi(const json& request, const ordered_json* ordered,
                        const std::string& where) {
  const JsonObject object(request, where);
  OpenAiChat result;
  Chat& chat = result.chat;
  const json& messages = object.List("messages");
  const std::string list = object.At("messages");
  if (messages.empty()) throw FormatError(list, "at least one", "none");
  WantAtMost(list, messages.size(), kMaxChatMessages);
  chat.messages.reserve(messages.size());
  for (const json& message : messages) {
    chat.messages.push_back(
        MessageOfOpenAi(message, ElementName(list, chat.messages.size())));
  }
  const std::set<std::string> names = ToolNames(object);
  result.tool_choice = ChoiceOf(object, names);
  result.parallel_tool_calls =
      object.FindFlag("parallel_tool_calls").value_or(true);
  if (!names.empty() && result.tool_choice.mode != ToolChoice::Mode::kNone) {
    chat.tools = OrderedMember(object, ordered, "tools");
  }
  chat.variables = VariablesOf(object, ordered);
  chat.add_generation_prompt = true;
  return result;
}

}  // namespace tarn
