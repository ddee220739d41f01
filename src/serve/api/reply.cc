#include "serve/api/reply.h"

#include <chrono>
#include <random>
#include <utility>

#include "core/text.h"
#include "runtime/sampling/token_probs.h"
#include "text/utf8.h"

namespace tarn::serve {
namespace {

// Bytes towards a slow reader from which on deltas are merged.
constexpr size_t kMergeBytes = size_t{64} << 10;

int64_t SecondsSinceEpoch() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string RandomId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 3; ++i) {
    const uint32_t word = device();
    for (int shift = 28; shift >= 0; shift -= 4) {
      id += "0123456789abcdef"[(word >> shift) & 15];
    }
  }
  return id;
}

double PerSecond(int64_t count, double ms) {
  return ms > 0 ? 1000 * static_cast<double>(count) / ms : 0;
}

double PerToken(int64_t count, double ms) {
  return count > 0 ? ms / static_cast<double>(count) : 0;
}

std::vector<int> BytesOf(std::string_view text) {
  std::vector<int> numbers;
  for (const char byte : text) {
    numbers.push_back(static_cast<unsigned char>(byte));
  }
  return numbers;
}

}  // namespace

std::string SafeText(std::string_view bytes) {
  return ReplaceInvalidUtf8(bytes);
}

// What the scheduler tells of one prompt's request.
class ReplySink final : public TextSink {
 public:
  ReplySink(std::shared_ptr<Reply> reply, size_t first)
      : reply_(std::move(reply)), first_(first) {}
  void Started() override { reply_->Started(); }
  void PromptToken(const TokenEvent& token) override {
    reply_->PromptToken(first_, token);
  }
  void Token(const TokenEvent& token) override { reply_->Token(first_, token); }
  void End(const ChoiceEnd& end) override { reply_->End(first_, end); }
  void Done(const TextUsage& usage) override { reply_->Done(usage); }
  void Failed(const Error& error) override { reply_->Failed(error); }

 private:
  std::shared_ptr<Reply> reply_;
  const size_t first_;
};

Reply::Reply(ServedModel& model, TextOptions options, Response response)
    : model_(model),
      options_(std::move(options)),
      response_(std::move(response)),
      id_(RandomId()),
      created_(SecondsSinceEpoch()) {}

std::unique_ptr<TextSink> Reply::SinkFor(std::shared_ptr<Ticket> ticket,
                                         std::span<const int32_t> prompt) {
  const size_t first = choices_.size();
  choices_.resize(first + static_cast<size_t>(options_.choices));
  if (options_.echo) {
    for (size_t i = first; i < choices_.size(); ++i) Echo(choices_[i], prompt);
  }
  // The client goes away: nothing more is computed for it.
  response_.OnGone([ticket] { ticket->Cancel(); });
  tickets_.push_back(std::move(ticket));
  ++open_;
  return std::make_unique<ReplySink>(shared_from_this(), first);
}

void Reply::CancelAll() {
  for (const auto& ticket : tickets_) ticket->Cancel();
}

void Reply::Started() {
  if (!options_.stream || std::exchange(begun_, true)) return;
  response_.Begin(200, "text/event-stream",
                  {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  SendStart();
}

void Reply::SendEvent(const Json& event, const char* name) {
  std::string text;
  if (name != nullptr) text = StrCat("event: ", name, "\n");
  text += "data: ";
  text += event.dump(-1, ' ', false, Json::error_handler_t::replace);
  text += "\n\n";
  if (!response_.Write(std::move(text))) CancelAll();
}

void Reply::OnBytes(ReplyChoice& choice, std::string_view bytes) {
  choice.text += bytes;
  choice.unsent_text += bytes;
}

void Reply::OnLast(ReplyChoice&) {}

// The prompt as the beginning of a choice. Nothing comes before its first
// token, which has no probability.
void Reply::Echo(ReplyChoice& choice, std::span<const int32_t> prompt) {
  for (const int32_t token : prompt) {
    model_.loaded.tokenizer.Decode(token, choice.text);
  }
  choice.unsent_text = choice.text;
  if (!options_.top_logprobs || prompt.empty()) return;
  std::string bytes;
  model_.loaded.tokenizer.Decode(prompt.front(), bytes);
  choice.logprobs.push_back({{"token", SafeText(bytes)},
                             {"logprob", nullptr},
                             {"bytes", BytesOf(bytes)},
                             {"top_logprobs", nullptr}});
  if (options_.stream) choice.unsent_logprobs = choice.logprobs;
}

void Reply::PromptToken(size_t first, const TokenEvent& token) {
  if (over_ || !options_.top_logprobs) return;
  std::string bytes;
  model_.loaded.tokenizer.Decode(token.id, bytes);
  const Json row = LogprobOf(token, bytes);
  for (int64_t i = 0; i < options_.choices; ++i) {
    ReplyChoice& choice = choices_[first + static_cast<size_t>(i)];
    if (options_.stream) choice.unsent_logprobs.push_back(row);
    choice.logprobs.push_back(row);
  }
}

Json Reply::LogprobOf(const TokenEvent& token, std::string_view bytes) {
  const auto vocab = static_cast<size_t>(model_.loaded.tokenizer.vocab_size());
  const TokenProbs probs =
      TokenProbsOf(token.logits.first(std::min(vocab, token.logits.size())),
                   token.id, *options_.top_logprobs);
  const auto row = [&](const TokenProb& one, std::string_view text) {
    return Json{{"token", SafeText(text)},
                {"logprob", std::max(one.logprob, -9999.0f)},
                {"bytes", BytesOf(text)}};
  };
  Json all = row(probs.token, bytes);
  all["top_logprobs"] = Json::array();
  for (const TokenProb& one : probs.top) {
    std::string text;
    model_.loaded.tokenizer.Decode(one.token, text);
    all["top_logprobs"].push_back(row(one, text));
  }
  return all;
}

void Reply::Token(size_t first, const TokenEvent& token) {
  if (over_) return;
  const size_t index = first + static_cast<size_t>(token.choice);
  ReplyChoice& choice = choices_[index];
  choice.ids.push_back(token.id);
  if (options_.top_logprobs) {
    std::string bytes;
    model_.loaded.tokenizer.Decode(token.id, bytes);
    Json row = LogprobOf(token, bytes);
    if (options_.stream) choice.unsent_logprobs.push_back(row);
    choice.logprobs.push_back(std::move(row));
  }
  choice.bytes += token.text;
  const size_t held = UnfinishedUtf8Tail(choice.bytes);
  const std::string whole = choice.bytes.substr(0, choice.bytes.size() - held);
  choice.bytes.erase(0, whole.size());
  if (!whole.empty()) OnBytes(choice, whole);
  if (options_.stream && response_.unsent() < kMergeBytes) Flush(index);
}

void Reply::Flush(size_t index) {
  ReplyChoice& choice = choices_[index];
  if (choice.unsent_text.empty() && choice.unsent_thinking.empty() &&
      choice.unsent_tool_calls.empty() && choice.unsent_logprobs.empty()) {
    return;
  }
  SendDelta(index, choice);
  choice.unsent_text.clear();
  choice.unsent_thinking.clear();
  choice.unsent_tool_calls.clear();
  choice.unsent_logprobs = Json::array();
}

void Reply::End(size_t first, const ChoiceEnd& end) {
  if (over_) return;
  const size_t index = first + static_cast<size_t>(end.choice);
  ReplyChoice& choice = choices_[index];
  const std::string last = choice.bytes + end.held;
  choice.bytes.clear();
  if (!last.empty()) OnBytes(choice, last);
  OnLast(choice);
  switch (end.end) {
    case SequenceEnd::kStopToken:
    case SequenceEnd::kGrammar:
      choice.finish_reason = "stop";
      choice.stop_type = "eos";
      break;
    case SequenceEnd::kStopText:
      choice.finish_reason = "stop";
      choice.stop_type = "word";
      choice.stop_text = end.stop_text;
      break;
    case SequenceEnd::kBudget:
      choice.finish_reason = "length";
      choice.stop_type = "limit";
      break;
    case SequenceEnd::kNone:
      choice.finish_reason = "cancelled";
      choice.stop_type = "none";
      break;
  }
  if (!choice.tool_calls.empty() && choice.finish_reason == "stop") {
    choice.finish_reason = "tool_calls";
  }
  if (!options_.stream) return;
  Started();  // a text of no tokens
  Flush(index);
  SendEnd(index, choice);
}

void Reply::Done(const TextUsage& usage) {
  usage_.prompt_tokens += usage.prompt_tokens;
  usage_.cached_tokens += usage.cached_tokens;
  usage_.prompt_computed += usage.prompt_computed;
  usage_.text_tokens += usage.text_tokens;
  usage_.state_bytes += usage.state_bytes;
  for (auto time : {&TextUsage::queue_ms, &TextUsage::prompt_ms,
                    &TextUsage::first_token_ms, &TextUsage::text_ms}) {
    usage_.*time = std::max(usage_.*time, usage.*time);
  }
  if (--open_ > 0 || std::exchange(over_, true)) return;
  if (options_.stream) {
    Started();
    SendLast();
    response_.End();
    return;
  }
  response_.Send(200, "application/json",
                 Whole().dump(-1, ' ', false, Json::error_handler_t::replace));
}

void Reply::Failed(const Error& error) {
  --open_;
  CancelAll();
  if (std::exchange(over_, true)) return;
  const ErrorReply reply = ErrorOf(error);
  if (!begun_) {
    response_.Send(reply.status, "application/json", reply.body);
    return;
  }
  SendFailure(reply);
  response_.End();
}

ErrorReply Reply::ErrorOf(const Error& error) const {
  return ErrorReplyOf(error);
}

void Reply::SendFailure(const ErrorReply& error) {
  response_.Write(StrCat("data: ", error.body, "\n\ndata: [DONE]\n\n"));
}

Json Reply::UsageJson() const {
  return {{"prompt_tokens", usage_.prompt_tokens},
          {"completion_tokens", usage_.text_tokens},
          {"total_tokens", usage_.prompt_tokens + usage_.text_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage_.cached_tokens}}}};
}

Json Reply::TimingsJson() const {
  return {
      {"cache_n", usage_.cached_tokens},
      {"prompt_n", usage_.prompt_computed},
      {"prompt_ms", usage_.prompt_ms},
      {"prompt_per_token_ms",
       PerToken(usage_.prompt_computed, usage_.prompt_ms)},
      {"prompt_per_second",
       PerSecond(usage_.prompt_computed, usage_.prompt_ms)},
      {"predicted_n", usage_.text_tokens},
      {"predicted_ms", usage_.text_ms},
      {"predicted_per_token_ms", PerToken(usage_.text_tokens, usage_.text_ms)},
      {"predicted_per_second", PerSecond(usage_.text_tokens, usage_.text_ms)},
      {"queue_ms", usage_.queue_ms},
      {"ttft_ms", usage_.first_token_ms},
      {"state_bytes", usage_.state_bytes}};
}

ErrorReply ErrorReplyOf(const Error& error) {
  ErrorReply reply;
  std::string type = "invalid_request_error", code = "invalid_value";
  reply.status = 400;
  if (dynamic_cast<const NoSuchModel*>(&error) != nullptr) {
    reply.status = 404;
    code = "model_not_found";
  } else if (dynamic_cast<const NoSuchSession*>(&error) != nullptr) {
    reply.status = 404;
    code = "session_not_found";
  } else if (const auto* conflict =
                 dynamic_cast<const SessionConflict*>(&error)) {
    reply.status = 409;
    code = conflict->conflict();
  } else if (dynamic_cast<const UnsupportedParameter*>(&error) != nullptr) {
    code = "unsupported_parameter";
  } else if (dynamic_cast<const QueueFull*>(&error) != nullptr) {
    reply.status = 429;
    type = "rate_limit_error";
    code = "queue_full";
  } else if (dynamic_cast<const SessionsFull*>(&error) != nullptr) {
    reply.status = error.code() == ErrorCode::kIo ? 507 : 429;
    type = "rate_limit_error";
    code = "sessions_full";
  } else if (error.code() == ErrorCode::kInterrupted) {
    reply.status = 503;
    type = "server_error";
    code = "server_ends";
  } else if (error.code() == ErrorCode::kNumeric) {
    reply.status = 500;
    type = "server_error";
    code = "numeric_error";
  } else if (error.code() != ErrorCode::kArgument &&
             error.code() != ErrorCode::kFormat &&
             error.code() != ErrorCode::kShape) {
    reply.status = 500;
    type = "server_error";
    code = "internal_error";
  }
  Json param = nullptr;
  if (reply.status < 500 && !error.where().empty()) {
    param = SafeText(error.where());
  }
  const Json body = {{"error",
                      {{"message", SafeText(error.what())},
                       {"type", type},
                       {"param", param},
                       {"code", code}}}};
  reply.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

void SendError(Response& response, const Error& error) {
  const ErrorReply reply = ErrorReplyOf(error);
  Headers headers;
  if (reply.status == 429) headers.push_back({"Retry-After", "1"});
  response.Send(reply.status, "application/json", reply.body, headers);
}

}  // namespace tarn::serve
