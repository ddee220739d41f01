// What a client wants written, and what it is told while that is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "runtime/generate/embed.h"
#include "runtime/session/session.h"

namespace tarn::serve {

/// Figures of one request, counted where the work is done.
struct TextUsage {
  int64_t prompt_tokens = 0;  // of the whole prompt
  int64_t cached_tokens = 0;  // of them, that were not computed
  int64_t prompt_computed = 0;
  int64_t text_tokens = 0;  // of all choices
  double queue_ms = 0, prompt_ms = 0, first_token_ms = 0, text_ms = 0;
  int64_t state_bytes = 0;
};

/// A token that was drawn. `text`: the bytes that it settled
/// (Sequence::text), valid during the call; they need not be whole characters.
struct TokenEvent {
  int64_t choice = 0;
  int32_t id = 0;
  std::string_view text;
  std::span<const float> logits;  // that it was drawn from
};

/// The end of one choice.
struct ChoiceEnd {
  int64_t choice = 0;
  SequenceEnd end = SequenceEnd::kNone;
  bool cancelled = false;
  std::string held;       // bytes that the text held back
  std::string stop_text;  // of kStopText
};

/// Called on the scheduler's thread, in the order of things; must return at
/// once. After Done or Failed nothing is called any more.
class TextSink {
 public:
  virtual ~TextSink() = default;
  /// It has left the queue; from now on it computes.
  virtual void Started() {}
  /// Of a request for vectors, before Done; not where it was cancelled.
  /// [inputs, d_model]
  virtual void Vectors(const std::vector<float>&) {}
  /// Of a request with `score_prompt`, each token of the prompt but the first,
  /// before the first Token. `text` is empty.
  virtual void PromptToken(const TokenEvent&) {}
  virtual void Token(const TokenEvent& token) = 0;
  virtual void End(const ChoiceEnd& end) = 0;
  virtual void Done(const TextUsage& usage) = 0;
  virtual void Failed(const Error& error) = 0;
};

/// A session that clients hold by a name: at rest in its place, or in use by
/// one request. The scheduler's thread alone touches it.
struct HeldSession {
  std::string id;
  std::string space;               // whose it is
  std::optional<Session> session;  // none: parked
  bool busy = false;
  int64_t created = 0, used_at = 0;  // seconds of the system's clock
  uint64_t used = 0;                 // of a counter
  std::string parent;                // it was forked from
  int64_t forked_at = 0;             // position of the fork
};

/// A request's handle. Thread-safe.
class Ticket {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

struct TextRequest {
  std::vector<int32_t> prompt;
  /// Not a text but the vectors of these (Embedder), which are read as one
  /// batch, in slices as prompts are; then there is no prompt.
  std::vector<std::vector<int32_t>> inputs;
  Pooling pooling = Pooling::kMean;
  SequenceOptions options;
  int64_t max_tokens = 0;
  int64_t choices = 1;  // each draws from its own stream; 1 with a session
  std::string space;    // what is cached of it is found in this space alone
  bool cache_prompt = true;
  /// Tells the prompt's tokens with the logits before each, so that all of it
  /// is computed; not with a session.
  bool score_prompt = false;
  /// Continues this one instead of a new session; it must rest.
  std::shared_ptr<HeldSession> session;
  /// What becomes of the session when the client goes away: it stays at the
  /// last token that was told, or goes back to where it began.
  bool roll_back_when_cancelled = false;
  std::unique_ptr<TextSink> sink;
  std::shared_ptr<Ticket> ticket = std::make_shared<Ticket>();
};

}  // namespace tarn::serve
