// A tokenizer.json of any supported form at work: added tokens are found first,
// the rest is normalised, cut into pieces, and each piece becomes tokens.
#pragma once

#include <span>
#include <utility>

#include "core/error.h"
#include "text/pipeline/definition.h"
#include "text/pipeline/piece_model.h"
#include "text/tokenizer.h"

namespace tarn {

/// Immutable after construction; thread-safe. Not movable: it has
/// views into its tables.
class PipelineTokenizer {
 public:
  /// Throws FormatError that names the place in tokenizer.json. O(total bytes *
  /// log) time.
  explicit PipelineTokenizer(PipelineDefinition definition);
  PipelineTokenizer(const PipelineTokenizer&) = delete;
  PipelineTokenizer& operator=(const PipelineTokenizer&) = delete;

  const PipelineDefinition& definition() const { return definition_; }
  /// As Tokenizer::Encode. The offset in an error is that of the part between
  /// added tokens where normalising or cutting changed the text.
  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      const EncodeOptions& options) const;
  /// id: in range.
  void Decode(int32_t id, std::string& out) const;
  void Decode(int32_t id, DecodeProgress& progress, std::string& out) const;
  std::string Decode(std::span<const int32_t> ids, DecodedBytes bytes,
                     bool skip_special) const;
  /// Id of the added token with this content, or -1.
  int32_t AddedId(std::string_view content) const;

 private:
  struct Work;  // of one call
  bool EncodePart(std::string_view part, bool first,
                  std::span<const ByteRange> data, Work& work) const;
  std::vector<ByteRange> DataOf(std::string_view part,
                                std::span<const ByteRange> data,
                                std::string_view normalised) const;
  AddedTokens Group(bool normalised) const;
  const std::string& TextOf(int32_t id) const;
  std::vector<bool> Reserved() const;
  std::vector<std::string> PieceTexts() const;
  std::array<int32_t, 256> ByteTokens() const;
  void MakeModel();

  const PipelineDefinition definition_;
  AddedTokens raw_, normalised_;  // matched before and after normalising
  std::vector<bool> special_;     // of each id
  // Added tokens whose content normalising changed, by id: they decode to what
  // was found, as the package's do.
  std::vector<std::pair<int32_t, std::string>> renamed_;
  std::vector<std::string>
      piece_texts_;  // id -> what the model finds in pieces
  PieceModelPointer model_;
};

}  // namespace tarn
