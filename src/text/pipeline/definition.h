// A tokenizer.json as values: everything that decides ids and texts.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/pipeline/bpe_pieces.h"
#include "text/pipeline/decoder.h"
#include "text/pipeline/normalizer.h"
#include "text/pipeline/pre_tokenizer.h"

namespace tarn {

enum class PieceModelKind : uint8_t {
  kBpe,
  kUnigram,
  kScores,  // BPE by scores in place of merges (score_pieces.h)
};

struct PipelineDefinition {
  /// Id -> token as the file writes it; empty: an id that no token has.
  std::vector<std::string> tokens;
  std::vector<AddedToken> added;  // ids within `tokens`

  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizers;
  std::vector<DecoderStep> decoders;
  /// Ids before and after a text, where the caller wants them.
  std::vector<int32_t> before, after;

  PieceModelKind model = PieceModelKind::kBpe;
  BpeRules bpe;  // kUnigram, kScores: `unknown` and `byte_fallback` only
  std::vector<BpeMerge> merges;  // kBpe, by rank
  std::vector<double> scores;  // kUnigram: of the model's ids; kScores: of all

  /// The file's parts in JSON, to write them again: normalizer, pre_tokenizer,
  /// post_processor, decoder, and the model without vocabulary and merges.
  std::array<std::string, 5> parts;
};

}  // namespace tarn
