// Text from a model, token by token: the one loop of `tarn generate`, the C
// interface and Python. It feeds a Sequence (session/sequence.h), which draws
// and knows where the text ends; beam search is in beam.h, images in pixels.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/model.h"
#include "runtime/session/sequence.h"
#include "text/tokenizer.h"

namespace tarn {

/// GenerateOptions::max_tokens: 256, or as many as a model with learned
/// positions has room for after the prompt.
constexpr int64_t kAutoTokens = INT64_MIN;
constexpr int64_t kDefaultTokens = 256;

struct GenerateOptions {
  SamplerOptions sampler = {};
  int64_t max_tokens = kAutoTokens;       // to generate, >= 0 or kAutoTokens
  std::vector<int32_t> stop_tokens = {};  // as in SequenceOptions
  std::vector<std::string> stop_texts = {};
  bool begins_text = false;  // as in SequenceOptions
  std::shared_ptr<const Constraint> constraint = nullptr;  // the same
  /// Tokens that the state has consumed before the prompt, oldest first:
  /// penalties of the sampler look at them. Those that are left out count for
  /// nothing.
  std::vector<int32_t> history = {};
  /// Where another run of the same text has ended (Generation::sampler_state);
  /// nothing: the start.
  std::optional<SamplerState> sampler_state = std::nullopt;
};

/// A text as it grows, for callers that ask for the next token. A draw is a
/// function of the logits, the sampler's options and state, the tokens so far
/// and the state's position, and every token is consumed before the next is
/// drawn: a caller that stops at any token and continues later from the state,
/// with history and sampler_state where the options read them, gets the same
/// text as in one run.
/// Holds references to its arguments. One thread at a time.
class Generation {
 public:
  /// Continues from `state`. Throws ArgumentError for options out of range and
  /// for a model that writes no text.
  Generation(const Model& model, const Tokenizer& tokenizer, State& state,
             const GenerateOptions& options);

  /// Consumes the prompt, in blocks so that a long one can be stopped; any
  /// split gives the same bits. An empty prompt stands for a newline at
  /// position 0, or for token 0 where the tokenizer has none; at later
  /// positions it consumes nothing, and the state must have its last logits.
  /// Called once, before Next(). Returns false when `stop` ended it, with the
  /// state after the last whole block of 1,024 tokens. Throws
  /// ArgumentError for a token outside the vocabulary, and where prompt and
  /// max_tokens need more positions than the model has (Model::max_tokens),
  /// with the state unchanged.
  bool Prompt(std::span<const int32_t> tokens, const StopCheck& stop = {});

  /// Draws a token and consumes it; returns nothing where the text ends: after
  /// max_tokens, after a stop text, and at a stop token, which is not consumed.
  /// Throws NumericError when the model gives NaN, with the state unchanged.
  std::optional<int32_t> Next();

  /// The two halves of Next(), for callers that time them.
  bool done() const { return sequence_.ended(); }
  std::optional<int32_t> Draw();  // nothing: a stop token
  void Consume();

  /// What the last Draw settled (Sequence::text): with a stop token, too.
  std::string_view text() const { return sequence_.text(); }
  /// What is still held back of a text that its caller ends.
  std::string TakeHeld() { return sequence_.TakeHeld(); }
  SequenceEnd end() const { return sequence_.end(); }
  int64_t tokens() const { return sequence_.tokens(); }  // generated so far
  const SamplerState& sampler_state() const {
    return sequence_.sampler_state();
  }

 private:
  int64_t Budget(int64_t prompt) const;
  void Remember(std::span<const int32_t> tokens);

  const Model& model_;
  const Tokenizer& tokenizer_;
  State& state_;
  const int64_t max_tokens_;
  Sequence sequence_;
  const int64_t history_need_;    // tokens; -1: all
  std::vector<int32_t> history_;  // the last so many tokens, or some more
  std::vector<float> logits_;     // [n_outputs], of the last token
};

/// A token that was drawn and consumed.
struct GeneratedToken {
  int32_t id = 0;
  std::string_view text;  // its bytes, valid during the call; they need not be
                          // whole characters. With stop texts: the bytes that
                          // it settles (Sequence::text)
  double ms = 0;          // the draw and the step
};

/// Called with every token; false ends the run.
using TokenSink = std::function<bool(const GeneratedToken& token)>;

struct GenerateResult {
  int64_t prompt_tokens = 0;  // consumed; an empty prompt counts as 0
  int64_t tokens = 0;         // generated
  bool stopped = false;       // by `stop`; not by the sink or an end
  SequenceEnd end = SequenceEnd::kNone;  // none where the caller ended it
  // Bytes of consumed tokens that the sink did not get, because a stop text may
  // begin in them, or because a stop token followed.
  std::string held;
  double prefill_ms = 0;
  double first_token_ms = 0;  // from the start of prefill to the first draw
  double decode_ms = 0;       // draws and steps, without the time in the sink
  SamplerState sampler_state = {};  // after the last draw
};

/// Consumes the prompt and runs a Generation to its end. Every token passed to
/// the sink has been consumed, so that at the end the state holds the whole
/// text. Thread-safe where every thread has its own state. `stop` is asked
/// during the prompt and between steps; true ends the run.
GenerateResult Generate(const Model& model, const Tokenizer& tokenizer,
                        State& state, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const TokenSink& sink,
                        const StopCheck& stop = {});

}  // namespace tarn
