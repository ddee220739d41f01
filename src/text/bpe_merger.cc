#include "text/bpe_merger.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

#include "core/error.h"

namespace tarn {
namespace {

// Up to this length, checking every pair again costs less than keeping a queue.
constexpr size_t kShortPiece = 48;
constexpr uint32_t kNone = ~uint32_t{0};

// The places where one merge may apply, leftmost first. Places mostly come in
// order; then this is a plain queue, which touches memory in order too. A
// sorted array is a heap, so the change to one costs no more than a copy.
class Places {
 public:
  bool empty() const { return first_ == places_.size(); }
  void Push(uint32_t place) {
    if (sorted_ && (empty() || place >= places_.back())) {
      places_.push_back(place);
      return;
    }
    if (sorted_) {
      places_.erase(places_.begin(),
                    places_.begin() + static_cast<int64_t>(first_));
      first_ = 0;
      sorted_ = false;
    }
    places_.push_back(place);
    std::push_heap(places_.begin(), places_.end(), std::greater<>());
  }
  uint32_t Pop() {
    if (sorted_) return places_[first_++];
    std::pop_heap(places_.begin(), places_.end(), std::greater<>());
    const uint32_t place = places_.back();
    places_.pop_back();
    return place;
  }
  bool queued = false;  // is its rank in the queue of ranks?

 private:
  std::vector<uint32_t> places_;
  size_t first_ = 0;
  bool sorted_ = true;
};

// The ranks that may apply, lowest first, with their places. The caller has to
// notice a pair that has gone since it was added.
class RankQueue {
 public:
  void Add(int32_t rank, uint32_t place) {
    Places& places = places_[rank];
    places.Push(place);
    if (!places.queued) ranks_.push(rank);
    places.queued = true;
  }
  // Takes the next merge and its place; false when there is none left.
  bool Next(int32_t& rank, uint32_t& place) {
    while (!ranks_.empty()) {
      rank = ranks_.top();
      Places& places = places_[rank];
      if (!places.empty()) {
        place = places.Pop();
        return true;
      }
      places.queued = false;
      ranks_.pop();
    }
    return false;
  }

 private:
  std::unordered_map<int32_t, Places> places_;
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ranks_;
};

}  // namespace

BpeMerger::BpeMerger(std::vector<BpeMerge> merges, int64_t tokens)
    : merges_(std::move(merges)), starts_(static_cast<size_t>(tokens) + 1) {
  for (const BpeMerge& merge : merges_) {
    ++starts_[static_cast<size_t>(merge.left) + 1];
  }
  for (size_t t = 1; t < starts_.size(); ++t) starts_[t] += starts_[t - 1];
  // Right token and rank, those of a left token together.
  std::vector<std::pair<int32_t, int32_t>> sorted(merges_.size());
  std::vector<uint32_t> next(starts_.begin(), starts_.end());
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    sorted[next[static_cast<size_t>(merges_[rank].left)]++] = {
        merges_[rank].right, static_cast<int32_t>(rank)};
  }
  for (size_t t = 1; t < starts_.size(); ++t) {
    std::sort(sorted.begin() + starts_[t - 1], sorted.begin() + starts_[t]);
  }
  rights_.reserve(sorted.size());
  ranks_.reserve(sorted.size());
  for (const auto& [right, rank] : sorted) {
    rights_.push_back(right);
    ranks_.push_back(rank);
  }
}

int32_t BpeMerger::RankOf(int32_t left, int32_t right) const {
  const auto begin = rights_.begin() + starts_[static_cast<size_t>(left)];
  const auto end = rights_.begin() + starts_[static_cast<size_t>(left) + 1];
  const auto found = std::lower_bound(begin, end, right);
  if (found == end || *found != right) return -1;
  return ranks_[static_cast<size_t>(found - rights_.begin())];
}

void BpeMerger::Merge(std::vector<int32_t>& symbols) const {
  if (symbols.size() <= kShortPiece) {
    MergeShort(symbols);
  } else {
    MergeLong(symbols);
  }
}

void BpeMerger::MergeShort(std::vector<int32_t>& symbols) const {
  int32_t ranks[kShortPiece];  // of the pair that begins at i, or -1
  size_t pairs = symbols.empty() ? 0 : symbols.size() - 1;
  for (size_t i = 0; i < pairs; ++i) {
    ranks[i] = RankOf(symbols[i], symbols[i + 1]);
  }
  for (;;) {
    size_t at = pairs;
    for (size_t i = 0; i < pairs; ++i) {
      if (ranks[i] >= 0 && (at == pairs || ranks[i] < ranks[at])) at = i;
    }
    if (at == pairs) return;
    symbols[at] = merges_[static_cast<size_t>(ranks[at])].result;
    symbols.erase(symbols.begin() + static_cast<int64_t>(at) + 1);
    std::copy(ranks + at + 1, ranks + pairs, ranks + at);
    --pairs;
    if (at < pairs) ranks[at] = RankOf(symbols[at], symbols[at + 1]);
    if (at > 0) ranks[at - 1] = RankOf(symbols[at - 1], symbols[at]);
  }
}

void BpeMerger::MergeLong(std::vector<int32_t>& symbols) const {
  if (symbols.size() >= kNone) {
    throw ArgumentError("text", StrCat("pieces below ", kNone, " bytes"),
                        StrCat(symbols.size()));
  }
  // A doubly linked list over the places: a merge keeps the left one.
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> before(count), after(count);
  RankQueue queue;
  const auto add = [&](uint32_t place) {
    if (place == kNone || after[place] == kNone) return;
    const int32_t rank = RankOf(symbols[place], symbols[after[place]]);
    if (rank >= 0) queue.Add(rank, place);
  };
  for (uint32_t i = 0; i < count; ++i) {
    before[i] = i == 0 ? kNone : i - 1;
    after[i] = i + 1 == count ? kNone : i + 1;
  }
  for (uint32_t i = 0; i < count; ++i) add(i);
  int32_t rank = 0;
  for (uint32_t place = 0; queue.Next(rank, place);) {
    const BpeMerge& merge = merges_[static_cast<size_t>(rank)];
    const uint32_t right = after[place];
    if (symbols[place] != merge.left || right == kNone ||
        symbols[right] != merge.right) {
      continue;  // an earlier merge took one of the two
    }
    symbols[place] = merge.result;
    symbols[right] = -1;
    after[place] = after[right];
    if (after[right] != kNone) before[after[right]] = place;
    add(before[place]);
    add(place);
  }
  std::erase(symbols, -1);
}

}  // namespace tarn
