#include "text/pipeline/bpe_pieces.h"

#include <algorithm>
#include <utility>

#include "text/unicode/unicode.h"

namespace tarn {

BpePieces::BpePieces(const std::vector<std::string>& tokens,
                     std::vector<BpeMerge> merges, BpeRules rules,
                     std::array<int32_t, 256> byte_tokens)
    : rules_(rules),
      merger_(std::move(merges), static_cast<int64_t>(tokens.size())),
      byte_tokens_(byte_tokens) {
  if (!rules_.bytes || rules_.ignore_merges) {
    by_text_ = TextIndex({tokens.begin(), tokens.end()});
  }
  for (size_t c = 0; c < ascii_.size(); ++c) {
    const char text = static_cast<char>(c);
    ascii_[c] = by_text_.Find({&text, 1});
  }
}

bool BpePieces::HasBytes(std::string_view character) const {
  return std::all_of(character.begin(), character.end(), [this](char c) {
    return byte_tokens_[static_cast<uint8_t>(c)] >= 0;
  });
}

size_t BpePieces::Symbols(std::string_view piece,
                          std::vector<int32_t>& symbols) const {
  bool pending = false;  // an unknown token that neighbours may join
  const auto flush = [&] {
    if (pending) symbols.push_back(rules_.unknown);
    pending = false;
  };
  for (size_t at = 0; at < piece.size();) {
    const auto head = static_cast<uint8_t>(piece[at]);
    const size_t bytes =
        rules_.bytes ? 1 : ReadCharacter(piece.substr(at)).bytes;
    const int32_t id = rules_.bytes  ? byte_tokens_[head]
                       : head < 0x80 ? ascii_[head]
                                     : by_text_.Find(piece.substr(at, bytes));
    if (id >= 0) {
      flush();
      symbols.push_back(id);
    } else if (rules_.byte_fallback && HasBytes(piece.substr(at, bytes))) {
      // The package lets bytes pass an unknown token that is pending.
      for (const char c : piece.substr(at, bytes)) {
        symbols.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
      }
    } else if (rules_.unknown < 0) {
      return at;
    } else {
      if (!rules_.fuse_unknown) flush();
      pending = true;
    }
    at += bytes;
  }
  flush();
  return kDone;
}

size_t BpePieces::Encode(std::string_view piece,
                         std::vector<int32_t>& ids) const {
  if (rules_.ignore_merges) {
    const int32_t whole = by_text_.Find(piece);
    if (whole >= 0) {
      ids.push_back(whole);
      return kDone;
    }
  }
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  const size_t bad = Symbols(piece, symbols);
  if (bad != kDone) return bad;
  merger_.Merge(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  return kDone;
}

}  // namespace tarn
