// Byte-pair encoding of one piece: over bytes, or over characters with what is
// unknown as bytes (SentencePiece's way) or as one token.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "text/bpe_merger.h"
#include "text/pipeline/piece_model.h"
#include "text/pipeline/text_index.h"

namespace tarn {

struct BpeRules {
  bool bytes = false;  // symbols are bytes and not characters
  bool ignore_merges = false;
  bool byte_fallback = false;
  bool fuse_unknown = false;  // neighbours that are unknown share one token
  int32_t unknown = -1;       // its id, or -1
  bool operator==(const BpeRules&) const = default;
};

/// O(m log m) for a piece of m symbols, and a search for each character.
class BpePieces final : public PieceModel {
 public:
  /// tokens: id -> bytes of a piece; an empty one is found in no text. The
  /// texts must live as long as this. merges: as BpeMerger wants them.
  /// byte_tokens: id of each byte's token, for `bytes` and `byte_fallback`; -1:
  /// it has none.
  BpePieces(const std::vector<std::string>& tokens,
            std::vector<BpeMerge> merges, BpeRules rules,
            std::array<int32_t, 256> byte_tokens);

  size_t Encode(std::string_view piece,
                std::vector<int32_t>& ids) const override;
  const std::vector<BpeMerge>& merges() const { return merger_.merges(); }

 private:
  bool HasBytes(std::string_view character) const;
  size_t Symbols(std::string_view piece, std::vector<int32_t>& symbols) const;

  const BpeRules rules_;
  const BpeMerger merger_;
  const std::array<int32_t, 256> byte_tokens_;
  TextIndex by_text_;  // empty where only bytes are looked for
  std::array<int32_t, 128> ascii_{};
};

}  // namespace tarn
