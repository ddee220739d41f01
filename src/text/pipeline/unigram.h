// Unigram language model (Kudo 2018, "Subword Regularization", section 3.2): of
// all ways to write a piece by tokens, the one with the highest sum of scores.
#pragma once

#include <array>
#include <string>

#include "text/byte_trie.h"
#include "text/pipeline/piece_model.h"

namespace tarn {

/// Longest token in bytes: what bounds the time of a piece.
inline constexpr size_t kMaxUnigramBytes = 1024;

/// O(bytes * longest token) time, O(bytes) memory.
class Unigram final : public PieceModel {
 public:
  /// tokens: id -> text; those with an empty text are found in no text. scores:
  /// of all ids of the model, those included. unknown: id for characters that
  /// no token has, whose score is the lowest of all less 10, or -1.
  /// byte_tokens: tokens that an unknown piece is written with, where there is
  /// one (not -1) for each of its bytes.
  Unigram(const std::vector<std::string>& tokens,
          const std::vector<double>& scores, int32_t unknown,
          std::array<int32_t, 256> byte_tokens);

  size_t Encode(std::string_view piece,
                std::vector<int32_t>& ids) const override;

 private:
  void Append(std::string_view text, std::vector<int32_t>& ids) const;

  ByteTrie trie_;
  const std::vector<double> scores_;
  const int32_t unknown_;
  const std::array<int32_t, 256> byte_tokens_;
  double unknown_score_ = 0;
};

}  // namespace tarn
