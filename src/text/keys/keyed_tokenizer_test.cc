// Tokenizers from the keys of GGUF files: what each key decides, the order of
// scores against a plain search, keys that are refused, and the way back.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/test_util.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace tarn {
namespace {

using Ids = std::vector<int32_t>;
using enum TokenType;

constexpr char kBar[] = "\xE2\x96\x81";

// Keys whose views refer to texts of their own.
struct Keys {
  std::vector<std::string> tokens, merges;
  VocabularyKeys keys;

  int32_t Add(const std::string& text, TokenType type = kNormal,
              float score = 0) {
    tokens.push_back(text);
    keys.types.push_back(type);
    keys.scores.push_back(score);
    return static_cast<int32_t>(tokens.size()) - 1;
  }
  const VocabularyKeys& Take() {
    keys.tokens.assign(tokens.begin(), tokens.end());
    keys.merges.assign(merges.begin(), merges.end());
    return keys;
  }
  Tokenizer Open() { return Tokenizer::FromKeys(Take()).Take(); }
};

// 256 bytes, "ab", "abc", and tokens of other types.
Keys BytePairs() {
  Keys made;
  made.keys.model = "gpt2";
  made.keys.pre = "qwen2";
  for (int byte = 0; byte < 256; ++byte) {
    made.Add(BytesToAlphabet(std::string(1, static_cast<char>(byte))));
  }
  made.Add("ab");                        // 256
  made.Add("abc");                       // 257
  made.Add("<s>", kControl);             // 258
  made.Add("<think>", kUserDefined);     // 259
  made.Add("[PAD260]", kUnused);         // 260
  made.Add("<|im_end|>", kUserDefined);  // 261
  made.Add("[PAD262]", kUnused);         // 262
  made.merges = {"a b", "ab c"};
  made.keys.scores.clear();
  return made;
}

Ids Encoded(const Tokenizer& tokenizer, std::string_view text,
            bool special = false) {
  EncodeOptions options;
  options.allow_special = options.add_special = special;
  return tokenizer.Encode(text, options).Take();
}

TEST(KeyedTokenizer, BytePairsAndTypes) {
  const Tokenizer tokenizer = BytePairs().Open();
  EXPECT_EQ(tokenizer.kind(), TokenizerKind::kBpe);
  EXPECT_EQ(tokenizer.vocab_size(), 262);  // padding at the end is none
  EXPECT_EQ(Encoded(tokenizer, "abcab"), (Ids{257, 256}));
  EXPECT_EQ(Encoded(tokenizer, "a<think>"), (Ids{'a', 259}));
  // Control tokens are no text of a user, nor is what ends a turn.
  EXPECT_EQ(Encoded(tokenizer, "<s>").size(), 3u);
  EXPECT_EQ(Encoded(tokenizer, "<|im_end|>").size(), 10u);
  EXPECT_EQ(Encoded(tokenizer, "<s>b<|im_end|>", true), (Ids{258, 'b', 261}));
  EXPECT_EQ(Encoded(tokenizer, "[PAD260]").size(), 8u);
  EXPECT_EQ(tokenizer.DecodeText({257, 259, 260, 258, ' '}, false),
            "abc<think><s> ");
  EXPECT_EQ(tokenizer.DecodeText({257, 258, 261}, true), "abc");
  // No normal form is applied.
  EXPECT_EQ(Encoded(tokenizer, "e\xCC\x81"), (Ids{'e', 0xCC, 0x81}));
}

TEST(KeyedTokenizer, TokensOutsideTheAlphabetAreInNoText) {
  Keys made = BytePairs();
  made.tokens[257] = "\xE2\x80\x8D";  // not in it, as Command R lists one
  made.merges.pop_back();
  const Tokenizer tokenizer = made.Open();
  EXPECT_EQ(Encoded(tokenizer, "\xE2\x80\x8D"), (Ids{0xE2, 0x80, 0x8D}));
  EXPECT_EQ(tokenizer.DecodeText({'a', 257}, false), "a\xE2\x80\x8D");
}

TEST(KeyedTokenizer, WhatEndsATurnByItsTextMayBeAnOrdinaryToken) {
  Keys made = BytePairs();
  made.tokens[256] = "</";
  made.tokens[257] = "</s>";
  made.merges = {"< /"};
  EXPECT_EQ(Encoded(made.Open(), "</s>"), (Ids{256, 's', '>'}));
}

TEST(KeyedTokenizer, BeginningsAndEnds) {
  const auto ends = [](const std::function<void(VocabularyKeys&)>& change) {
    Keys made = BytePairs();
    change(made.keys);
    return Encoded(made.Open(), "x", true);
  };
  EXPECT_EQ(ends([](VocabularyKeys& k) { k.bos = 258; }), (Ids{'x'}));
  EXPECT_EQ(ends([](VocabularyKeys& k) {
              k.bos = 258;
              k.eos = 261;
              k.add_bos = k.add_eos = true;
            }),
            (Ids{258, 'x', 261}));
  // Llama 3's splitter adds a BOS where the file does not say.
  EXPECT_EQ(ends([](VocabularyKeys& k) {
              k.pre = "llama-bpe";
              k.bos = 258;
            }),
            (Ids{258, 'x'}));
  EXPECT_EQ(ends([](VocabularyKeys& k) {
              k.pre = "llama-bpe";
              k.bos = 258;
              k.add_bos = false;
            }),
            (Ids{'x'}));
}

TEST(KeyedTokenizer, SplitterDecides) {
  const auto ids = [](const char* pre) {
    Keys made = BytePairs();
    made.Add("1 2", kUserDefined);
    made.tokens.back() = "123";
    made.keys.types.back() = kNormal;
    made.keys.scores.clear();
    made.keys.pre = pre;
    made.merges = {"a b", "ab c"};
    return Encoded(made.Open(), "123abc");
  };
  // A piece that is a token is taken whole by Llama 3's, without merges.
  EXPECT_EQ(ids("llama-bpe"), (Ids{263, 257}));
  EXPECT_EQ(ids("dbrx"), (Ids{'1', '2', '3', 257}));
}

// SentencePiece's rule by its definition: the best pair of all, the leftmost of
// equal ones, until none makes a token.
Ids ByScores(const std::map<std::string, std::pair<int32_t, float>>& known,
             std::vector<std::string> parts) {
  for (;;) {
    size_t best = parts.size();
    float score = -std::numeric_limits<float>::infinity();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = known.find(parts[i] + parts[i + 1]);
      if (found != known.end() && found->second.second > score) {
        best = i;
        score = found->second.second;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<int64_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(known.at(part).first);
  return ids;
}

TEST(KeyedTokenizer, ScoresInTheirOrder) {
  std::mt19937 random(7);
  const std::vector<std::string> letters = {"a", "b", "\xC3\xA9", kBar};
  const auto draw = [&](size_t count) {
    return static_cast<size_t>(random() % count);
  };
  for (int round = 0; round < 60; ++round) {
    Keys made;
    made.keys.model = "llama";
    made.keys.add_space_prefix = round % 2 == 0;
    made.keys.add_bos = false;
    std::map<std::string, std::pair<int32_t, float>> known;
    const auto add = [&](const std::string& text) {
      if (known.contains(text)) return;
      // Few scores, so that many are equal.
      const auto score = -static_cast<float>(draw(5));
      known[text] = {made.Add(text, kNormal, score), score};
    };
    for (const std::string& letter : letters) add(letter);
    for (int i = 0; i < 12; ++i) {
      std::string text;
      for (size_t n = 2 + draw(3); n > 0; --n) text += letters[draw(4)];
      add(text);
    }
    const Tokenizer tokenizer = made.Open();
    for (size_t length : {0u, 1u, 2u, 9u, 70u}) {
      std::string text;
      std::vector<std::string> parts;
      if (length > 0 && *made.keys.add_space_prefix) parts.push_back(kBar);
      for (size_t i = 0; i < length; ++i) {
        parts.push_back(letters[draw(4)]);
        text += parts.back() == kBar ? " " : parts.back();
      }
      EXPECT_EQ(Encoded(tokenizer, text), ByScores(known, parts)) << text;
      EXPECT_EQ(tokenizer.Decode(Encoded(tokenizer, text)), text);
    }
  }
}

// <unk>, the 256 bytes, a bar, letters and joints.
Keys ScoredPairs() {
  Keys made;
  made.keys.model = "llama";
  made.Add("<unk>", kUnknown);
  made.Add("<s>", kControl);
  for (int byte = 0; byte < 256; ++byte) {
    char name[7];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    made.Add(name, kByte);
  }
  made.Add(kBar, kNormal, -9);                     // 258
  made.Add("a", kNormal, -10);                     // 259
  made.Add("b", kNormal, -11);                     // 260
  made.Add("ab", kNormal, -1);                     // 261
  made.Add(std::string(kBar) + "a", kNormal, -2);  // 262
  made.Add("  ", kUserDefined, -1000);             // 263
  made.keys.bos = 1;
  return made;
}

TEST(KeyedTokenizer, ScoredPairsWithBytes) {
  const Tokenizer tokenizer = ScoredPairs().Open();
  EXPECT_EQ(Encoded(tokenizer, "ab a"), (Ids{258, 261, 262}));
  EXPECT_EQ(Encoded(tokenizer, "a\xC3\xA9\xFF"),
            (Ids{262, 2 + 0xC3, 2 + 0xA9, 2 + 0xFF}));
  // Each part between tokens that are found first gets a space.
  EXPECT_EQ(Encoded(tokenizer, "a  b"), (Ids{262, 263, 258, 260}));
  EXPECT_EQ(Encoded(tokenizer, "<s>a", true), (Ids{1, 1, 262}));
  EXPECT_EQ(tokenizer.Decode({262, 2 + 0xC3, 2 + 0xA9, 263}), "a\xC3\xA9  ");
  Keys bare = ScoredPairs();
  bare.keys.types.assign(bare.tokens.size(), kNormal);
  bare.tokens[2 + 'x'] = "x-byte";  // so that nothing writes an x
  EXPECT_FALSE(bare.Open().Encode("xx").ok());
  bare.keys.unknown = 0;
  EXPECT_EQ(Encoded(bare.Open(), "xx"), (Ids{258, 0}));
}

TEST(KeyedTokenizer, Unigram) {
  Keys made;
  made.keys.model = "t5";
  made.keys.eos = 1;
  made.Add("<unk>", kUnknown);
  made.Add("</s>", kControl);
  made.Add(kBar, kNormal, -3);
  made.Add("a", kNormal, -1);
  made.Add("b", kNormal, -1);
  made.Add("ab", kNormal, -1.5);
  const Tokenizer tokenizer = made.Open();
  EXPECT_EQ(tokenizer.kind(), TokenizerKind::kUnigram);
  EXPECT_EQ(Encoded(tokenizer, "ab b", true), (Ids{5, 2, 4, 1}));
  made.keys.add_space_prefix = true;
  EXPECT_EQ(Encoded(made.Open(), "abx"), (Ids{2, 5, 0}));
  made.keys.charsmap = true;
  EXPECT_FALSE(Tokenizer::FromKeys(made.Take()).ok());
}

Keys World() {
  Keys made;
  made.keys.model = "rwkv";
  made.Add("<s>", kControl);
  for (int byte = 0; byte < 256; ++byte) {
    char name[5];
    std::snprintf(name, sizeof(name), "\\x%02x", byte);
    const bool plain = byte >= 0x20 && byte < 0x7F && byte != '\\';
    made.Add(plain ? std::string(1, static_cast<char>(byte)) : name);
  }
  made.Add("it's");         // as Python writes it between "
  made.Add("\\'\"");        // and what holds both quotes
  made.Add("\\n\\t\\\\n");  // a newline, a tab, a backslash, an n
  made.Add("[PAD260]", kUnused);
  made.keys.scores.clear();
  return made;
}

TEST(KeyedTokenizer, EscapedBytes) {
  const Tokenizer tokenizer = World().Open();
  EXPECT_EQ(tokenizer.kind(), TokenizerKind::kWorld);
  EXPECT_EQ(tokenizer.vocab_size(), 260);
  EXPECT_EQ(Encoded(tokenizer, "it's'\"\n\t\\n\xFF"),
            (Ids{257, 258, 259, 256}));
  EXPECT_EQ(tokenizer.Decode({257, 258, 259}), "it's'\"\n\t\\n");
}

TEST(KeyedTokenizer, WaysBack) {
  std::vector<Tokenizer> all = {BytePairs().Open(), ScoredPairs().Open(),
                                World().Open()};
  for (const Tokenizer& tokenizer : all) {
    const VocabularyKeys keys = tokenizer.ToKeys().Take();
    EXPECT_EQ(static_cast<int64_t>(keys.tokens.size()), tokenizer.vocab_size());
    const Tokenizer again = Tokenizer::FromKeys(keys).Take();
    EXPECT_TRUE(again == tokenizer) << keys.model;
    const Tokenizer json = Tokenizer::FromJson(tokenizer.ToJson()).Take();
    for (const char* text : {"", " ", "abcab it's\n\t\\n", "ab  \xC3\xA9 a"}) {
      EXPECT_EQ(Encoded(again, text, true), Encoded(tokenizer, text, true));
      EXPECT_EQ(Encoded(json, text, true), Encoded(tokenizer, text, true));
    }
    const Tokenizer rewritten =
        Tokenizer::FromKeys(json.ToKeys().Take()).Take();
    EXPECT_EQ(Encoded(rewritten, "ab  a b", true),
              Encoded(tokenizer, "ab  a b", true));
  }
}

TEST(KeyedTokenizer, BytesAndIdsAsKeys) {
  const Tokenizer bytes =
      Tokenizer::FromKeys(Tokenizer::Byte().ToKeys().Take()).Take();
  std::string text;
  for (int byte = 255; byte >= 0; --byte) text += static_cast<char>(byte);
  EXPECT_EQ(Encoded(bytes, text), Encoded(Tokenizer::Byte(), text));
  EXPECT_EQ(bytes.Decode(Encoded(bytes, text)), text);
  EXPECT_EQ(Tokenizer::Ids(9).ToKeys().Take().model, "none");
  const auto characters = Tokenizer::Char({'a', 'b'}).ToKeys();
  ASSERT_FALSE(characters.ok());
  EXPECT_EQ(characters.error().given(), "char");
}

TEST(KeyedTokenizer, RefusesByKey) {
  struct Case {
    std::function<Keys()> keys;
    std::function<void(Keys&)> change;
    const char* where;
  };
  const float nan = std::nanf("");
  const std::vector<Case> cases = {
      {BytePairs, [](Keys& k) { k.keys.model = "bert"; }, ".model"},
      {BytePairs, [](Keys& k) { k.keys.model = ""; }, ".model"},
      {BytePairs, [](Keys& k) { k.keys.pre = "bloom"; }, ".pre"},
      {BytePairs, [](Keys& k) { k.keys.pre = ""; }, ".pre"},
      {BytePairs, [](Keys& k) { k.tokens.clear(); }, ".tokens"},
      {BytePairs, [](Keys& k) { k.keys.types.pop_back(); }, ".token_type"},
      {BytePairs, [](Keys& k) { k.keys.types[0] = static_cast<TokenType>(7); },
       ".token_type[0]"},
      {BytePairs,
       [](Keys& k) { k.keys.types.assign(k.tokens.size(), kUnused); },
       ".token_type"},
      {BytePairs, [](Keys& k) { k.tokens[5] = k.tokens[6]; }, ".tokens"},
      {BytePairs, [](Keys& k) { k.tokens[5] = "\xFF"; }, ".tokens[5]"},
      {BytePairs, [](Keys& k) { k.tokens[5] = std::string(65537, 'a'); },
       ".tokens[5]"},
      {BytePairs, [](Keys& k) { k.tokens[258] = std::string(300, '<'); },
       ".tokens: added tokens"},
      {BytePairs, [](Keys& k) { k.merges[1] = "ab"; }, ".merges[1]"},
      {BytePairs, [](Keys& k) { k.merges[1] = "a b c"; }, ".merges[1]"},
      {BytePairs, [](Keys& k) { k.merges[1] = "a z"; }, ".merges[1]"},
      {BytePairs, [](Keys& k) { k.merges[1] = " ab"; }, ".merges[1]"},
      {BytePairs, [](Keys& k) { k.merges[1] = k.merges[0]; }, ".merges"},
      {BytePairs, [](Keys& k) { k.keys.bos = 263; }, ".bos_token_id"},
      {BytePairs, [](Keys& k) { k.keys.eos = -1; }, ".eos_token_id"},
      {BytePairs, [](Keys& k) { k.keys.add_bos = true; }, ".bos_token_id"},
      {BytePairs,
       [](Keys& k) {
         k.keys.eos = 262;
         k.keys.add_eos = true;
       },
       ".token_type"},
      {ScoredPairs, [](Keys& k) { k.keys.scores.clear(); }, ".scores"},
      {ScoredPairs, [](Keys& k) { k.keys.scores.pop_back(); }, ".scores"},
      {ScoredPairs, [nan](Keys& k) { k.keys.scores[3] = nan; }, ".scores[3]"},
      {ScoredPairs, [](Keys& k) { k.tokens[261] = std::string(1025, 'a'); },
       ".tokens[261]"},
      {World, [](Keys& k) { k.keys.types[9] = kUnused; }, ".tokens[9]"},
      {World, [](Keys& k) { k.tokens[9] = "\\q"; }, ".tokens[9]"},
      {World, [](Keys& k) { k.tokens[9] = "\\x8"; }, ".tokens[9]"},
      {World, [](Keys& k) { k.tokens[9] = "\\x07"; }, ".tokens: vocabulary"},
      {World, [](Keys& k) { k.tokens[258] = std::string(257, 'a'); },
       ".tokens: vocabulary"},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    Keys made = cases[i].keys();
    cases[i].change(made);
    const auto given = Tokenizer::FromKeys(made.Take());
    ASSERT_FALSE(given.ok()) << "case " << i;
    EXPECT_EQ(given.error().code(), ErrorCode::kFormat);
    EXPECT_TRUE(given.error().where().starts_with(
        std::string("tokenizer.ggml") + cases[i].where))
        << given.error().what();
  }
}

}  // namespace
}  // namespace tarn
