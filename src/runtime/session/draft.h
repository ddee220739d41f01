// Guesses of the tokens that a text continues with. A session reads a guess
// together with the token before it, in one pass over the weights, and keeps as
// much of it as its own draws confirm: the text is the same with any guesses,
// only faster with good ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/session/sequence.h"

namespace tarn {

/// What a guess can look at: all tokens of a text are those that the model has
/// read and, after them, those that it will read next.
struct DraftInput {
  std::span<const int32_t> read, pending;
  const Sequence& text;
};

/// A guess, written to the caller's memory.
struct Draft {
  size_t tokens = 0;
  /// How much there is behind it, 0 to kKinds - 1: guesses of a kind are about
  /// as often right as one another.
  int kind = 0;
  static constexpr int kKinds = 3;
};

/// Belongs to one session. One thread at a time.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  /// Writes at most out.size() tokens that may follow. May throw
  /// std::bad_alloc; every other failure is an empty guess.
  virtual Draft Guess(const DraftInput& input, std::span<int32_t> out) = 0;
  /// Whether the session is to call Read.
  virtual bool reads_hidden() const { return false; }
  /// What the model made of tokens of the text, from `position` on: its rows
  /// after the final norm, hidden [tokens.size(), d_model]. The same tokens may
  /// come again.
  virtual void Read(int64_t position, std::span<const int32_t> tokens,
                    const float* hidden) noexcept {
    static_cast<void>(position), static_cast<void>(tokens);
    static_cast<void>(hidden);
  }
  /// What the last token of the latest guess was drawn from, [n_outputs]; empty
  /// where there is no such thing.
  virtual std::span<const float> logits() const { return {}; }
  /// Tokens from this position on are no longer part of the text.
  virtual void Forget(int64_t position) = 0;
  /// Another one of the same kind, for a session that continues by itself. May
  /// throw std::bad_alloc.
  virtual std::unique_ptr<DraftSource> New() const = 0;
};

}  // namespace tarn
