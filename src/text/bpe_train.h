// Learns the merges of a byte-level BPE from text (Sennrich et al. 2016,
// algorithm 1, over the pieces of GPT-2's pattern).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "text/bpe_tokenizer.h"

namespace tarn {

struct BpeTrainOptions {
  int64_t vocab_size = 4096;  // 256 to kMaxBpeTokens; 256 are the bytes
  /// Called now and then with the number of tokens so far; false ends the
  /// training with Error(kInterrupted). Null: not called.
  std::function<bool(int64_t tokens)> progress;
};

/// Ids 0 to 255 are the bytes, then one id for each merge: always the pair of
/// neighbours that occurs most often (overlapping occurrences count), of equal
/// ones the pair of lowest ids. There are fewer ids than requested when no pair
/// occurs twice any more. A pure function of its arguments. Throws
/// ArgumentError for a size out of range or 2^32 bytes of distinct pieces.
/// Counts are kept up to date over distinct pieces: O(bytes + b log b) time for
/// b bytes of distinct pieces, some 40 bytes of memory for each of them.
BpeDefinition TrainBpe(const std::vector<std::string_view>& texts,
                       const BpeTrainOptions& options);

}  // namespace tarn
