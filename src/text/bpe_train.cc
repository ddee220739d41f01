#include "text/bpe_train.h"

#include <algorithm>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "text/split/patterns.h"

namespace tarn {
namespace {

constexpr uint32_t kNoPlace = ~uint32_t{0};
constexpr int64_t kLeastCount = 2;  // a pair seen once teaches nothing

// Two neighbours in one number, in the order that breaks ties.
using PairKey = uint64_t;
PairKey KeyOf(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 |
         static_cast<uint32_t>(right);
}

struct PairFacts {
  int64_t count = 0;  // in the whole text
  // The places where the pair's left symbol is or was, in no order.
  std::vector<uint32_t> places;
};

// A candidate for the best pair. Its count may be out of date, but only too
// high: counts that grow are put in again.
struct Candidate {
  int64_t count;
  PairKey key;
  bool operator<(const Candidate& other) const {  // less good
    return count != other.count ? count < other.count : key > other.key;
  }
};

class Learner {
 public:
  Learner(const std::vector<std::string_view>& texts,
          const BpeTrainOptions& options);
  BpeDefinition Learn();

 private:
  void AddPiece(std::string_view piece, int64_t count);
  // False when no pair is left that occurs often enough.
  bool FindBest(PairKey& best);
  int32_t ResultOf(int32_t left, int32_t right);
  void MergeEverywhere(const BpeMerge& merge);
  void MergeAt(uint32_t place, const BpeMerge& merge);
  void Count(int32_t left, int32_t right, uint32_t place, int64_t change);

  const BpeTrainOptions& options_;
  BpeDefinition definition_;
  std::unordered_map<std::string, int32_t> ids_;
  // The distinct pieces one after the other, each a linked list of symbols.
  std::vector<int32_t> symbols_;
  std::vector<uint32_t> before_, after_, piece_;
  std::vector<int64_t> piece_counts_;
  std::unordered_map<PairKey, PairFacts> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<PairKey> grown_;  // by the merge at hand
};

Learner::Learner(const std::vector<std::string_view>& texts,
                 const BpeTrainOptions& options)
    : options_(options) {
  if (options.vocab_size < 256 || options.vocab_size > kMaxBpeTokens) {
    throw ArgumentError("vocab_size", StrCat("256 to ", kMaxBpeTokens),
                        StrCat(options.vocab_size));
  }
  for (int byte = 0; byte < 256; ++byte) {
    definition_.tokens.emplace_back(1, static_cast<char>(byte));
    ids_.emplace(definition_.tokens.back(), byte);
  }
  // Pieces in the order of their first occurrence, with their counts.
  std::unordered_map<std::string_view, size_t> index;
  std::vector<std::pair<std::string_view, int64_t>> pieces;
  for (std::string_view text : texts) {
    while (!text.empty()) {
      const std::string_view piece =
          text.substr(0, Gpt2Split().first_piece_bytes(text));
      const auto [at, fresh] = index.emplace(piece, pieces.size());
      if (fresh) pieces.push_back({piece, 0});
      ++pieces[at->second].second;
      text.remove_prefix(piece.size());
    }
  }
  for (const auto& [piece, count] : pieces) AddPiece(piece, count);
  for (const auto& [key, facts] : pairs_) queue_.push({facts.count, key});
}

void Learner::AddPiece(std::string_view piece, int64_t count) {
  const size_t begin = symbols_.size();
  if (piece.size() >= kNoPlace - begin) {
    throw ArgumentError("texts",
                        StrCat("below ", kNoPlace, " bytes of distinct pieces"),
                        "more");
  }
  for (size_t i = 0; i < piece.size(); ++i) {
    const auto place = static_cast<uint32_t>(begin + i);
    symbols_.push_back(static_cast<uint8_t>(piece[i]));
    before_.push_back(i == 0 ? kNoPlace : place - 1);
    after_.push_back(i + 1 == piece.size() ? kNoPlace : place + 1);
    piece_.push_back(static_cast<uint32_t>(piece_counts_.size()));
  }
  piece_counts_.push_back(count);
  for (size_t i = begin; i + 1 < symbols_.size(); ++i) {
    Count(symbols_[i], symbols_[i + 1], static_cast<uint32_t>(i), 1);
  }
  grown_.clear();
}

void Learner::Count(int32_t left, int32_t right, uint32_t place,
                    int64_t change) {
  const PairKey key = KeyOf(left, right);
  PairFacts& facts = pairs_[key];
  facts.count += change * piece_counts_[piece_[place]];
  if (change < 0) return;
  facts.places.push_back(place);
  grown_.push_back(key);
}

bool Learner::FindBest(PairKey& best) {
  while (!queue_.empty()) {
    const Candidate candidate = queue_.top();
    queue_.pop();
    const auto found = pairs_.find(candidate.key);
    if (found == pairs_.end()) continue;
    const int64_t count = found->second.count;
    if (count < kLeastCount) continue;
    if (count == candidate.count) {
      best = candidate.key;
      return true;
    }
    // The count has fallen: back to its place. (Grown pairs have a new entry.)
    if (count < candidate.count) queue_.push({count, candidate.key});
  }
  return false;
}

// Two pairs can spell the same token: then it is one token with two merges.
int32_t Learner::ResultOf(int32_t left, int32_t right) {
  std::string bytes = definition_.tokens[static_cast<size_t>(left)] +
                      definition_.tokens[static_cast<size_t>(right)];
  const auto [at, fresh] =
      ids_.emplace(bytes, static_cast<int32_t>(definition_.tokens.size()));
  if (fresh) definition_.tokens.push_back(std::move(bytes));
  return at->second;
}

void Learner::MergeAt(uint32_t place, const BpeMerge& merge) {
  const uint32_t right = after_[place];
  if (symbols_[place] != merge.left || right == kNoPlace ||
      symbols_[right] != merge.right) {
    return;  // taken by a merge since
  }
  const uint32_t before = before_[place], after = after_[right];
  if (before != kNoPlace) Count(symbols_[before], merge.left, before, -1);
  if (after != kNoPlace) Count(merge.right, symbols_[after], right, -1);
  symbols_[place] = merge.result;
  symbols_[right] = -1;
  after_[place] = after;
  if (after != kNoPlace) before_[after] = place;
  if (before != kNoPlace) Count(symbols_[before], merge.result, before, 1);
  if (after != kNoPlace) Count(merge.result, symbols_[after], place, 1);
}

void Learner::MergeEverywhere(const BpeMerge& merge) {
  const PairKey key = KeyOf(merge.left, merge.right);
  // Left to right, as the tokenizer merges: in "aaa" the first two.
  std::vector<uint32_t> places = std::move(pairs_[key].places);
  std::sort(places.begin(), places.end());
  grown_.clear();
  for (const uint32_t place : places) MergeAt(place, merge);
  pairs_.erase(key);
  std::sort(grown_.begin(), grown_.end());
  grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
  for (const PairKey pair : grown_) {
    const auto found = pairs_.find(pair);
    if (found != pairs_.end()) queue_.push({found->second.count, pair});
  }
}

BpeDefinition Learner::Learn() {
  constexpr int64_t kTellEvery = 64;  // merges
  PairKey best = 0;
  for (int64_t merges = 0;; ++merges) {
    const auto tokens = static_cast<int64_t>(definition_.tokens.size());
    if (options_.progress && merges % kTellEvery == 0 &&
        !options_.progress(tokens)) {
      throw Error(ErrorCode::kInterrupted, "the training of a tokenizer");
    }
    if (tokens >= options_.vocab_size || !FindBest(best)) break;
    const auto left = static_cast<int32_t>(best >> 32);
    const auto right = static_cast<int32_t>(best & 0xFFFFFFFF);
    const BpeMerge merge{left, right, ResultOf(left, right)};
    definition_.merges.push_back(merge);
    MergeEverywhere(merge);
  }
  return std::move(definition_);
}

}  // namespace

BpeDefinition TrainBpe(const std::vector<std::string_view>& texts,
                       const BpeTrainOptions& options) {
  return Learner(texts, options).Learn();
}

}  // namespace tarn
