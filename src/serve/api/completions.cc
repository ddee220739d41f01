// POST /v1/completions, and /completion for llama.cpp's clients.
#include "serve/api/handle.h"
#include "serve/api/routes.h"

namespace tarn::serve {
namespace {

class CompletionReply final : public Reply {
 public:
  using Reply::Reply;

 private:
  Json Chunk() const {
    return {{"id", "cmpl-" + id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", model_.name},
            {"choices", Json::array()}};
  }
  // OpenAI's older form: lists by token.
  static Json Logprobs(const Json& rows) {
    if (rows.empty()) return nullptr;
    Json lists = {{"tokens", Json::array()},
                  {"token_logprobs", Json::array()},
                  {"top_logprobs", Json::array()},
                  {"content", rows}};
    for (const Json& row : rows) {
      lists["tokens"].push_back(row["token"]);
      lists["token_logprobs"].push_back(row["logprob"]);
      if (row["top_logprobs"].is_null()) {  // the first token of a prompt
        lists["top_logprobs"].push_back(nullptr);
        continue;
      }
      Json top = Json::object();
      for (const Json& one : row["top_logprobs"]) {
        top[one["token"].get<std::string>()] = one["logprob"];
      }
      lists["top_logprobs"].push_back(std::move(top));
    }
    return lists;
  }
  static Json ChoiceOf(size_t index, const std::string& text,
                       const Json& logprobs, const Json& finish_reason) {
    return {{"index", index},
            {"text", text},
            {"logprobs", Logprobs(logprobs)},
            {"finish_reason", finish_reason}};
  }

  void SendDelta(size_t index, ReplyChoice& choice) override {
    Json chunk = Chunk();
    chunk["choices"].push_back(ChoiceOf(index, SafeText(choice.unsent_text),
                                        choice.unsent_logprobs, nullptr));
    if (options_.include_usage) chunk["usage"] = nullptr;
    SendEvent(chunk);
  }
  void SendEnd(size_t index, ReplyChoice& choice) override {
    Json chunk = Chunk();
    Json end = ChoiceOf(index, "", Json::array(), choice.finish_reason);
    end["stop_type"] = choice.stop_type;
    if (options_.return_tokens) end["tokens"] = choice.ids;
    chunk["choices"].push_back(std::move(end));
    if (options_.include_usage) chunk["usage"] = nullptr;
    SendEvent(chunk);
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
      Json one = ChoiceOf(i, SafeText(choice.text), choice.logprobs,
                          choice.finish_reason);
      one["stop_type"] = choice.stop_type;
      if (options_.return_tokens) one["tokens"] = choice.ids;
      whole["choices"].push_back(std::move(one));
    }
    whole["usage"] = UsageJson();
    whole["timings"] = TimingsJson();
    whole["seed"] = options_.sequence.sampler.seed;
    return whole;
  }
};

}  // namespace

void SubmitAll(ServedModel& model, const std::shared_ptr<Reply>& reply,
               std::vector<std::vector<int32_t>> prompts,
               const TextOptions& options, const std::string& space) {
  std::vector<TextRequest> requests;
  for (std::vector<int32_t>& prompt : prompts) {
    TextRequest request;
    request.score_prompt = options.echo && options.top_logprobs;
    request.sink = reply->SinkFor(request.ticket, prompt);
    request.prompt = std::move(prompt);
    request.options = options.sequence;
    request.max_tokens = options.max_tokens;
    request.choices = options.choices;
    request.cache_prompt = options.cache_prompt;
    request.space = space;
    requests.push_back(std::move(request));
  }
  model.scheduler->Submit(std::move(requests));
}

std::vector<Route> CompletionRoutes(std::shared_ptr<Service> service) {
  const auto handler = JsonHandler(
      service, [service](const JsonObject& body, const Request& request,
                         const PathArguments&, Response& response) {
        ServedModel& model = service->Find(body.FindText("model"));
        TextOptions options = ReadTextOptions(body, model, true);
        ReadConstraint(body, model, options);
        std::vector<std::vector<int32_t>> prompts = ReadPrompts(body, model);
        FitBudget(prompts, model, options);
        auto reply =
            std::make_shared<CompletionReply>(model, options, response);
        SubmitAll(model, reply, std::move(prompts), options, SpaceOf(request));
      });
  return {{"POST", "/v1/completions", handler},
          {"POST", "/completions", handler},
          {"POST", "/completion", handler}};
}

}  // namespace tarn::serve
