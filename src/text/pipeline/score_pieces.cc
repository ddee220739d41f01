#include "text/pipeline/score_pieces.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "core/error.h"
#include "text/pipeline/decoder.h"
#include "text/unicode/unicode.h"

namespace tarn {
namespace {

constexpr uint32_t kNoSymbol = ~uint32_t{0};

// A part of the piece; without bytes: its left neighbour took it.
struct Symbol {
  uint32_t begin, bytes, before, after;
};

// Two neighbours that would make a token.
struct Joint {
  double score;
  uint32_t left, right, bytes;
  // Whether `other` goes first: by score, then from left to right.
  bool operator<(const Joint& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

std::vector<Symbol> CharactersOf(std::string_view piece) {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (size_t at = 0; at < piece.size();) {
    const size_t bytes = ReadCharacter(piece.substr(at)).bytes;
    const auto place = static_cast<uint32_t>(symbols.size());
    symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(bytes),
                       place == 0 ? kNoSymbol : place - 1, place + 1});
    at += bytes;
  }
  if (!symbols.empty()) symbols.back().after = kNoSymbol;
  return symbols;
}

// What pieces are made of; the tokens of bytes stand for no text of their
// names.
std::vector<std::string_view> PiecesOf(const std::vector<std::string>& tokens) {
  std::vector<std::string_view> pieces(tokens.begin(), tokens.end());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (ByteOfToken(tokens[id]) >= 0) pieces[id] = {};
  }
  return pieces;
}

}  // namespace

ScorePieces::ScorePieces(const std::vector<std::string>& tokens,
                         const std::vector<double>& scores, int32_t unknown,
                         std::array<int32_t, 256> byte_tokens)
    : index_(PiecesOf(tokens)),
      scores_(scores),
      unknown_(unknown),
      byte_tokens_(byte_tokens) {
  for (const std::string& token : tokens) {
    longest_ = std::max(longest_, token.size());
  }
}

size_t ScorePieces::Encode(std::string_view piece,
                           std::vector<int32_t>& ids) const {
  if (piece.size() >= kNoSymbol) {
    throw ArgumentError("text", StrCat("pieces below ", kNoSymbol, " bytes"),
                        StrCat(piece.size()));
  }
  std::vector<Symbol> symbols = CharactersOf(piece);
  std::priority_queue<Joint> queue;
  const auto add = [&](uint32_t left) {
    if (left == kNoSymbol || symbols[left].after == kNoSymbol) return;
    const uint32_t right = symbols[left].after;
    const uint32_t bytes = symbols[left].bytes + symbols[right].bytes;
    if (bytes > longest_) return;
    const int32_t id = index_.Find(piece.substr(symbols[left].begin, bytes));
    if (id < 0) return;
    queue.push({scores_[static_cast<size_t>(id)], left, right, bytes});
  };
  for (uint32_t i = 0; i < symbols.size(); ++i) add(i);
  for (; !queue.empty();) {
    const Joint joint = queue.top();
    queue.pop();
    Symbol& left = symbols[joint.left];
    Symbol& right = symbols[joint.right];
    if (left.bytes == 0 || right.bytes == 0 ||
        left.bytes + right.bytes != joint.bytes) {
      continue;  // an earlier joint took one of the two
    }
    left.bytes = joint.bytes;
    right.bytes = 0;
    left.after = right.after;
    if (right.after != kNoSymbol) symbols[right.after].before = joint.left;
    add(left.before);
    add(joint.left);
  }
  bool after_unknown = false;
  for (const Symbol& symbol : symbols) {
    if (symbol.bytes == 0) continue;
    const std::string_view text = piece.substr(symbol.begin, symbol.bytes);
    const int32_t id = index_.Find(text);
    const bool known = id >= 0 || AppendBytes(text, ids);
    if (id >= 0) ids.push_back(id);
    if (!known && unknown_ < 0) return symbol.begin;
    if (!known && !after_unknown) ids.push_back(unknown_);
    after_unknown = !known;
  }
  return kDone;
}

bool ScorePieces::AppendBytes(std::string_view text,
                              std::vector<int32_t>& ids) const {
  for (const char c : text) {
    if (byte_tokens_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : text) {
    ids.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
  }
  return true;
}

std::vector<BpeMerge> MergesOfScores(const std::vector<std::string>& tokens,
                                     const std::vector<double>& scores) {
  const TextIndex index(PiecesOf(tokens));
  std::vector<BpeMerge> merges;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view text = tokens[id];
    if (index.Find(text) < 0) continue;  // no piece, or no text
    for (size_t at = 0; at < text.size();) {
      at += ReadCharacter(text.substr(at)).bytes;
      if (at >= text.size()) break;
      const int32_t left = index.Find(text.substr(0, at));
      if (left < 0) continue;
      const int32_t right = index.Find(text.substr(at));
      if (right < 0) continue;
      merges.push_back({left, right, static_cast<int32_t>(id)});
    }
  }
  const auto key = [&](const BpeMerge& merge) {
    return std::tuple(-scores[static_cast<size_t>(merge.result)], merge.result,
                      merge.left, merge.right);
  };
  std::sort(
      merges.begin(), merges.end(),
      [&](const BpeMerge& a, const BpeMerge& b) { return key(a) < key(b); });
  return merges;
}

}  // namespace tarn
