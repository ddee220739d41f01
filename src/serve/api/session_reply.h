// What requests about a held session are answered with. Included by .cc files
// only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "serve/api/chat_request.h"

namespace tarn::serve {

/// Answers once tokens have been consumed.
class SessionSink final : public TextSink {
 public:
  using Facts = std::function<std::pair<int, Json>(const TextUsage&)>;
  SessionSink(Response response, Facts facts)
      : response_(std::move(response)), facts_(std::move(facts)) {}
  void Token(const TokenEvent&) override {}
  void End(const ChoiceEnd&) override {}
  void Done(const TextUsage& usage) override {
    const auto [status, json] = facts_(usage);
    response_.Send(status, "application/json", json.dump());
  }
  void Failed(const Error& error) override { SendError(response_, error); }

 private:
  Response response_;
  Facts facts_;
};

/// A text of a held session: as of /v1/completions, with where it stands.
class SessionTextReply final : public AnswerReply {
 public:
  SessionTextReply(ServedModel& model, TextOptions options, Response response,
                   AnswerForm form, SessionStore::Held held)
      : AnswerReply(model, std::move(options), std::move(response),
                    std::move(form)),
        held_(std::move(held)) {}

 private:
  Json Event(const char* object) const;
  void SendDelta(size_t index, ReplyChoice& choice) override;
  void SendEnd(size_t index, ReplyChoice& choice) override;
  void SendLast() override;
  Json Whole() override;

  SessionStore::Held held_;
  std::string finish_reason_;
};

}  // namespace tarn::serve
