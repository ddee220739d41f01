// DRY's sequence breakers with a tokenizer whose tokens are longer than bytes.
#include "runtime/sampling/dry.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "runtime/sampling/sampler.h"
#include "text/bpe_tokenizer.h"

namespace tarn {
namespace {

using Tokens = std::vector<int32_t>;

// All bytes, and "ab", "abc", "\n\n", "xab".
Tokenizer Pieces() {
  BpeDefinition definition;
  for (int b = 0; b < 256; ++b) {
    definition.tokens.emplace_back(1, static_cast<char>(b));
  }
  for (const char* text : {"ab", "abc", "\n\n", "xab"}) {
    definition.tokens.emplace_back(text);
  }
  definition.merges = {
      {'a', 'b', 256}, {256, 'c', 257}, {'\n', '\n', 258}, {'x', 256, 259}};
  definition.split = nullptr;
  return Tokenizer::Bpe(definition);
}

DryBreakers Breakers(const std::vector<std::string>& texts) {
  return DryBreakers(texts, Pieces());
}

TEST(DryBreakers, ATokenThatContainsOneIsABreaker) {
  const DryBreakers newline = Breakers({"\n"});
  EXPECT_TRUE(newline.IsBreaker('\n'));
  EXPECT_TRUE(newline.IsBreaker(258));
  EXPECT_FALSE(newline.IsBreaker('a'));
  EXPECT_EQ(newline.TokensAfterLast(Tokens{'a', 258, 'a', 'b', 'c'}), 3);
  EXPECT_EQ(newline.TokensAfterLast(Tokens{'a', 'b'}), 2);
  EXPECT_EQ(newline.TokensAfterLast(Tokens{'a', '\n'}), 0);
  EXPECT_EQ(DryBreakers().TokensAfterLast(Tokens{'\n'}), 1);
  EXPECT_FALSE(DryBreakers().IsBreaker('\n'));
}

// "bcd" is split over tokens that end with its beginning: "b" and "ab" before
// "cd", and "abc" before "d".
TEST(DryBreakers, OneMayBeSplitOverTokens) {
  const DryBreakers breakers = Breakers({"bcd"});
  for (const Tokens& before : {Tokens{256, 'c', 'd'}, Tokens{257, 'd'},
                               Tokens{'b', 'c', 'd'}, Tokens{259, 'c', 'd'}}) {
    Tokens tokens = before;
    tokens.insert(tokens.end(), {'x', 'y'});
    EXPECT_EQ(breakers.TokensAfterLast(tokens), 2);
    EXPECT_FALSE(breakers.IsBreaker(before[0]));
  }
  EXPECT_EQ(breakers.TokensAfterLast(Tokens{'b', 'c', 'x'}), 3);
  EXPECT_EQ(breakers.TokensAfterLast(Tokens{257}), 1);
}

TEST(DryBreakers, ManyTokensOfARestCountAsFarAsTheBound) {
  std::string text(kMaxDryBreakerBytes, 'q');
  const DryBreakers breakers = Breakers({text});
  const Tokens most(DryBreakers::kMostRest + 1, 'q');
  EXPECT_EQ(breakers.TokensAfterLast(most), 0);
  EXPECT_EQ(breakers.TokensAfterLast(std::span(most).first(most.size() - 1)),
            static_cast<int64_t>(most.size() - 1));
}

// A text of one token, repeated: linear, and the penalty is bounded.
TEST(Dry, LongRepetitionsCostABoundedPenalty) {
  SamplerOptions options;
  options.temperature = 0;
  options.dry_multiplier = 10;
  options.dry_base = 100;
  options.dry_penalty_last_n = -1;
  const Tokens same(1 << 20, 'a');
  std::vector<float> logits(256, -1e30f);
  logits['a'] = 3e38f;
  logits['b'] = 1;
  const Sampler sampler(options, Pieces());
  SamplerState state = sampler.Start();
  EXPECT_EQ(sampler.Draw({.logits = logits, .tokens = same}, state), 'b');
  logits['b'] = -3e38f;
  options.dry_multiplier = 1e-3;
  EXPECT_EQ(Sampler(options, Pieces())
                .Draw({.logits = logits, .tokens = same}, state),
            'a');
}

}  // namespace
}  // namespace tarn
