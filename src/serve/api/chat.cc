// POST /v1/chat/completions.
#include "runtime/chat/openai_chat.h"
#include "runtime/chat/tool_calls.h"
#include "serve/api/chat_request.h"
#include "serve/api/handle.h"
#include "serve/api/routes.h"

namespace tarn::serve {
namespace {

class ChatReply final : public AnswerReply {
 public:
  using AnswerReply::AnswerReply;

 private:
  Json Chunk() const {
    return {{"id", "chatcmpl-" + id_},
            {"object",
             options_.stream ? "chat.completion.chunk" : "chat.completion"},
            {"created", created_},
            {"model", model_.name},
            {"choices", Json::array()}};
  }
  static Json Logprobs(const Json& rows) {
    if (rows.empty()) return nullptr;
    return {{"content", rows}};
  }
  void Send(size_t index, Json delta, const Json& logprobs,
            const Json& finish_reason) {
    Json chunk = Chunk();
    chunk["choices"].push_back({{"index", index},
                                {"delta", std::move(delta)},
                                {"logprobs", Logprobs(logprobs)},
                                {"finish_reason", finish_reason}});
    if (options_.include_usage) chunk["usage"] = nullptr;
    SendEvent(chunk);
  }

  void SendStart() override {
    for (size_t i = 0; i < choices_.size(); ++i) {
      Send(i, {{"role", "assistant"}, {"content", ""}}, Json::array(), nullptr);
    }
  }
  void SendDelta(size_t index, ReplyChoice& choice) override {
    Json delta = Json::object();
    if (!choice.unsent_thinking.empty()) {
      delta["reasoning_content"] = SafeText(choice.unsent_thinking);
    }
    if (!choice.unsent_text.empty()) {
      delta["content"] = SafeText(choice.unsent_text);
    }
    for (Json call : choice.unsent_tool_calls) {
      Json row = {{"index", choice.sent_tool_calls++}};
      row.update(call);
      delta["tool_calls"].push_back(std::move(row));
    }
    Send(index, std::move(delta), choice.unsent_logprobs, nullptr);
  }
  void SendEnd(size_t index, ReplyChoice& choice) override {
    Send(index, Json::object(), Json::array(), choice.finish_reason);
  }
  void SendLast() override {
    if (options_.include_usage) {
      Json chunk = Chunk();
      chunk["usage"] = UsageJson();
      chunk["timings"] = TimingsJson();
      SendEvent(chunk);
    }
    response_.Write("data: [DONE]\n\n");
  }
  Json Whole() override {
    Json whole = Chunk();
    for (size_t i = 0; i < choices_.size(); ++i) {
      const ReplyChoice& choice = choices_[i];
      Json message = {{"role", "assistant"},
                      {"content", SafeText(choice.text)}};
      if (!choice.thinking.empty()) {
        message["reasoning_content"] = SafeText(choice.thinking);
      }
      if (!choice.tool_calls.empty()) {
        if (choice.text.empty()) message["content"] = nullptr;
        message["tool_calls"] = choice.tool_calls;
      }
      whole["choices"].push_back({{"index", i},
                                  {"message", std::move(message)},
                                  {"logprobs", Logprobs(choice.logprobs)},
                                  {"finish_reason", choice.finish_reason}});
    }
    whole["usage"] = UsageJson();
    whole["timings"] = TimingsJson();
    whole["seed"] = options_.sequence.sampler.seed;
    return whole;
  }
};

}  // namespace

std::vector<Route> ChatRoutes(std::shared_ptr<Service> service) {
  const auto handler = JsonHandler(
      service, [service](const JsonObject& body, const Request& request,
                         const PathArguments&, Response& response) {
        ServedModel& model = service->Find(body.FindText("model"));
        TextOptions options = ReadTextOptions(body, model);
        ChatPrompt prompt = ReadChatPrompt(body, request.body, model, options);
        ReadConstraint(body, model, options);
        std::vector<std::vector<int32_t>> prompts{std::move(prompt.ids)};
        FitBudget(prompts, model, options);
        auto reply = std::make_shared<ChatReply>(model, options, response,
                                                 std::move(prompt.answer));
        SubmitAll(model, reply, std::move(prompts), options, SpaceOf(request));
      });
  return {{"POST", "/v1/chat/completions", handler},
          {"POST", "/chat/completions", handler}};
}

}  // namespace tarn::serve
