#include "runtime/generate/generate_session.h"

#include <algorithm>
#include <chrono>

#include "runtime/generate/target.h"
#include "runtime/model/elapsed.h"

namespace tarn {
namespace {

using SessionClock = std::chrono::steady_clock;

// Reads what is pending; false where `stop` ended it.
bool ConsumeAll(Session& session, const StopCheck& stop) {
  try {
    session.Consume(stop);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    return false;
  }
  return !stop || !stop();
}

void BeginText(Session& session, std::span<const int32_t> prompt,
               const GenerateOptions& options) {
  const Model& model = session.model().model;
  const int32_t start = NewlineToken(session.model().tokenizer).value_or(0);
  const auto waiting = static_cast<int64_t>(session.pending().size());
  if (prompt.empty() && session.position() + waiting == 0) prompt = {&start, 1};
  const int64_t room = model.max_tokens() - session.position() - waiting -
                       static_cast<int64_t>(prompt.size());
  const int64_t most = options.max_tokens == kAutoTokens
                           ? std::clamp<int64_t>(room, 0, kDefaultTokens)
                           : options.max_tokens;
  session.Begin(prompt,
                {options.sampler, options.stop_tokens, options.stop_texts,
                 options.begins_text, options.constraint},
                most);
}

}  // namespace

GenerateResult GenerateWith(Session& session, std::span<const int32_t> prompt,
                            const GenerateOptions& options,
                            const TokenSink& sink, const StopCheck& stop) {
  BeginText(session, prompt, options);
  const Sequence& text = *session.text();
  GenerateResult result;
  const SessionClock::time_point begin = SessionClock::now();
  result.stopped = !ConsumeAll(session, stop);
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  result.prefill_ms = MillisecondsSince(begin);
  GeneratedToken token;
  while (!result.stopped && !text.ended()) {
    const SessionClock::time_point token_begin = SessionClock::now();
    token.id = session.Draw();
    if (result.tokens == 0) result.first_token_ms = MillisecondsSince(begin);
    if (token.id < 0 || text.end() == SequenceEnd::kStopToken) {
      result.held = text.text();
      break;
    }
    token.text = text.text();
    session.Consume();
    token.ms = MillisecondsSince(token_begin);
    result.decode_ms += token.ms;
    ++result.tokens;
    if (sink && !sink(token)) break;
    result.stopped = stop && stop();
  }
  result.end = text.end();
  result.held += session.TakeHeld();
  return result;
}

}  // namespace tarn
