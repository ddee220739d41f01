// Which tokens of a vocabulary a grammar allows next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/tokenizer.h"

namespace tarn {

/// Masks are computed when they are first needed. What does not depend on the
/// stack is kept for each node of the automaton, up to `cache_bytes`; the
/// masks of the last states are kept as a whole.
struct TokenMaskOptions {
  size_t cache_bytes = size_t{64} << 20;
  size_t states = 32;
  /// Texts of added tokens, special ones too, which are tokens as others here:
  /// those with which a grammar's texts are marked, such as "<tool_call>".
  std::vector<std::string> marks = {};
};

/// A grammar and a vocabulary. A value: copies share tables and caches.
/// Thread-safe. Some 8 MB for a vocabulary of 150,000 tokens, and the caches.
class TokenMasks {
 public:
  /// Tokens are the bytes that Tokenizer::Decode gives for each by itself.
  /// Those without any, special tokens, and added tokens that are not white
  /// space ("<think>") are never allowed, unless options.marks has them.
  /// stop_tokens: allowed exactly where the grammar is complete, whatever else
  /// they are; ArgumentError for ids outside of the vocabulary. O(vocabulary):
  /// a tenth of a second for 150,000 tokens.
  TokenMasks(Grammar grammar, const Tokenizer& tokenizer,
             std::span<const int32_t> stop_tokens,
             const TokenMaskOptions& options = {});

  /// The same vocabulary with another grammar. Shares its tables.
  TokenMasks With(Grammar grammar) const;

  int64_t vocab_size() const;
  const std::vector<std::string>& marks() const { return options_.marks; }
  /// Words of a mask: (vocab_size() + 31) / 32.
  int64_t mask_words() const { return (vocab_size() + 31) / 32; }

  /// Sets bit i % 32 of word i / 32 exactly where `state.Push` takes the bytes
  /// of token i, or token i is a stop token and the state is complete (a stop
  /// token's bytes do not count); clears the other bits. ArgumentError for a
  /// state of another grammar or a mask of another size. The first mask at a
  /// node takes a step of the automaton for each byte of the vocabulary that
  /// could follow: 0.1 ms where few tokens may, 40 ms where most of 150,000
  /// may, as in a string; later ones copy it and follow what leaves the node's
  /// rule, some microseconds.
  void Fill(const GrammarState& state, std::span<uint32_t> mask) const;

  /// Steps of the automaton that masks have taken so far.
  uint64_t steps() const;
  /// Bytes of masks that are kept.
  size_t cached_bytes() const;

 private:
  struct Vocabulary;
  class Cache;

  TokenMasks(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary,
             const TokenMaskOptions& options);

  Grammar grammar_;
  TokenMaskOptions options_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<Cache> cache_;
};

}  // namespace tarn
