// Byte-level BPE as GPT-2 and its successors use it: added tokens are found
// first, the rest is normalised, cut into pieces and merged.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/added_tokens.h"
#include "text/bpe_merger.h"
#include "text/split/patterns.h"

namespace tarn {

inline constexpr int64_t kMaxBpeTokens = int64_t{1} << 20;

/// Everything a tokenizer.json of this kind says. A value.
struct BpeDefinition {
  std::vector<std::string> tokens;  // id -> bytes, added tokens included
  std::vector<BpeMerge> merges;     // by rank
  std::vector<AddedToken> added;    // ids within `tokens`
  bool nfc = false;                 // normalise the text first
  const SplitPattern* split = &Gpt2Split();  // cut it; null: one piece
  bool ignore_merges = false;  // take a piece that is a token as it is
  bool operator==(const BpeDefinition&) const = default;
};

/// Immutable after construction; thread-safe.
class BpeTokenizer {
 public:
  /// Throws FormatError that names the place in tokenizer.json: no token or
  /// more than kMaxBpeTokens, an empty or repeated one, a merge of or into a
  /// token that is not ordinary, a repeated pair, added tokens that disagree
  /// with the table. O(total bytes * log).
  explicit BpeTokenizer(BpeDefinition definition);

  const BpeDefinition& definition() const { return definition_; }
  const std::string& Bytes(int32_t id) const {
    return definition_.tokens[static_cast<size_t>(id)];
  }

  /// Yields special tokens where `scope` allows them. FormatError with the
  /// offset (in the normalised text, where normalising changed it) of a byte
  /// that has no token: vocabularies made from text alone lack bytes that UTF-8
  /// never uses. O(bytes log piece) time.
  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      const SpecialScope& scope,
                                      uint64_t offset) const;

 private:
  struct Work;  // of one call
  void IndexTokens();
  bool EncodeNormalised(std::string_view text, uint64_t offset,
                        const SpecialScope& scope, Work& work) const;
  bool EncodePieces(std::string_view text, uint64_t offset, Work& work) const;
  bool EncodePiece(std::string_view piece, uint64_t offset, Work& work) const;
  // Id of an ordinary token, or -1.
  int32_t Find(std::string_view bytes) const;

  BpeDefinition definition_;
  BpeMerger merger_;
  AddedTokens raw_, normalised_;         // matched before and after normalising
  std::vector<int32_t> by_bytes_;        // ordinary tokens, sorted by bytes
  std::array<int32_t, 256> byte_ids_{};  // byte -> id, or -1
};

}  // namespace tarn
