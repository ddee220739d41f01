// From what the scheduler tells to what a client gets: whole or as a stream of
// server-sent events. Included by .cc files only.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/thinking.h"
#include "serve/api/read_options.h"
#include "serve/http/http_server.h"

namespace tarn::serve {

using Json = nlohmann::ordered_json;

/// {"error": {"message", "type", "param", "code"}} of an error, and its status.
struct ErrorReply {
  int status = 500;
  std::string body;
};

/// One choice as it grows.
struct ReplyChoice {
  std::string bytes;  // an unfinished character
  std::string text;   // of the answer, without its thinking
  std::string thinking;
  std::string unsent_text, unsent_thinking;  // deltas that wait
  std::vector<int32_t> ids;
  Json logprobs = Json::array(), unsent_logprobs = Json::array();
  std::vector<Json> tool_calls, unsent_tool_calls;
  size_t sent_tool_calls = 0;
  bool thinks = false;
  std::string finish_reason;  // "" until it has ended
  std::string stop_type;      // "eos", "word", "limit", "none"
  std::string stop_text;      // of "word"
};

/// The answer to one request, all of whose texts have one model. On its
/// scheduler's thread after it was made. What differs between interfaces is in
/// the virtual functions.
class Reply : public std::enable_shared_from_this<Reply> {
 public:
  Reply(ServedModel& model, TextOptions options, Response response);
  virtual ~Reply() = default;

  /// A sink for one prompt's request, whose choices are numbered on.
  std::unique_ptr<TextSink> SinkFor(std::shared_ptr<Ticket> ticket,
                                    std::span<const int32_t> prompt = {});

 protected:
  /// Splits a text into its parts; the default has text alone.
  virtual void OnBytes(ReplyChoice& choice, std::string_view bytes);
  virtual void OnLast(ReplyChoice& choice);
  /// Events of the stream. `choice`: its unsent parts are sent.
  virtual void SendStart() {}
  virtual void SendDelta(size_t index, ReplyChoice& choice) = 0;
  virtual void SendEnd(size_t index, ReplyChoice& choice) = 0;
  virtual void SendLast() = 0;
  virtual Json Whole() = 0;
  /// An error, and how a stream that has begun tells it.
  virtual ErrorReply ErrorOf(const Error& error) const;
  virtual void SendFailure(const ErrorReply& error);
  /// Of one token, with alternatives.
  virtual Json LogprobOf(const TokenEvent& token, std::string_view bytes);

  Json UsageJson() const;
  Json TimingsJson() const;
  void SendEvent(const Json& event, const char* name = nullptr);

  ServedModel& model_;
  const TextOptions options_;
  Response response_;
  const std::string id_;
  const int64_t created_;
  std::vector<ReplyChoice> choices_;
  TextUsage usage_;  // of all prompts

 private:
  friend class ReplySink;
  void Started();
  void Echo(ReplyChoice& choice, std::span<const int32_t> prompt);
  void PromptToken(size_t first, const TokenEvent& token);
  void Token(size_t first, const TokenEvent& token);
  void End(size_t first, const ChoiceEnd& end);
  void Done(const TextUsage& usage);
  void Failed(const Error& error);
  void Flush(size_t index);
  void CancelAll();

  std::vector<std::shared_ptr<Ticket>> tickets_;
  int64_t open_ = 0;  // requests that have not ended
  bool begun_ = false, over_ = false;
};

ErrorReply ErrorReplyOf(const Error& error);
void SendError(Response& response, const Error& error);

/// Valid UTF-8 for JSON.
std::string SafeText(std::string_view bytes);

}  // namespace tarn::serve
