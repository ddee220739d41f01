#include "text/bpe_train.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "text/split/gpt2.h"
#include "text/tokenizer.h"

namespace tarn {
namespace {

// By definition: counts everything again for every merge.
BpeDefinition TrainByDefinition(const std::string& text, size_t vocab_size) {
  BpeDefinition definition;
  for (int b = 0; b < 256; ++b) {
    definition.tokens.emplace_back(1, static_cast<char>(b));
  }
  std::vector<std::vector<int32_t>> pieces;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t bytes = Gpt2PieceBytes(rest);
    pieces.emplace_back();
    for (const char c : rest.substr(0, bytes)) {
      pieces.back().push_back(static_cast<uint8_t>(c));
    }
    rest.remove_prefix(bytes);
  }
  while (definition.tokens.size() < vocab_size) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& piece : pieces) {
      for (size_t i = 0; i + 1 < piece.size(); ++i) {
        ++counts[{piece[i], piece[i + 1]}];
      }
    }
    std::pair<int32_t, int32_t> best;
    int64_t most = 1;
    for (const auto& [pair, count] : counts) {  // in order of the pair
      if (count > most) best = pair, most = count;
    }
    if (most < 2) break;
    const std::string bytes =
        definition.tokens[static_cast<size_t>(best.first)] +
        definition.tokens[static_cast<size_t>(best.second)];
    const auto known =
        std::find(definition.tokens.begin(), definition.tokens.end(), bytes);
    const auto result = static_cast<int32_t>(known - definition.tokens.begin());
    if (known == definition.tokens.end()) definition.tokens.push_back(bytes);
    definition.merges.push_back({best.first, best.second, result});
    for (auto& piece : pieces) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < piece.size(); ++i) {
        const bool here = i + 1 < piece.size() && piece[i] == best.first &&
                          piece[i + 1] == best.second;
        merged.push_back(here ? result : piece[i]);
        if (here) ++i;
      }
      piece = merged;
    }
  }
  return definition;
}

BpeDefinition Train(const std::string& text, int64_t vocab_size) {
  return TrainBpe({text}, {vocab_size, nullptr});
}

TEST(BpeTrain, EqualsTheDefinition) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 60; ++trial) {
    // Few letters: many ties, overlaps and tokens that two pairs spell.
    const std::string alphabet = trial % 3 == 0 ? "a" : "ab ab\nc";
    std::string text(random() % 400, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    const BpeDefinition want = TrainByDefinition(text, 256 + trial);
    ASSERT_EQ(Train(text, 256 + trial), want) << text;
  }
}

TEST(BpeTrain, TextsAreCutApartAndCountedTogether) {
  const BpeDefinition definition =
      TrainBpe({"ab", "ab", "abc"}, {257, nullptr});
  EXPECT_EQ(definition.tokens.back(), "ab");
  EXPECT_EQ(TrainBpe({"a", "b", "a", "b"}, {300, nullptr}).tokens.size(), 256u);
  EXPECT_EQ(TrainBpe({}, {300, nullptr}).tokens.size(), 256u);
}

TEST(BpeTrain, OneLongPieceIsLinear) {
  // 2 MiB without a space: counting again for each merge would not finish.
  std::mt19937 random(6);
  std::string text(2 << 20, ' ');
  for (char& c : text) c = "acgt"[random() % 4];
  const Tokenizer tokenizer = Tokenizer::Bpe(Train(text, 512));
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  const auto ids = tokenizer.Encode(text).Take();
  EXPECT_LT(ids.size(), text.size() / 3);
  EXPECT_EQ(tokenizer.Decode(ids), text);
}

TEST(BpeTrain, RefusesAndStops) {
  EXPECT_THROW(Train("ab", 255), ArgumentError);
  EXPECT_THROW(Train("ab", kMaxBpeTokens + 1), ArgumentError);
  int64_t told = 0;
  try {
    TrainBpe({"abab"}, {300, [&](int64_t tokens) {
                          told = tokens;
                          return false;
                        }});
    FAIL() << "not interrupted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
  EXPECT_EQ(told, 256);
}

}  // namespace
}  // namespace tarn
