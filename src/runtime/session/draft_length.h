// How many tokens to guess: as many as make the text grow fastest, by how often
// guesses were right and what reads of so many tokens took; none where none
// pays. It sees times as numbers and has no clock of its own.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/session/draft.h"

namespace tarn {

/// With a chance p that a guessed token is right, k guesses give
/// 1 + p + ... + p^k tokens in the time of one read of pending + k (Leviathan
/// et al. 2023, arXiv 2211.17192, equation 1). One thread at a time.
class DraftLength {
 public:
  /// `most`: tokens of a guess, 1 or more.
  explicit DraftLength(int64_t most);

  /// The best length for guesses of this kind after `pending` tokens (1 or
  /// more). After kSilence answers of 0 one is a short trial; after a trial in
  /// vain the next one comes later.
  int64_t Choose(int kind, int64_t pending);
  /// Of all kinds: how far it is worth guessing. Counts as Choose where that is
  /// 0, since then nothing is guessed. After kGuesses other answers it is 0
  /// once.
  int64_t Longest(int64_t pending);

  /// Of `drafted` tokens the first `confirmed` were right, and the next one, if
  /// there is one, was not.
  void Confirmed(int kind, int64_t drafted, int64_t confirmed);
  /// A read of `tokens` tokens, or guessing so many, took this long.
  void Read(int64_t tokens, double ms);
  void Guessed(int64_t tokens, double ms);

  double chance(int kind) const { return chance_[static_cast<size_t>(kind)]; }

 private:
  static constexpr int kSilence = 64, kLongestSilence = 1024;
  static constexpr int kGuesses = 12;
  static constexpr int64_t kTrial = 3;

  double Cost(int64_t tokens) const;
  int64_t Best(int kind, int64_t pending) const;
  int64_t OrTrial(int64_t best);

  int64_t most_;
  std::array<double, Draft::kKinds> chance_;
  std::vector<double> cost_;  // [tokens], ms; 0: not seen yet
  double guess_ms_ = 0;       // of one token
  int silent_ = 0;            // answers of 0 since the last guess
  int silence_ = kSilence;    // and how many before a trial
  int guesses_ = 0;           // since the last read without one
};

}  // namespace tarn
