// Examples as token ids, and the tokenizer that makes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/pairs/labels.h"
#include "data/pairs/pairs.h"
#include "text/tokenizer.h"

namespace tarn::train {

/// The tokenizer of a set of examples: bytes, or every character that occurs in
/// an input and, with targets, in a target, and then "\n" as well, which begins
/// and ends a target. Throws FormatError with file and line for text that is
/// not UTF-8 (char), ArgumentError for kinds that are read from a file
/// (--tokenizer-file).
Tokenizer BuildPairTokenizer(const TextFiles& files, const PairSplit& split,
                             TokenizerKind kind, bool targets);

/// The token that is "\n" alone. Throws FormatError when there is none.
int32_t NewlineToken(const Tokenizer& tokenizer);

/// One side of a split, encoded. 4 bytes a token and 24 an example. Immutable,
/// thread-safe; independent of the files.
class Examples {
 public:
  /// labels: for a classification, whose outputs are found there; null: outputs
  /// are targets. Every text must have 1 to max_tokens tokens, all known to the
  /// tokenizer. Throws FormatError with file and line.
  Examples(const TextFiles& files, const std::vector<Pair>& pairs,
           const Tokenizer& tokenizer, const Labels* labels,
           int64_t max_tokens);

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  std::span<const int32_t> input(int64_t i) const { return Field(2 * i); }
  /// The target without the "\n" before and after it; empty with labels.
  std::span<const int32_t> target(int64_t i) const { return Field(2 * i + 1); }
  /// -1 without labels.
  int64_t label(int64_t i) const { return labels_[i]; }
  /// Input tokens of all examples together.
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  std::span<const int32_t> Field(int64_t field) const;

  std::vector<int32_t> tokens_;  // input, target, input, target, ...
  std::vector<int64_t> starts_ = {0};
  std::vector<int64_t> labels_;
};

}  // namespace tarn::train
