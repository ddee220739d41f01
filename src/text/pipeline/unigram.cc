#include "text/pipeline/unigram.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "text/unicode/unicode.h"

namespace tarn {
namespace {

constexpr double kUnknownPenalty = 10;  // as SentencePiece has it
constexpr uint32_t kUnreached = ~uint32_t{0};

// The best way to write the text up to some byte.
struct Best {
  uint32_t begin = kUnreached;  // of its last token
  int32_t id = -1;
  double score = 0;
};

void Offer(Best& best, uint32_t begin, int32_t id, double score) {
  // Of equal scores the candidate that begins first stays.
  if (best.begin == kUnreached || score > best.score) best = {begin, id, score};
}

}  // namespace

Unigram::Unigram(const std::vector<std::string>& tokens,
                 const std::vector<double>& scores, int32_t unknown,
                 std::array<int32_t, 256> byte_tokens)
    : scores_(scores), unknown_(unknown), byte_tokens_(byte_tokens) {
  std::vector<std::pair<std::string_view, int32_t>> strings;
  for (size_t id = 0; id < scores_.size(); ++id) {
    if (!tokens[id].empty()) {
      strings.push_back({tokens[id], static_cast<int32_t>(id)});
    }
  }
  trie_ = ByteTrie(std::move(strings));
  unknown_score_ =
      *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
}

size_t Unigram::Encode(std::string_view piece,
                       std::vector<int32_t>& ids) const {
  if (piece.size() >= kUnreached) {
    throw ArgumentError("text", StrCat("pieces below ", kUnreached, " bytes"),
                        StrCat(piece.size()));
  }
  std::vector<Best> best(piece.size() + 1);
  for (size_t at = 0; at < piece.size();) {
    const double score = best[at].score;
    const size_t bytes = ReadCharacter(piece.substr(at)).bytes;
    const auto begin = static_cast<uint32_t>(at);
    bool has_character = false;
    trie_.VisitPrefixes(piece.substr(at), [&](int32_t id, size_t length) {
      has_character = has_character || length == bytes;
      Offer(best[at + length], begin, id,
            scores_[static_cast<size_t>(id)] + score);
    });
    if (!has_character) {
      if (unknown_ < 0) return at;
      Offer(best[at + bytes], begin, unknown_, unknown_score_ + score);
    }
    at += bytes;
  }
  // From the end to the start; neighbours that are unknown become one text.
  std::vector<std::string_view> texts;
  bool after_unknown = false;
  for (size_t end = piece.size(); end > 0; end = best[end].begin) {
    const size_t begin = best[end].begin;
    const bool unknown = best[end].id == unknown_;
    if (unknown && after_unknown) {
      texts.back() = piece.substr(begin, end - begin + texts.back().size());
    } else {
      texts.push_back(piece.substr(begin, end - begin));
    }
    after_unknown = unknown;
  }
  std::for_each(texts.rbegin(), texts.rend(),
                [&](std::string_view text) { Append(text, ids); });
  return kDone;
}

void Unigram::Append(std::string_view text, std::vector<int32_t>& ids) const {
  const ByteTrie::Match match = trie_.Longest(text);
  if (match.id >= 0 && match.bytes == text.size()) {
    ids.push_back(match.id);
  } else if (std::all_of(text.begin(), text.end(), [this](char c) {
               return byte_tokens_[static_cast<uint8_t>(c)] >= 0;
             })) {
    for (const char c : text) {
      ids.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
    }
  } else {
    ids.push_back(unknown_);
  }
}

}  // namespace tarn
