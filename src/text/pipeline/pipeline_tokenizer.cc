#include "text/pipeline/pipeline_tokenizer.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "core/text.h"
#include "text/bpe_checks.h"
#include "text/byte_alphabet.h"
#include "text/pipeline/score_pieces.h"
#include "text/pipeline/unigram.h"

namespace tarn {
namespace {

[[noreturn]] void RefusePart(const std::string& place,
                             const std::string& wanted,
                             const std::string& given) {
  throw FormatError("tokenizer.json: " + place, wanted, given);
}

}  // namespace

struct PipelineTokenizer::Work {
  const EncodeOptions& options;
  uint64_t offset = 0;  // of the part in its source
  std::vector<int32_t> ids;
  std::optional<Error> error;
};

PipelineTokenizer::PipelineTokenizer(PipelineDefinition definition)
    : definition_(std::move(definition)) {
  const size_t count = definition_.tokens.size();
  if (count == 0) RefusePart("model.vocab", "at least one token", "none");
  CheckAddedTokens(definition_.added, definition_.tokens);
  CheckMerges(definition_.merges, definition_.tokens, Reserved());
  special_.resize(count);
  for (const AddedToken& token : definition_.added) {
    special_[static_cast<size_t>(token.id)] = token.special;
  }
  piece_texts_ = PieceTexts();
  MakeModel();
  raw_ = Group(false);
  normalised_ = Group(true);
  for (const AddedToken& token : definition_.added) {
    if (!token.normalized) continue;
    std::string text = Normalize(definition_.normalizers, token.content);
    if (text != token.content) renamed_.push_back({token.id, std::move(text)});
  }
  std::sort(renamed_.begin(), renamed_.end());
}

const std::string& PipelineTokenizer::TextOf(int32_t id) const {
  const auto found = std::lower_bound(
      renamed_.begin(), renamed_.end(), id,
      [](const auto& entry, int32_t wanted) { return entry.first < wanted; });
  return found != renamed_.end() && found->first == id
             ? found->second
             : definition_.tokens[static_cast<size_t>(id)];
}

// Ids that no text may yield but by being an added token.
std::vector<bool> PipelineTokenizer::Reserved() const {
  std::vector<bool> reserved(definition_.tokens.size());
  for (const AddedToken& token : definition_.added) {
    if (token.special || !token.in_vocabulary) {
      reserved[static_cast<size_t>(token.id)] = true;
    }
  }
  return reserved;
}

// Reserved ids and ids without a token are found in no piece.
std::vector<std::string> PipelineTokenizer::PieceTexts() const {
  std::vector<std::string> texts = definition_.tokens;
  const std::vector<bool> reserved = Reserved();
  std::vector<bool> added(texts.size());
  for (const AddedToken& token : definition_.added) {
    added[static_cast<size_t>(token.id)] = true;
  }
  for (size_t id = 0; id < texts.size(); ++id) {
    if (reserved[id]) texts[id].clear();
    if (!definition_.bpe.bytes) continue;
    auto bytes = AlphabetToBytes(texts[id]);
    // A few published files list some that no text yields, as here.
    if (!bytes && !added[id]) texts[id].clear();
    if (bytes) texts[id] = *std::move(bytes);
  }
  return texts;
}

std::array<int32_t, 256> PipelineTokenizer::ByteTokens() const {
  std::array<int32_t, 256> tokens;
  tokens.fill(-1);
  if (!definition_.bpe.bytes && !definition_.bpe.byte_fallback) return tokens;
  for (size_t id = 0; id < definition_.tokens.size(); ++id) {
    const std::string& text =
        definition_.bpe.bytes ? piece_texts_[id] : definition_.tokens[id];
    int byte = -1;
    if (!definition_.bpe.bytes) {
      byte = ByteOfToken(text);
      // The package looks for capitals only.
      if (byte >= 0 && (text[3] >= 'a' || text[4] >= 'a')) byte = -1;
    } else if (text.size() == 1) {
      byte = static_cast<uint8_t>(text[0]);
    }
    if (byte >= 0) {
      tokens[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
    }
  }
  return tokens;
}

void PipelineTokenizer::MakeModel() {
  const int32_t unknown = definition_.bpe.unknown;
  switch (definition_.model) {
    case PieceModelKind::kBpe:
      model_ = std::make_unique<BpePieces>(piece_texts_, definition_.merges,
                                           definition_.bpe, ByteTokens());
      break;
    case PieceModelKind::kUnigram:
      model_ = std::make_unique<Unigram>(piece_texts_, definition_.scores,
                                         unknown, ByteTokens());
      break;
    case PieceModelKind::kScores:
      model_ = std::make_unique<ScorePieces>(piece_texts_, definition_.scores,
                                             unknown, ByteTokens());
      break;
  }
}

AddedTokens PipelineTokenizer::Group(bool normalised) const {
  std::vector<AddedToken> group;
  for (AddedToken token : definition_.added) {
    if (token.normalized != normalised) continue;
    if (normalised) {
      token.content = Normalize(definition_.normalizers, token.content);
    }
    if (!token.content.empty()) group.push_back(std::move(token));
  }
  return AddedTokens(FirstOfEachContent(std::move(group)));
}

Result<std::vector<int32_t>> PipelineTokenizer::Encode(
    std::string_view text, const EncodeOptions& options) const {
  Work work{options, options.offset, {}, {}};
  if (options.add_special) work.ids = definition_.before;
  const SpecialScope scope{options.allow_special, options.data};
  raw_.VisitParts(text, scope, [&](int32_t id, std::string_view part) {
    if (id >= 0) {
      work.ids.push_back(id);
      return true;
    }
    const auto at = static_cast<size_t>(part.data() - text.data());
    work.offset = options.offset + at;
    const bool changes = !definition_.normalizers.empty();
    const std::string changed =
        changes ? Normalize(definition_.normalizers, part) : std::string();
    const std::string_view normalised = changes ? changed : part;
    std::vector<ByteRange> data;
    if (normalised_.has_special() && !options.data.empty()) {
      data = DataOf(part, RangesWithin(options.data, at, at + part.size()),
                    normalised);
    }
    return EncodePart(normalised, at == 0, data, work);
  });
  if (work.error) return *work.error;
  if (options.add_special) {
    work.ids.insert(work.ids.end(), definition_.after.begin(),
                    definition_.after.end());
  }
  return std::move(work.ids);
}

std::vector<ByteRange> PipelineTokenizer::DataOf(
    std::string_view part, std::span<const ByteRange> data,
    std::string_view normalised) const {
  // What comes before a text comes before its first piece alone.
  std::vector<NormalizerStep> later = definition_.normalizers;
  std::erase_if(later, [](const NormalizerStep& step) {
    return step.kind == NormalizerStep::Kind::kPrepend;
  });
  return RangesAfter(
      part, data, normalised, [&](std::string_view piece, bool first) {
        return Normalize(first ? definition_.normalizers : later, piece);
      });
}

bool PipelineTokenizer::EncodePart(std::string_view text, bool first,
                                   std::span<const ByteRange> data,
                                   Work& work) const {
  const auto encode_piece = [&](std::string_view piece) {
    const size_t bad = model_->Encode(piece, work.ids);
    if (bad == PieceModel::kDone) return true;
    // A piece is part of `text` unless a step rewrote it.
    const std::less<> before_in_memory;
    const bool inside =
        !before_in_memory(piece.data(), text.data()) &&
        before_in_memory(piece.data(), text.data() + text.size());
    const auto before =
        inside ? static_cast<uint64_t>(piece.data() - text.data()) + bad : 0;
    work.error = FormatError(
        StrCat("text: byte ", work.offset + before),
        "characters the tokenizer has a token for",
        StrCat("byte ", static_cast<int>(static_cast<uint8_t>(piece[bad]))));
    return false;
  };
  return normalised_.VisitParts(
      text, {work.options.allow_special, data},
      [&](int32_t id, std::string_view part) {
        if (id >= 0) {
          work.ids.push_back(id);
          return true;
        }
        return VisitPieces(definition_.pre_tokenizers, part,
                           first && part.data() == text.data(), encode_piece);
      });
}

void PipelineTokenizer::Decode(int32_t id, std::string& out) const {
  DecodeToken(definition_.decoders, TextOf(id), out);
}

void PipelineTokenizer::Decode(int32_t id, DecodeProgress& progress,
                               std::string& out) const {
  // As in Decode of all: an id without a token is no part of the text.
  if (definition_.tokens[static_cast<size_t>(id)].empty()) return;
  DecodeToken(definition_.decoders, TextOf(id), progress, out);
}

std::string PipelineTokenizer::Decode(std::span<const int32_t> ids,
                                      DecodedBytes bytes,
                                      bool skip_special) const {
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (const int32_t id : ids) {
    const auto at = static_cast<size_t>(id);
    // The package has no text for an id without a token.
    if (definition_.tokens[at].empty() || (skip_special && special_[at])) {
      continue;
    }
    texts.push_back(TextOf(id));
  }
  return DecodeTokens(definition_.decoders, std::move(texts), bytes);
}

int32_t PipelineTokenizer::AddedId(std::string_view content) const {
  for (const AddedToken& token : definition_.added) {
    if (token.content == content) return token.id;
  }
  return -1;
}

}  // namespace tarn
