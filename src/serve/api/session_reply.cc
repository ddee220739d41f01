#include "serve/api/session_reply.h"

namespace tarn::serve {

Json SessionTextReply::Event(const char* object) const {
  return {{"object", object},
          {"session", held_->id},
          {"model", model_.name},
          {"position", held_->session ? held_->session->position() : 0},
          {"state_bytes", held_->session ? held_->session->state_bytes() : 0}};
}

void SessionTextReply::SendDelta(size_t, ReplyChoice& choice) {
  Json event = Event("session.text");
  event["text"] = SafeText(choice.unsent_text);
  if (!choice.unsent_thinking.empty()) {
    event["reasoning_content"] = SafeText(choice.unsent_thinking);
  }
  if (!choice.unsent_logprobs.empty()) {
    event["logprobs"] = choice.unsent_logprobs;
  }
  SendEvent(event);
}

void SessionTextReply::SendEnd(size_t, ReplyChoice& choice) {
  finish_reason_ = choice.finish_reason;
}

void SessionTextReply::SendLast() {
  Json event = Event("session.end");
  event["finish_reason"] = finish_reason_;
  event["usage"] = UsageJson();
  event["timings"] = TimingsJson();
  event["seed"] = options_.sequence.sampler.seed;
  SendEvent(event);
  response_.Write("data: [DONE]\n\n");
}

Json SessionTextReply::Whole() {
  const ReplyChoice& choice = choices_.front();
  Json whole = Event("session.completion");
  whole["text"] = SafeText(choice.text);
  if (!choice.thinking.empty()) {
    whole["reasoning_content"] = SafeText(choice.thinking);
  }
  if (!choice.tool_calls.empty()) whole["tool_calls"] = choice.tool_calls;
  if (!choice.logprobs.empty()) whole["logprobs"] = choice.logprobs;
  whole["finish_reason"] = choice.finish_reason;
  whole["tokens"] = choice.ids;
  whole["usage"] = UsageJson();
  whole["timings"] = TimingsJson();
  whole["seed"] = options_.sequence.sampler.seed;
  return whole;
}

}  // namespace tarn::serve
