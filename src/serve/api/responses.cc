// POST /v1/responses: the part of OpenAI's newer interface that its text
// helpers use. Nothing is stored: previous_response_id is refused.
#include <utility>

#include "core/text.h"
#include "serve/api/chat_request.h"
#include "serve/api/handle.h"
#include "serve/api/routes.h"

namespace tarn::serve {
namespace {

class ResponseReply final : public AnswerReply {
 public:
  using AnswerReply::AnswerReply;

  /// Before it is sent: what a response says again of its request.
  void Repeat(const JsonObject& request) {
    for (const char* key : {"instructions", "parallel_tool_calls",
                            "tool_choice", "tools", "metadata"}) {
      if (request.Has(key)) asked_[key] = *request.Find(key);
    }
  }

 private:
  Json Part(const std::string& text) const {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()}};
  }
  Json Item(const char* status, const Json& content) const {
    return {{"id", "msg_" + id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", content}};
  }
  Json Base(const char* status, const Json& output) const {
    Json all = {{"id", "resp_" + id_},
                {"object", "response"},
                {"created_at", created_},
                {"status", status},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"instructions", nullptr},
                {"model", model_.name},
                {"output", output},
                {"parallel_tool_calls", true},
                {"temperature", options_.sequence.sampler.temperature},
                {"tool_choice", "auto"},
                {"tools", Json::array()},
                {"top_p", options_.sequence.sampler.top_p},
                {"max_output_tokens", options_.max_tokens},
                {"metadata", Json::object()},
                {"usage", nullptr}};
    all.update(asked_);
    return all;
  }
  Json Finished() const {
    const ReplyChoice& choice = choices_.front();
    const bool whole = choice.finish_reason != "length";
    Json output = Json::array();
    if (!choice.thinking.empty()) {
      output.push_back({{"id", "rs_" + id_},
                        {"type", "reasoning"},
                        {"summary",
                         {{{"type", "summary_text"},
                           {"text", SafeText(choice.thinking)}}}}});
    }
    output.push_back(Item(whole ? "completed" : "incomplete",
                          Json::array({Part(SafeText(choice.text))})));
    for (const Json& call : choice.tool_calls) {
      output.push_back({{"id", "fc_" + call["id"].get<std::string>()},
                        {"type", "function_call"},
                        {"call_id", call["id"]},
                        {"name", call["function"]["name"]},
                        {"arguments", call["function"]["arguments"]},
                        {"status", "completed"}});
    }
    Json done = Base(whole ? "completed" : "incomplete", output);
    if (!whole) done["incomplete_details"] = {{"reason", "max_output_tokens"}};
    done["usage"] = {
        {"input_tokens", usage_.prompt_tokens},
        {"input_tokens_details", {{"cached_tokens", usage_.cached_tokens}}},
        {"output_tokens", usage_.text_tokens},
        {"output_tokens_details", {{"reasoning_tokens", 0}}},
        {"total_tokens", usage_.prompt_tokens + usage_.text_tokens}};
    return done;
  }
  void Tell(const char* type, Json event) {
    Json all = {{"type", type}, {"sequence_number", sequence_++}};
    all.update(event);
    SendEvent(all, type);
  }
  Json Place() const {
    return {
        {"item_id", "msg_" + id_}, {"output_index", 0}, {"content_index", 0}};
  }

  void SendStart() override {
    Tell("response.created",
         {{"response", Base("in_progress", Json::array())}});
    Tell("response.in_progress",
         {{"response", Base("in_progress", Json::array())}});
    Tell("response.output_item.added",
         {{"output_index", 0}, {"item", Item("in_progress", Json::array())}});
    Json part = Place();
    part["part"] = Part("");
    Tell("response.content_part.added", std::move(part));
  }
  void SendDelta(size_t, ReplyChoice& choice) override {
    if (choice.unsent_text.empty()) return;
    Json delta = Place();
    delta["delta"] = SafeText(choice.unsent_text);
    delta["logprobs"] = Json::array();
    Tell("response.output_text.delta", std::move(delta));
  }
  void SendEnd(size_t, ReplyChoice& choice) override {
    Json text = Place();
    text["text"] = SafeText(choice.text);
    text["logprobs"] = Json::array();
    Tell("response.output_text.done", std::move(text));
    Json part = Place();
    part["part"] = Part(SafeText(choice.text));
    Tell("response.content_part.done", std::move(part));
    Tell("response.output_item.done",
         {{"output_index", 0},
          {"item",
           Item("completed", Json::array({Part(SafeText(choice.text))}))}});
  }
  void SendLast() override {
    const Json done = Finished();
    const bool whole = done["status"] == "completed";
    Tell(whole ? "response.completed" : "response.incomplete",
         {{"response", done}});
  }
  Json Whole() override { return Finished(); }

  int64_t sequence_ = 0;
  Json asked_ = Json::object();
};

// Parts of the newer interface by the names of the older one.
nlohmann::json ContentOf(const nlohmann::json& content,
                         const std::string& where) {
  if (!content.is_array()) return content;
  nlohmann::json parts = nlohmann::json::array();
  for (const nlohmann::json& part : content) {
    const JsonObject one(part, ElementName(where, parts.size()));
    const std::string type = one.Text("type");
    if (type != "input_text" && type != "output_text" && type != "text") {
      throw UnsupportedParameter(one.At("type"), "input_text or output_text");
    }
    parts.push_back({{"type", "text"}, {"text", one.Text("text")}});
  }
  return parts;
}

// The request as one of chat completions.
nlohmann::json ChatOfResponses(const JsonObject& body) {
  for (const char* key : {"previous_response_id", "conversation"}) {
    if (body.Has(key)) {
      throw UnsupportedParameter(key, "the whole conversation in `input`");
    }
  }
  nlohmann::json chat = body.value();
  nlohmann::json messages = nlohmann::json::array();
  if (const auto text = body.FindText("instructions")) {
    messages.push_back({{"role", "system"}, {"content", *text}});
  }
  const nlohmann::json& input = body.Value("input");
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input}});
  } else {
    size_t index = 0;
    for (const nlohmann::json& item : body.List("input")) {
      const std::string where = ElementName("input", index++);
      const JsonObject one(item, where);
      const std::string type = one.FindText("type").value_or("message");
      if (type == "function_call_output") {
        messages.push_back({{"role", "tool"},
                            {"tool_call_id", one.Text("call_id")},
                            {"content", one.Text("output")}});
      } else if (type == "function_call") {
        messages.push_back({{"role", "assistant"},
                            {"content", ""},
                            {"tool_calls",
                             {{{"id", one.Text("call_id")},
                               {"type", "function"},
                               {"function",
                                {{"name", one.Text("name")},
                                 {"arguments", one.Text("arguments")}}}}}}});
      } else if (type == "message") {
        std::string role = one.Text("role");
        if (role == "developer") role = "system";
        messages.push_back(
            {{"role", role},
             {"content", ContentOf(one.Value("content"), one.At("content"))}});
      } else if (type != "reasoning") {
        throw UnsupportedParameter(one.At("type"),
                                   "message, function_call, "
                                   "function_call_output");
      }
    }
  }
  chat["messages"] = std::move(messages);
  if (const auto text = body.FindObject("text")) {
    if (const auto format = text->FindObject("format")) {
      chat["response_format"] = format->value();
    }
  }
  // The newer interface names the function in the choice itself.
  if (const nlohmann::json* choice = body.Find("tool_choice")) {
    if (choice->is_object() && !choice->contains("function")) {
      const JsonObject one(*choice, "tool_choice");
      if (one.Text("type") != "function") {
        throw UnsupportedParameter(one.At("type"), "function");
      }
      chat["tool_choice"] = {{"type", "function"},
                             {"function", {{"name", one.Text("name")}}}};
    }
  }
  // The newer interface has the function's members in the tool itself.
  if (const nlohmann::json* tools = body.FindList("tools")) {
    nlohmann::json older = nlohmann::json::array();
    for (const nlohmann::json& tool : *tools) {
      const JsonObject one(tool, ElementName("tools", older.size()));
      if (one.Text("type") != "function") {
        throw UnsupportedParameter(one.At("type"), "function");
      }
      nlohmann::json function = tool;
      function.erase("type");
      function.erase("strict");
      older.push_back({{"type", "function"}, {"function", function}});
    }
    chat["tools"] = std::move(older);
  }
  return chat;
}

}  // namespace

std::vector<Route> ResponseRoutes(std::shared_ptr<Service> service) {
  const auto handler = JsonHandler(
      service, [service](const JsonObject& body, const Request& request,
                         const PathArguments&, Response& response) {
        ServedModel& model = service->Find(body.FindText("model"));
        const nlohmann::json document = ChatOfResponses(body);
        const JsonObject chat(document, "");
        TextOptions options = ReadTextOptions(chat, model);
        options.choices = 1;
        ChatPrompt prompt =
            ReadChatPrompt(chat, document.dump(), model, options);
        ReadConstraint(chat, model, options);
        std::vector<std::vector<int32_t>> prompts{std::move(prompt.ids)};
        FitBudget(prompts, model, options);
        auto reply = std::make_shared<ResponseReply>(model, options, response,
                                                     std::move(prompt.answer));
        reply->Repeat(body);
        SubmitAll(model, reply, std::move(prompts), options, SpaceOf(request));
      });
  return {{"POST", "/v1/responses", handler}};
}

}  // namespace tarn::serve
