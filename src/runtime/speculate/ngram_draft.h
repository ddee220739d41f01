// Guesses from the text itself: what followed the last time that its latest
// tokens appeared. Code, quotations, lists and JSON repeat themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/session/draft.h"

namespace tarn {

/// Finds the longest earlier match of the text's end among the latest
/// kCandidates places where its last kLeast tokens appeared; of equally long
/// ones the latest. Memory: 12 to 20 bytes for each token of the text. Time of
/// a guess: O(kCandidates x kLongest + new tokens), whatever the text's length.
class NgramDraft final : public DraftSource {
 public:
  static constexpr int64_t kLeast = 3, kLongest = 32;
  static constexpr int kCandidates = 16;

  Draft Guess(const DraftInput& input, std::span<int32_t> out) override;
  void Forget(int64_t position) override;
  std::unique_ptr<DraftSource> New() const override {
    return std::make_unique<NgramDraft>();
  }

 private:
  void Add(std::span<const int32_t> tokens);
  void Index(int64_t end);
  void IndexAgain();
  size_t Slot(int64_t end) const;
  int64_t MatchLength(int64_t a, int64_t b) const;

  std::vector<int32_t> tokens_;
  std::vector<int32_t> before_;  // the earlier place of a slot; -1: none
  std::vector<int32_t> latest_;  // by slot: where such tokens ended last; -1
};

}  // namespace tarn
