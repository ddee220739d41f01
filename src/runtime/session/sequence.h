// What becomes a text, apart from the model and its state: the tokens that wait
// to be consumed, the draws, and where the text ends. It runs no model: its
// caller does, which is the loop of generate.h or a scheduler of many
// sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/sampling/sampler.h"
#include "runtime/session/constraint.h"
#include "runtime/session/stop_texts.h"
#include "text/tokenizer.h"

namespace tarn {

struct SequenceOptions {
  SamplerOptions sampler;
  /// Tokens that end the text without being part of it.
  std::vector<int32_t> stop_tokens = {};
  /// Texts that end it; text() gives neither them nor what follows them.
  std::vector<std::string> stop_texts = {};
  /// The drawn text is one by itself, such as an answer: a space that the
  /// tokenizer puts before texts is taken away.
  bool begins_text = false;
  /// The grammar of the text; null: any text.
  std::shared_ptr<const Constraint> constraint = nullptr;
};

enum class SequenceEnd {
  kNone,    // it can continue
  kBudget,  // as many tokens as it may have
  kStopToken,
  kStopText,
  kGrammar  // a whole text of the grammar, after which nothing may follow
};

/// The life of a sequence: Begin; then, until ended(), the driver feeds
/// pending() to the model, calls Consumed, and with nothing pending calls Draw
/// with the logits of the last token. A drawn token is pending, too, except a
/// stop token, which is never consumed; the token that completes a stop text
/// is. Refers to the tokenizer. One thread at a time.
class Sequence {
 public:
  /// Throws ArgumentError for options out of range.
  Sequence(const Tokenizer& tokenizer, SequenceOptions options);

  /// Begins with a prompt, after which at most `max_tokens` tokens (0 or more)
  /// are drawn. A sequence that has ended may begin again and so continue.
  void Begin(std::span<const int32_t> prompt, int64_t max_tokens);

  /// Tokens that the model must consume next, in order.
  std::span<const int32_t> pending() const {
    return std::span<const int32_t>(pending_).subspan(consumed_);
  }
  /// Takes the first `count` of them away.
  void Consumed(size_t count);
  /// Puts tokens before them again, which a model that has consumed them no
  /// longer holds.
  void Unconsumed(std::span<const int32_t> tokens);
  /// Makes room for so many tokens there, so that Unconsumed allocates nothing.
  void Reserve(size_t tokens) { pending_.reserve(tokens); }

  /// Draws a token at a position of the state, the counter of the generator,
  /// from logits [n_outputs]. Rows beyond the tokenizer's table stand for no
  /// text and are never drawn. history: the tokens so far, which penalties look
  /// at. With a constraint only what its grammar allows is drawn; where nothing
  /// may follow and there is no stop token, the text ends and -1 is returned.
  /// Throws NumericError for NaN and for logits that allow nothing with nothing
  /// changed, ArgumentError when tokens are pending or the text has ended.
  int32_t Draw(std::span<const float> logits, uint64_t position,
               std::span<const int32_t> history = {});
  /// The token that a draw from other logits at this position would give, as
  /// far as sampling goes: no grammar, and nothing changes. Errors as Draw.
  int32_t Guess(std::span<const float> logits, uint64_t position,
                std::span<const int32_t> history) const;
  /// Takes a token as if Draw had drawn it. Throws ArgumentError as Draw does,
  /// outside the tokenizer's table, and for one that the grammar does not
  /// allow.
  void Accept(int32_t token);
  /// Begins the same text again, with no prompt pending.
  void Restart();

  /// What goes from draw to draw; Begin keeps it. A text that continues with
  /// another Sequence takes it along.
  const SamplerState& sampler_state() const { return sampler_state_; }
  void SetSamplerState(const SamplerState& state) { sampler_state_ = state; }

  /// The bytes that the last Draw settled: those of its token, without what may
  /// be part of a stop text, after what earlier draws held back. They need not
  /// be whole characters. Valid until the next call.
  std::string_view text() const { return text_; }
  /// Bytes still held back, for a text that ends from outside; it then holds
  /// none.
  std::string TakeHeld() { return stops_.Take(); }

  bool ended() const { return end_ != SequenceEnd::kNone; }
  SequenceEnd end() const { return end_; }
  /// After kStopText: which one.
  const std::string& stop_text() const { return stops_.found(); }
  int64_t tokens() const { return tokens_; }  // drawn, without a stop token
  int64_t max_tokens() const { return max_tokens_; }
  const SequenceOptions& options() const { return options_; }
  /// Further draws use this stream of random numbers.
  void SetStream(uint64_t stream);

 private:
  void CheckWaits(const char* call) const;
  std::optional<std::span<const uint32_t>> Allowed();
  std::span<const float> Known(std::span<const float> logits) const;

  const Tokenizer* tokenizer_;
  SequenceOptions options_;  // stop tokens sorted
  Sampler sampler_;
  SamplerState sampler_state_;
  std::optional<GrammarState> grammar_;  // with a constraint
  std::vector<uint32_t> mask_;           // of the next token
  StopTexts stops_;
  DecodeProgress progress_;
  std::vector<int32_t> pending_;  // consumed from the front
  size_t consumed_ = 0;
  int64_t max_tokens_ = 0, tokens_ = 0;
  SequenceEnd end_ = SequenceEnd::kBudget;  // until Begin
  std::string bytes_, text_;                // of the last draw
};

}  // namespace tarn
