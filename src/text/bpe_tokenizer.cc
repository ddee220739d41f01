#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <optional>

#include "core/text.h"
#include "text/bpe_checks.h"
#include "text/unicode/nfc.h"

namespace tarn {
namespace {

[[noreturn]] void RefuseAdded(const std::string& place,
                              const std::string& wanted,
                              const std::string& given) {
  throw FormatError("tokenizer.json: " + place, wanted, given);
}

void CheckTokens(const BpeDefinition& definition) {
  const size_t count = definition.tokens.size();
  if (count == 0 || count > kMaxBpeTokens) {
    RefuseAdded("model.vocab", StrCat("1 to ", kMaxBpeTokens, " tokens"),
                StrCat(count));
  }
  for (size_t id = 0; id < count; ++id) {
    if (definition.tokens[id].empty()) {
      RefuseAdded("model.vocab", "tokens of at least one byte",
                  StrCat("an empty one, id ", id));
    }
  }
}

// Ids that merges must not touch: special tokens, which no text may yield, and
// those that are not part of the vocabulary.
std::vector<bool> ReservedIds(const BpeDefinition& definition) {
  std::vector<bool> reserved(definition.tokens.size());
  for (const AddedToken& token : definition.added) {
    if (token.special || !token.in_vocabulary) {
      reserved[static_cast<size_t>(token.id)] = true;
    }
  }
  return reserved;
}

AddedTokens GroupOf(const BpeDefinition& definition, bool normalised) {
  std::vector<AddedToken> group;
  for (AddedToken token : definition.added) {
    if (token.normalized != normalised) continue;
    if (normalised && definition.nfc) token.content = ToNfc(token.content);
    group.push_back(std::move(token));
  }
  return AddedTokens(FirstOfEachContent(std::move(group)));
}

}  // namespace

struct BpeTokenizer::Work {
  std::vector<int32_t> ids;
  std::vector<int32_t> symbols;  // of the piece at hand
  std::optional<Error> error;
};

BpeTokenizer::BpeTokenizer(BpeDefinition definition)
    : definition_(std::move(definition)) {
  CheckTokens(definition_);
  CheckAddedTokens(definition_.added, definition_.tokens);
  CheckMerges(definition_.merges, definition_.tokens, ReservedIds(definition_));
  IndexTokens();
  merger_ = BpeMerger(definition_.merges,
                      static_cast<int64_t>(definition_.tokens.size()));
  raw_ = GroupOf(definition_, false);
  normalised_ = GroupOf(definition_, true);
}

void BpeTokenizer::IndexTokens() {
  const std::vector<bool> reserved = ReservedIds(definition_);
  for (size_t id = 0; id < reserved.size(); ++id) {
    if (!reserved[id]) by_bytes_.push_back(static_cast<int32_t>(id));
  }
  std::sort(by_bytes_.begin(), by_bytes_.end(),
            [this](int32_t a, int32_t b) { return Bytes(a) < Bytes(b); });
  const auto twice = std::adjacent_find(
      by_bytes_.begin(), by_bytes_.end(),
      [this](int32_t a, int32_t b) { return Bytes(a) == Bytes(b); });
  if (twice != by_bytes_.end()) {
    RefuseAdded("model.vocab", "each token once",
                Quoted(Bytes(*twice)) + " twice");
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[static_cast<size_t>(byte)] = Find({&c, 1});
  }
}

int32_t BpeTokenizer::Find(std::string_view bytes) const {
  const auto found = std::lower_bound(
      by_bytes_.begin(), by_bytes_.end(), bytes,
      [this](int32_t id, std::string_view b) { return Bytes(id) < b; });
  return found == by_bytes_.end() || Bytes(*found) != bytes ? -1 : *found;
}

Result<std::vector<int32_t>> BpeTokenizer::Encode(std::string_view text,
                                                  const SpecialScope& scope,
                                                  uint64_t offset) const {
  Work work;
  raw_.VisitParts(text, scope, [&](int32_t id, std::string_view part) {
    if (id >= 0) {
      work.ids.push_back(id);
      return true;
    }
    const auto at = static_cast<size_t>(part.data() - text.data());
    const bool changes = definition_.nfc && NfcPrefix(part) != part.size();
    const std::string changed = changes ? ToNfc(part) : std::string();
    const std::string_view normalised = changes ? changed : part;
    std::vector<ByteRange> data;
    if (normalised_.has_special()) {
      data = RangesAfter(
          part, RangesWithin(scope.data, at, at + part.size()), normalised,
          [](std::string_view piece, bool) { return ToNfc(piece); });
    }
    return EncodeNormalised(normalised, offset + at, {scope.allowed, data},
                            work);
  });
  if (work.error) return *work.error;
  return std::move(work.ids);
}

bool BpeTokenizer::EncodeNormalised(std::string_view text, uint64_t offset,
                                    const SpecialScope& scope,
                                    Work& work) const {
  return normalised_.VisitParts(
      text, scope, [&](int32_t id, std::string_view part) {
        if (id >= 0) {
          work.ids.push_back(id);
          return true;
        }
        const auto at = static_cast<uint64_t>(part.data() - text.data());
        return EncodePieces(part, offset + at, work);
      });
}

bool BpeTokenizer::EncodePieces(std::string_view text, uint64_t offset,
                                Work& work) const {
  const SplitPattern* split = definition_.split;
  while (!text.empty()) {
    const size_t bytes =
        split == nullptr ? text.size() : split->first_piece_bytes(text);
    if (!EncodePiece(text.substr(0, bytes), offset, work)) return false;
    text.remove_prefix(bytes);
    offset += bytes;
  }
  return true;
}

bool BpeTokenizer::EncodePiece(std::string_view piece, uint64_t offset,
                               Work& work) const {
  if (definition_.ignore_merges) {
    const int32_t whole = Find(piece);
    if (whole >= 0) {
      work.ids.push_back(whole);
      return true;
    }
  }
  work.symbols.clear();
  for (size_t i = 0; i < piece.size(); ++i) {
    const auto byte = static_cast<uint8_t>(piece[i]);
    if (byte_ids_[byte] < 0) {
      work.error = FormatError(StrCat("text: byte ", offset + i),
                               "a byte the tokenizer has a token for",
                               StrCat("byte ", static_cast<int>(byte)));
      return false;
    }
    work.symbols.push_back(byte_ids_[byte]);
  }
  merger_.Merge(work.symbols);
  work.ids.insert(work.ids.end(), work.symbols.begin(), work.symbols.end());
  return true;
}

}  // namespace tarn
