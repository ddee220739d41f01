// SentencePiece's byte-pair encoding as GGUF files hold it: without merges, but
// with a score of each token. Of all neighbours that make a token together,
// those of the best one are joined first.
#pragma once

#include <array>
#include <string>

#include "text/bpe_merger.h"
#include "text/pipeline/piece_model.h"
#include "text/pipeline/text_index.h"

namespace tarn {

/// O(m log m) for a piece of m characters, each step a search for a text that
/// is at most as long as the longest token.
class ScorePieces final : public PieceModel {
 public:
  /// tokens: id -> text, which must live as long as this; an empty one is found
  /// in no text. scores: of all ids. byte_tokens: ids by which characters are
  /// written that have no token, -1 where there is none; unknown: the id for
  /// those that cannot be written by bytes, or -1.
  ScorePieces(const std::vector<std::string>& tokens,
              const std::vector<double>& scores, int32_t unknown,
              std::array<int32_t, 256> byte_tokens);

  size_t Encode(std::string_view piece,
                std::vector<int32_t>& ids) const override;

 private:
  bool AppendBytes(std::string_view text, std::vector<int32_t>& ids) const;

  TextIndex index_;
  size_t longest_ = 0;
  const std::vector<double> scores_;
  const int32_t unknown_;
  const std::array<int32_t, 256> byte_tokens_;
};

/// Merges that do so in a tokenizer.json: each pair of tokens that makes a
/// token, by the score of what they make, of equal ones by its id and then by
/// those of the pair, as transformers makes them of SentencePiece's models. A
/// merge goes by rank where a joint goes from left to right: among tokens of
/// one score, and where two pairs that overlap make one token, ids may differ.
/// O(total bytes * search).
std::vector<BpeMerge> MergesOfScores(const std::vector<std::string>& tokens,
                                     const std::vector<double>& scores);

}  // namespace tarn
