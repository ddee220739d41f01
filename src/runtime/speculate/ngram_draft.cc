#include "runtime/speculate/ngram_draft.h"

#include <algorithm>

#include "core/hash.h"

namespace tarn {
namespace {

constexpr size_t kLeastSlots = 256;

// Matches of at least so many tokens are of kinds 1 and 2.
constexpr int64_t kKindMatch[] = {6, 16};

static_assert(Draft::kKinds == 3);

}  // namespace

// Of the kLeast tokens that end at `end`.
size_t NgramDraft::Slot(int64_t end) const {
  uint64_t hash = 0;
  for (int64_t i = end - kLeast + 1; i <= end; ++i) {
    hash = Mix(hash ^ static_cast<uint32_t>(tokens_[static_cast<size_t>(i)]));
  }
  return static_cast<size_t>(hash) & (latest_.size() - 1);
}

void NgramDraft::Index(int64_t end) {
  if (end + 1 < kLeast) return;
  int32_t& latest = latest_[Slot(end)];
  before_[static_cast<size_t>(end)] = latest;
  latest = static_cast<int32_t>(end);
}

void NgramDraft::IndexAgain() {
  size_t slots = kLeastSlots;
  while (slots < 2 * tokens_.size()) slots *= 2;
  latest_.assign(slots, -1);
  std::fill(before_.begin(), before_.end(), -1);
  const auto count = static_cast<int64_t>(tokens_.size());
  for (int64_t end = 0; end < count; ++end) Index(end);
}

void NgramDraft::Add(std::span<const int32_t> tokens) {
  const auto first = static_cast<int64_t>(tokens_.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  before_.resize(tokens_.size(), -1);
  if (latest_.size() < tokens_.size()) {
    IndexAgain();
    return;
  }
  const auto count = static_cast<int64_t>(tokens_.size());
  for (int64_t end = first; end < count; ++end) Index(end);
}

void NgramDraft::Forget(int64_t position) {
  if (position >= static_cast<int64_t>(tokens_.size())) return;
  tokens_.resize(static_cast<size_t>(std::max<int64_t>(position, 0)));
  before_.resize(tokens_.size());
  latest_.clear();  // indexed again with the next token
}

// How many tokens the texts that end at a and at b have in common there.
int64_t NgramDraft::MatchLength(int64_t a, int64_t b) const {
  int64_t length = 0;
  while (length < kLongest && length <= a &&
         tokens_[static_cast<size_t>(a - length)] ==
             tokens_[static_cast<size_t>(b - length)]) {
    ++length;
  }
  return length;
}

Draft NgramDraft::Guess(const DraftInput& input, std::span<int32_t> out) {
  const size_t known = input.read.size() + input.pending.size();
  if (known > INT32_MAX) return {};
  Forget(static_cast<int64_t>(known));
  if (tokens_.size() < input.read.size()) {
    Add(input.read.subspan(tokens_.size()));
  }
  Add(input.pending.subspan(tokens_.size() - input.read.size()));
  const int64_t end = static_cast<int64_t>(tokens_.size()) - 1;
  if (end + 1 < kLeast) return {};
  int64_t best = -1, longest = kLeast - 1;
  int32_t at = before_[static_cast<size_t>(end)];
  // Other tokens may share the slot.
  int candidates = 0;
  for (int i = 0; i < 4 * kCandidates && at >= 0; ++i) {
    const int64_t length = MatchLength(at, end);
    if (length > longest) {
      longest = length;
      best = at;
    }
    if (length >= kLeast && ++candidates == kCandidates) break;
    at = before_[static_cast<size_t>(at)];
  }
  if (best < 0) return {};
  // Beyond the text's end it repeats what it has guessed.
  const int64_t period = end - best;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto from = best + 1 + static_cast<int64_t>(i);
    out[i] = from <= end ? tokens_[static_cast<size_t>(from)]
                         : out[i - static_cast<size_t>(period)];
  }
  const int kind = longest >= kKindMatch[1] ? 2 : longest >= kKindMatch[0];
  return {out.size(), kind};
}

}  // namespace tarn
