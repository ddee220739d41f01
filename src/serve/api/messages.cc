// POST /v1/messages: Anthropic's interface over the same conversations, and
// /v1/messages/count_tokens.
#include <algorithm>
#include <utility>

#include "core/text.h"
#include "serve/api/chat_request.h"
#include "serve/api/handle.h"
#include "serve/api/routes.h"
#include "text/template/ordered_json.h"

namespace tarn::serve {
namespace {

// {"type": "error", "error": {"type", "message"}}, with the field as `param`.
ErrorReply MessageErrorOf(const Error& error) {
  ErrorReply reply = ErrorReplyOf(error);
  Json inner = Json::parse(reply.body)["error"];
  inner["type"] = reply.status == 400   ? "invalid_request_error"
                  : reply.status == 404 ? "not_found_error"
                  : reply.status == 429 ? "rate_limit_error"
                  : reply.status == 503 ? "overloaded_error"
                                        : "api_error";
  reply.body = Json{{"type", "error"}, {"error", std::move(inner)}}.dump();
  return reply;
}

class MessageReply final : public AnswerReply {
 public:
  MessageReply(ServedModel& model, TextOptions options, Response response,
               AnswerForm form, std::vector<std::string> stops,
               size_t prompt_tokens)
      : AnswerReply(model, std::move(options), std::move(response),
                    std::move(form)),
        stops_(std::move(stops)),
        prompt_tokens_(prompt_tokens) {}

 private:
  enum class Block { kNone, kThinking, kText };

  Json Base(const Json& content, const Json& stop_reason, const Json& stop_text,
            const Json& usage) const {
    return {{"id", "msg_" + id_},         {"type", "message"},
            {"role", "assistant"},        {"model", model_.name},
            {"content", content},         {"stop_reason", stop_reason},
            {"stop_sequence", stop_text}, {"usage", usage}};
  }
  // Tokens that were read from the cache are counted apart.
  Json Usage() const {
    return {{"input_tokens", usage_.prompt_tokens - usage_.cached_tokens},
            {"cache_read_input_tokens", usage_.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"output_tokens", usage_.text_tokens}};
  }
  // The request's own stop text that ended it; null where none did.
  Json StopText(const ReplyChoice& choice) const {
    const bool its = choice.stop_type == "word" &&
                     std::find(stops_.begin(), stops_.end(),
                               choice.stop_text) != stops_.end();
    return its ? Json(SafeText(choice.stop_text)) : Json(nullptr);
  }
  Json StopReason(const ReplyChoice& choice) const {
    if (choice.finish_reason == "tool_calls") return "tool_use";
    if (choice.finish_reason == "length") return "max_tokens";
    return StopText(choice).is_null() ? "end_turn" : "stop_sequence";
  }
  static Json ToolUse(const Json& call, const Json& input) {
    return {{"type", "tool_use"},
            {"id", call["id"]},
            {"name", call["function"]["name"]},
            {"input", input}};
  }

  void Tell(const char* type, const Json& event) {
    Json all = {{"type", type}};
    all.update(event);
    SendEvent(all, type);
  }
  void TellBlock(const Json& block) {
    Tell("content_block_start", {{"index", index_}, {"content_block", block}});
  }
  void TellDelta(const Json& delta) {
    Tell("content_block_delta", {{"index", index_}, {"delta", delta}});
  }
  void Open(Block block) {
    if (open_ == block) return;
    Close();
    open_ = block;
    if (block == Block::kThinking) {
      TellBlock({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    } else {
      TellBlock({{"type", "text"}, {"text", ""}});
    }
  }
  void Close() {
    if (std::exchange(open_, Block::kNone) == Block::kNone) return;
    EndBlock();
  }
  void EndBlock() {
    Tell("content_block_stop", {{"index", index_}});
    ++index_;
  }

  void SendStart() override {
    const Json usage = {{"input_tokens", prompt_tokens_},
                        {"cache_read_input_tokens", 0},
                        {"cache_creation_input_tokens", 0},
                        {"output_tokens", 0}};
    Tell("message_start",
         {{"message", Base(Json::array(), nullptr, nullptr, usage)}});
  }
  void SendDelta(size_t, ReplyChoice& choice) override {
    if (!choice.unsent_thinking.empty()) {
      Open(Block::kThinking);
      TellDelta({{"type", "thinking_delta"},
                 {"thinking", SafeText(choice.unsent_thinking)}});
    }
    if (!choice.unsent_text.empty()) {
      Open(Block::kText);
      TellDelta(
          {{"type", "text_delta"}, {"text", SafeText(choice.unsent_text)}});
    }
    for (const Json& call : choice.unsent_tool_calls) {
      Close();
      TellBlock(ToolUse(call, Json::object()));
      TellDelta({{"type", "input_json_delta"},
                 {"partial_json", call["function"]["arguments"]}});
      EndBlock();
    }
  }
  void SendEnd(size_t, ReplyChoice&) override { Close(); }
  void SendLast() override {
    const ReplyChoice& choice = choices_.front();
    Tell("message_delta", {{"delta",
                            {{"stop_reason", StopReason(choice)},
                             {"stop_sequence", StopText(choice)}}},
                           {"usage", Usage()}});
    Tell("message_stop", Json::object());
  }
  Json Whole() override {
    const ReplyChoice& choice = choices_.front();
    Json content = Json::array();
    if (!choice.thinking.empty()) {
      content.push_back({{"type", "thinking"},
                         {"thinking", SafeText(choice.thinking)},
                         {"signature", ""}});
    }
    if (!choice.text.empty()) {
      content.push_back({{"type", "text"}, {"text", SafeText(choice.text)}});
    }
    for (const Json& call : choice.tool_calls) {
      const auto& text =
          call["function"]["arguments"].get_ref<const std::string&>();
      content.push_back(ToolUse(call, Json::parse(text)));
    }
    return Base(content, StopReason(choice), StopText(choice), Usage());
  }
  ErrorReply ErrorOf(const Error& error) const override {
    return MessageErrorOf(error);
  }
  void SendFailure(const ErrorReply& error) override {
    response_.Write(StrCat("event: error\ndata: ", error.body, "\n\n"));
  }

  const std::vector<std::string> stops_;
  const size_t prompt_tokens_;
  Block open_ = Block::kNone;
  int64_t index_ = 0;  // of the block that is open, or comes next
};

// A text, or a list of blocks of text, as one text.
std::string BlocksText(const nlohmann::json& content,
                       const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    throw FormatError(where, "a text or a list of blocks", JsonGiven(content));
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const JsonObject block(content[i], ElementName(where, i));
    if (block.Text("type") != "text") {
      throw UnsupportedParameter(block.At("type"), "text");
    }
    if (i > 0) text += '\n';
    text += block.Text("text");
  }
  return text;
}

// A message of blocks as messages of chat completions: results of tools are
// messages by themselves there.
void AddMessage(const nlohmann::json& message, const std::string& where,
                nlohmann::json& messages) {
  const JsonObject one(message, where);
  const std::string role = one.Text("role");
  if (role != "user" && role != "assistant") {
    throw FormatError(one.At("role"), "user or assistant", Quoted(role));
  }
  const nlohmann::json& content = one.Value("content");
  const std::string list = one.At("content");
  if (!content.is_array()) {
    messages.push_back(
        {{"role", role}, {"content", BlocksText(content, list)}});
    return;
  }
  std::string text, thinking;
  bool has_text = false;
  nlohmann::json calls = nlohmann::json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const JsonObject block(content[i], ElementName(list, i));
    const std::string type = block.Text("type");
    if (type == "text") {
      if (std::exchange(has_text, true)) text += '\n';
      text += block.Text("text");
    } else if (type == "thinking" && role == "assistant") {
      thinking += block.Text("thinking");
    } else if (type == "tool_use" && role == "assistant") {
      calls.push_back({{"id", block.Text("id")},
                       {"type", "function"},
                       {"function",
                        {{"name", block.Text("name")},
                         {"arguments", block.Object("input").value()}}}});
    } else if (type == "tool_result" && role == "user") {
      const bool given = block.Has("content");
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", block.Text("tool_use_id")},
                          {"content", given ? BlocksText(block.Value("content"),
                                                         block.At("content"))
                                            : std::string()}});
    } else if (type != "redacted_thinking") {
      throw UnsupportedParameter(block.At("type"),
                                 role == "user" ? "text or tool_result"
                                                : "text, thinking or tool_use");
    }
  }
  if (role == "user" && !has_text) return;
  nlohmann::json made = {{"role", role}, {"content", text}};
  if (!thinking.empty()) made["reasoning_content"] = thinking;
  if (!calls.empty()) made["tool_calls"] = std::move(calls);
  messages.push_back(std::move(made));
}

nlohmann::json ToolChoiceOf(const JsonObject& choice) {
  const std::string type = choice.Text("type");
  if (type == "auto" || type == "none") return type;
  if (type == "any") return "required";
  if (type != "tool") {
    throw FormatError(choice.At("type"), "auto, any, tool or none",
                      Quoted(type));
  }
  return {{"type", "function"}, {"function", {{"name", choice.Text("name")}}}};
}

// The request as one of chat completions.
nlohmann::json ChatOfMessages(const JsonObject& body) {
  nlohmann::json chat = body.value();
  for (const char* key :
       {"system", "tools", "tool_choice", "thinking", "metadata", "n", "stop",
        "stream_options", "output_config", "response_format"}) {
    chat.erase(key);
  }
  nlohmann::json messages = nlohmann::json::array();
  if (const nlohmann::json* system = body.Find("system")) {
    messages.push_back(
        {{"role", "system"}, {"content", BlocksText(*system, "system")}});
  }
  const nlohmann::json& list = body.List("messages");
  for (size_t i = 0; i < list.size(); ++i) {
    AddMessage(list[i], ElementName("messages", i), messages);
  }
  if (!messages.empty() && messages.back()["role"] == "assistant") {
    throw UnsupportedParameter(ElementName("messages", list.size() - 1),
                               "a last message of the user");
  }
  chat["messages"] = std::move(messages);
  if (const auto choice = body.FindObject("tool_choice")) {
    chat["tool_choice"] = ToolChoiceOf(*choice);
    if (choice->FindFlag("disable_parallel_tool_use").value_or(false)) {
      chat["parallel_tool_calls"] = false;
    }
  }
  if (const auto output = body.FindObject("output_config")) {
    if (const auto format = output->FindObject("format")) {
      chat["response_format"] = format->value();
    }
  }
  if (const auto thinking = body.FindObject("thinking")) {
    chat["chat_template_kwargs"]["enable_thinking"] =
        thinking->Text("type") != "disabled";
  }
  return chat;
}

// Tools of the request, with the members of schemas in their order.
Json ToolsOfMessages(const JsonObject& body, const std::string& text) {
  const nlohmann::json* list = body.FindList("tools");
  Json tools = Json::array();
  if (list == nullptr) return tools;
  const Json ordered =
      ParseOrderedJson(text, "request", kMaxRequestBytes).Take();
  for (size_t i = 0; i < list->size(); ++i) {
    const JsonObject tool((*list)[i], ElementName("tools", i));
    const std::string type = tool.FindText("type").value_or("custom");
    if (type != "custom") {
      throw UnsupportedParameter(tool.At("type"), "custom");
    }
    Json function = {{"name", tool.Text("name")}};
    if (const auto words = tool.FindText("description")) {
      function["description"] = *words;
    }
    if (tool.FindObject("input_schema")) {
      function["parameters"] = ordered["tools"][i]["input_schema"];
    }
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

// A request as the prompt of a chat, with its options.
struct MessagePrompt {
  TextOptions options;
  std::vector<std::string> stops;  // of the request itself
  ChatPrompt prompt;
};

MessagePrompt ReadMessages(const JsonObject& body, const std::string& text,
                           const ServedModel& model) {
  nlohmann::json document = ChatOfMessages(body);
  const Json tools = ToolsOfMessages(body, text);
  Json ordered(document);
  if (!tools.empty()) {
    ordered["tools"] = tools;
    document["tools"] = nlohmann::json(tools);
  }
  const JsonObject chat(document, "");
  MessagePrompt read;
  read.options = ReadTextOptions(chat, model);
  read.stops = read.options.sequence.stop_texts;
  read.options.include_usage = false;
  read.prompt = ReadChatPrompt(chat, ordered.dump(), model, read.options);
  ReadConstraint(chat, model, read.options);
  return read;
}

// Errors in the interface's own form.
template <typename F>
auto MessageHandler(const std::shared_ptr<Service>& service, F work) {
  return JsonHandler(
      service, [work](const JsonObject& body, const Request& request,
                      const PathArguments&, Response& response) {
        try {
          work(body, request, response);
        } catch (const Error& error) {
          const ErrorReply reply = MessageErrorOf(error);
          Headers headers;
          if (reply.status == 429) headers.push_back({"Retry-After", "1"});
          response.Send(reply.status, "application/json", reply.body, headers);
        }
      });
}

}  // namespace

std::vector<Route> MessageRoutes(std::shared_ptr<Service> service) {
  const auto create = MessageHandler(service, [service](const JsonObject& body,
                                                        const Request& request,
                                                        Response& response) {
    ServedModel& model = service->Find(body.FindText("model"));
    body.Integer("max_tokens", 1, INT32_MAX);
    MessagePrompt read = ReadMessages(body, request.body, model);
    std::vector<std::vector<int32_t>> prompts{std::move(read.prompt.ids)};
    FitBudget(prompts, model, read.options);
    auto reply = std::make_shared<MessageReply>(
        model, read.options, response, std::move(read.prompt.answer),
        std::move(read.stops), prompts.front().size());
    SubmitAll(model, reply, std::move(prompts), read.options, SpaceOf(request));
  });
  const auto count = MessageHandler(
      service, [service](const JsonObject& body, const Request& request,
                         Response& response) {
        const ServedModel& model = service->Find(body.FindText("model"));
        const MessagePrompt read = ReadMessages(body, request.body, model);
        SendJson(response, {{"input_tokens", read.prompt.ids.size()}});
      });
  return {{"POST", "/v1/messages", create},
          {"POST", "/v1/messages/count_tokens", count}};
}

}  // namespace tarn::serve
