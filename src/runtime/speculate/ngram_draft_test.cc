// Guesses from a text against a search by definition.
#include "runtime/speculate/ngram_draft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/rng.h"
#include "text/tokenizer.h"

namespace tarn {
namespace {

using Tokens = std::vector<int32_t>;

// The longest match of the end among its latest 16 earlier places.
Tokens ByDefinition(const Tokens& text, size_t count) {
  const auto size = static_cast<int64_t>(text.size());
  int64_t best = -1, longest = 0;
  int found = 0;
  for (int64_t end = size - 2; end >= 2 && found < 16; --end) {
    int64_t length = 0;
    while (length < 32 && length <= end &&
           text[static_cast<size_t>(end - length)] ==
               text[static_cast<size_t>(size - 1 - length)]) {
      ++length;
    }
    if (length < 3) continue;
    ++found;
    if (length <= longest) continue;
    longest = length;
    best = end;
  }
  Tokens all = text, guess;
  if (best < 0) return guess;
  for (size_t i = 0; i < count; ++i) {
    guess.push_back(all[static_cast<size_t>(best) + 1 + i]);
    all.push_back(guess.back());
  }
  return guess;
}

class NgramDraftTest : public ::testing::Test {
 protected:
  Tokens Guess(const Tokens& text, size_t pending, size_t count) {
    const std::span<const int32_t> all(text);
    Tokens out(count, -1);
    const Draft draft = draft_.Guess(
        {all.first(all.size() - pending), all.last(pending), sequence_}, out);
    EXPECT_TRUE(draft.tokens == 0 || draft.tokens == count);
    out.resize(draft.tokens);
    return out;
  }

  Tokenizer tokenizer_ = Tokenizer::Ids(100);
  Sequence sequence_{tokenizer_, {}};
  NgramDraft draft_;
};

TEST_F(NgramDraftTest, EqualsTheDefinitionAsTheTextGrowsAndShrinks) {
  Rng rng(5);
  Tokens text;
  int guesses = 0;
  for (int step = 0; step < 3000; ++step) {
    if (rng.Below(200) == 0 && !text.empty()) {
      text.resize(rng.Below(text.size() + 1));
      draft_.Forget(static_cast<int64_t>(text.size()));
    }
    // Runs that repeat an earlier part, and others.
    const uint64_t count = 1 + rng.Below(6);
    const size_t from = text.empty() || rng.Below(2) == 0
                            ? text.size()
                            : rng.Below(text.size());
    for (uint64_t i = 0; i < count; ++i) {
      text.push_back(from + i < text.size()
                         ? text[from + i]
                         : static_cast<int32_t>(rng.Below(5)));
    }
    const size_t pending = std::min<size_t>(text.size(), rng.Below(4));
    const size_t wanted = 1 + rng.Below(12);
    const Tokens want = ByDefinition(text, wanted);
    ASSERT_EQ(want, Guess(text, pending, wanted)) << step;
    guesses += !want.empty();
  }
  EXPECT_GT(guesses, 1000);
}

TEST_F(NgramDraftTest, ACircleIsGuessedAsFarAsOneLikes) {
  const Tokens text = {9, 1, 2, 3, 1, 2, 3};
  EXPECT_EQ((Tokens{1, 2, 3, 1, 2, 3, 1}), Guess(text, 1, 7));
}

TEST_F(NgramDraftTest, ShortAndNewTextsHaveNoGuess) {
  EXPECT_TRUE(Guess({}, 0, 5).empty());
  EXPECT_TRUE(Guess({1}, 1, 5).empty());
  EXPECT_TRUE(Guess({1, 2}, 1, 5).empty());
  EXPECT_TRUE(Guess({1, 2, 3, 4, 5, 6, 7}, 2, 5).empty());
}

}  // namespace
}  // namespace tarn
