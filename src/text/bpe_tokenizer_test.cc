#include "text/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "core/test_util.h"
#include "text/byte_alphabet.h"
#include "text/split/patterns.h"
#include "text/tokenizer.h"
#include "text/world_tokenizer.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

// All 256 bytes, id = byte, and `extra` merges of random tokens. Merges need
// not be in an order that training could give.
BpeDefinition RandomDefinition(uint32_t seed, int extra, int letters) {
  std::mt19937 random(seed);
  BpeDefinition definition;
  for (int b = 0; b < 256; ++b) {
    definition.tokens.emplace_back(1, static_cast<char>(b));
  }
  std::map<std::string, int32_t> ids;
  std::vector<int32_t> used;
  for (int i = 0; i < letters; ++i) used.push_back('a' + i);
  std::vector<std::pair<int32_t, int32_t>> pairs;
  while (extra-- > 0) {
    const int32_t left = used[random() % used.size()];
    const int32_t right = used[random() % used.size()];
    const std::pair pair{left, right};
    if (std::count(pairs.begin(), pairs.end(), pair) != 0) continue;
    pairs.push_back(pair);
    const std::string text = definition.tokens[static_cast<size_t>(left)] +
                             definition.tokens[static_cast<size_t>(right)];
    const auto [at, fresh] = ids.emplace(text, definition.tokens.size());
    if (fresh) {
      definition.tokens.push_back(text);
      used.push_back(at->second);
    }
    definition.merges.push_back({left, right, at->second});
  }
  std::shuffle(definition.merges.begin(), definition.merges.end(), random);
  return definition;
}

// By definition: the first merge in the list that applies, leftmost.
std::vector<int32_t> MergeByDefinition(const BpeDefinition& definition,
                                       const std::string& text) {
  std::vector<int32_t> symbols;
  for (const char c : text) symbols.push_back(static_cast<uint8_t>(c));
  for (bool again = true; again;) {
    again = false;
    for (const BpeMerge& merge : definition.merges) {
      const int32_t pair[] = {merge.left, merge.right};
      const auto at =
          std::search(symbols.begin(), symbols.end(), pair, pair + 2);
      if (at == symbols.end()) continue;
      *at = merge.result;
      symbols.erase(at + 1);
      again = true;
      break;
    }
  }
  return symbols;
}

TEST(BpeMerger, MergesByDefinitionInAnyOrderOfRanks) {
  std::mt19937 random(7);
  for (uint32_t seed = 0; seed < 60; ++seed) {
    BpeDefinition definition = RandomDefinition(seed, 30, 2 + seed % 3);
    definition.split = nullptr;
    const Tokenizer tokenizer = Tokenizer::Bpe(definition);
    // Short pieces and long ones take different paths.
    for (const size_t size : {0u, 1u, 2u, 7u, 47u, 48u, 49u, 50u, 300u}) {
      std::string text(size, 'a');
      for (char& c : text) {
        c = static_cast<char>('a' + random() % (2 + seed % 3));
      }
      const std::vector<int32_t> ids = tokenizer.Encode(text).Take();
      ASSERT_EQ(ids, MergeByDefinition(definition, text)) << seed << text;
      ASSERT_EQ(tokenizer.Decode(ids), text);
    }
  }
}

TEST(BpeTokenizer, RoundTripsRandomBytesAndItsOwnJson) {
  std::mt19937 random(8);
  const Tokenizer tokenizer = Tokenizer::Bpe(RandomDefinition(1, 100, 6));
  const Tokenizer again = Tokenizer::FromJson(tokenizer.ToJson()).Take();
  EXPECT_EQ(again, tokenizer);
  for (int trial = 0; trial < 300; ++trial) {
    std::string text(random() % 200, ' ');
    for (char& c : text) {
      c = static_cast<char>(trial % 2 ? random() : 'a' + random() % 6);
    }
    ASSERT_EQ(again.Decode(again.Encode(text).Take()), text);
  }
}

AddedToken Added(int32_t id, const std::string& content) {
  AddedToken token;
  token.id = id;
  token.content = content;
  return token;
}

// Bytes and some added tokens, ids from 256 on.
Tokenizer WithAdded(std::vector<AddedToken> added, bool nfc = false) {
  BpeDefinition definition = RandomDefinition(0, 0, 1);
  for (AddedToken& token : added) {
    token.id = static_cast<int32_t>(definition.tokens.size());
    definition.tokens.push_back(token.content);
  }
  definition.added = std::move(added);
  definition.nfc = nfc;
  return Tokenizer::Bpe(std::move(definition));
}

using Ids = std::vector<int32_t>;

TEST(BpeTokenizer, AddedTokensLongestFirst) {
  const Tokenizer tokenizer =
      WithAdded({Added(0, "  "), Added(0, "    "), Added(0, "<x>")});
  EXPECT_EQ(tokenizer.Encode("a       <x>").Take(),
            (Ids{'a', 257, 256, ' ', 258}));
  EXPECT_EQ(tokenizer.Encode("<x").Take(), (Ids{'<', 'x'}));
  EXPECT_EQ(tokenizer.Encode("").Take(), Ids{});
}

TEST(BpeTokenizer, AddedTokensHonourTheirFlags) {
  AddedToken word = Added(0, "cat"), left = Added(0, "<l>"),
             right = Added(0, "<r>"), special = Added(0, "<s>");
  word.single_word = true;
  left.lstrip = true;
  right.rstrip = true;
  special.special = true;
  const Tokenizer tokenizer = WithAdded({word, left, right, special});
  EXPECT_EQ(tokenizer.Encode("cat").Take(), Ids{256});
  EXPECT_EQ(tokenizer.Encode("(cat)").Take(), (Ids{'(', 256, ')'}));
  EXPECT_EQ(tokenizer.Encode("cats").Take(), (Ids{'c', 'a', 't', 's'}));
  EXPECT_EQ(tokenizer
                .Encode("\xC3\xA9"
                        "cat")
                .Take()
                .size(),
            5u);
  EXPECT_EQ(tokenizer.Encode("a \t<l> b").Take(), (Ids{'a', 257, ' ', 'b'}));
  EXPECT_EQ(tokenizer.Encode("a <r> \nb").Take(), (Ids{'a', ' ', 258, 'b'}));
  EXPECT_EQ(tokenizer.Encode("<r> <l>").Take(), (Ids{258, 257}));
  EXPECT_EQ(tokenizer.Encode("<s>").Take(), (Ids{'<', 's', '>'}));
  EXPECT_EQ(tokenizer.Encode("<s>", EncodeOptions{true, 0}).Take(), Ids{259});
  EXPECT_EQ(Tokenizer::FromJson(tokenizer.ToJson()).Take(), tokenizer);
}

TEST(BpeTokenizer, AddedTokensBeforeAndAfterNormalising) {
  AddedToken raw = Added(0, "e\xCC\x81"), late = Added(0, "o\xCC\x81");
  late.normalized = true;
  const Tokenizer tokenizer = WithAdded({raw, late}, true);
  // e + accent as written; e-acute composed is other text.
  EXPECT_EQ(tokenizer.Encode("e\xCC\x81").Take(), Ids{256});
  EXPECT_EQ(tokenizer.Encode("\xC3\xA9").Take(), (Ids{0xC3, 0xA9}));
  // o-acute is found in either form.
  EXPECT_EQ(tokenizer.Encode("o\xCC\x81\xC3\xB3").Take(), (Ids{257, 257}));
}

TEST(BpeTokenizer, IgnoreMergesTakesAWholePiece) {
  BpeDefinition definition = RandomDefinition(0, 0, 1);
  definition.tokens.push_back("ab");
  definition.tokens.push_back("abc");  // no merge makes it
  definition.merges = {{'a', 'b', 256}};
  EXPECT_EQ(Tokenizer::Bpe(definition).Encode("abc").Take(), (Ids{256, 'c'}));
  definition.ignore_merges = true;
  const Tokenizer tokenizer = Tokenizer::Bpe(definition);
  EXPECT_EQ(tokenizer.Encode("abc").Take(), Ids{257});
  EXPECT_EQ(tokenizer.Encode("abcabc").Take(), (Ids{256, 'c', 256, 'c'}));
  EXPECT_TRUE(Tokenizer::FromJson(tokenizer.ToJson()).Take() == tokenizer);
}

TEST(BpeTokenizer, ByteAlphabet) {
  EXPECT_EQ(BytesToAlphabet(" a\n"),
            "\xC4\xA0"
            "a\xC4\x8A");
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(AlphabetToBytes(BytesToAlphabet(all)), all);
  EXPECT_FALSE(AlphabetToBytes(" ").has_value());
  EXPECT_FALSE(AlphabetToBytes("\xE4\xB8\xAD").has_value());
}

// --- tokenizer.json from outside ---

Json SmallJson() {
  BpeDefinition definition = RandomDefinition(3, 4, 3);
  AddedToken token =
      Added(static_cast<int32_t>(definition.tokens.size()), "<e>");
  token.special = true;
  definition.tokens.push_back(token.content);
  definition.added.push_back(token);
  return Json::parse(Tokenizer::Bpe(definition).ToJson());
}

// A pattern that is not GPT-2's cuts as its row says, and is written as a Split
// that only a build with such a row reads.
TEST(BpeJson, APatternIsARow) {
  static const SplitPattern pairs = {
      "pairs", ".{2}",
      [](std::string_view text) { return std::min<size_t>(2, text.size()); }};
  BpeDefinition definition;
  definition.tokens = {"a", "aa", "aaa"};
  definition.merges = {{0, 0, 1}, {1, 0, 2}};
  const auto tokens = [&] {
    return Tokenizer::Bpe(definition).Encode("aaaaa").Take();
  };
  EXPECT_EQ(tokens(), (std::vector<int32_t>{1, 2}));
  definition.split = &pairs;
  EXPECT_EQ(tokens(), (std::vector<int32_t>{1, 1, 0}));
  const std::string json = Tokenizer::Bpe(definition).ToJson();
  const Json pre = Json::parse(json)["pre_tokenizer"];
  EXPECT_EQ(pre["pretokenizers"][0]["pattern"]["Regex"], ".{2}");
  EXPECT_EQ(pre["pretokenizers"][1]["use_regex"], false);
  EXPECT_EQ(ErrorOf([&] { Tokenizer::FromJson(json).Take(); }).wanted(),
            SplitPatternNames());
}

TEST(BpeJson, TakesTheFormsInUse) {
  const Tokenizer want = Tokenizer::FromJson(SmallJson().dump()).Take();
  const std::vector<std::function<void(Json&)>> same = {
      [](Json& j) { j["model"].erase("type"); },
      [](Json& j) { j["model"]["unk_token"] = ""; },
      [](Json& j) { j["model"]["dropout"] = 0.0; },
      [](Json& j) { j["model"].erase("ignore_merges"); },
      [](Json& j) { j["pre_tokenizer"].erase("use_regex"); },
      [](Json& j) { j["post_processor"] = j["decoder"]; },
      [](Json& j) { j.erase("truncation"); },
      [](Json& j) {
        for (Json& merge : j["model"]["merges"]) {
          merge =
              merge[0].get<std::string>() + " " + merge[1].get<std::string>();
        }
      },
      [](Json& j) {
        Json bytes = j["pre_tokenizer"];
        bytes["use_regex"] = false;
        const Json split = {{"type", "Split"},
                            {"pattern",
                             {{"Regex",
                               "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                               "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"}}},
                            {"behavior", "Isolated"},
                            {"invert", false}};
        j["pre_tokenizer"] = {{"type", "Sequence"},
                              {"pretokenizers", Json::array({split, bytes})}};
      }};
  for (size_t i = 0; i < same.size(); ++i) {
    Json json = SmallJson();
    same[i](json);
    const auto got = Tokenizer::FromJson(json.dump());
    ASSERT_TRUE(got.ok()) << i << got.error().what();
    EXPECT_EQ(got.value(), want) << i;
  }
  Json other = SmallJson();
  other["pre_tokenizer"]["use_regex"] = false;
  EXPECT_EQ(nullptr, Tokenizer::FromJson(other.dump()).Take().bpe()->split);
  other["normalizer"] = {{"type", "NFC"}};
  EXPECT_TRUE(Tokenizer::FromJson(other.dump()).Take().bpe()->nfc);
}

TEST(BpeJson, RefusesTheRestByItsPath) {
  struct Case {
    const char* where;
    std::function<void(Json&)> change;
  };
  const std::vector<Case> cases = {
      {"model.dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }},
      {"model.type", [](Json& j) { j["model"]["type"] = "WordPiece"; }},
      {"model.byte_fallback",
       [](Json& j) { j["model"]["byte_fallback"] = true; }},
      {"model.end_of_word_suffix",
       [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }},
      {"model", [](Json& j) { j["model"]["extra"] = 1; }},
      {"model", [](Json& j) { j["model"] = 3; }},
      {"model.merges[0]",
       [](Json& j) { j["model"]["vocab"] = Json::object(); }},
      {"model.vocab", [](Json& j) { j["model"]["vocab"]["zz"] = 5; }},
      {"model.vocab", [](Json& j) { j["model"]["vocab"]["zz"] = 900; }},
      {"model.vocab.'zz'",
       [](Json& j) { j["model"]["vocab"]["zz"] = 2147483648; }},
      {"model.vocab.'zz'", [](Json& j) { j["model"]["vocab"]["zz"] = -1; }},
      {"model.vocab.'zz'", [](Json& j) { j["model"]["vocab"]["zz"] = 0.5; }},
      {"model.vocab", [](Json& j) { j["model"]["vocab"]["z z"] = 261; }},
      {"model.vocab",
       [](Json& j) {
         j["added_tokens"].clear();
         j["model"]["vocab"][""] = 260;
       }},
      {"model.merges[4]",
       [](Json& j) {
         j["model"]["merges"].push_back({"a", "none"});
       }},
      {"model.merges[4]",
       [](Json& j) { j["model"]["merges"].push_back("abc"); }},
      {"model.merges[4]",
       [](Json& j) { j["model"]["merges"].push_back("a b c"); }},
      {"model.merges[4]", [](Json& j) { j["model"]["merges"].push_back(4); }},
      {"model.merges[4]",
       [](Json& j) {
         j["model"]["merges"].push_back({"a", "a", "a"});
       }},
      {"model.merges",
       [](Json& j) {
         j["model"]["merges"].push_back(Json(j["model"]["merges"][0]));
       }},
      {"model.merges", [](Json& j) { j["model"].erase("merges"); }},
      {"normalizer.type",
       [](Json& j) { j["normalizer"]["type"] = "Precompiled"; }},
      {"pre_tokenizer", [](Json& j) { j["pre_tokenizer"] = nullptr; }},
      {"pre_tokenizer.type",
       [](Json& j) { j["pre_tokenizer"]["type"] = "Whitespace"; }},
      {"pre_tokenizer.add_prefix_space",
       [](Json& j) { j["pre_tokenizer"].erase("add_prefix_space"); }},
      {"pre_tokenizer",
       [](Json& j) { j["pre_tokenizer"]["prepend_scheme"] = "always"; }},
      {"pre_tokenizer.pretokenizers[0].pattern.Regex",
       [](Json& j) {
         const Json bytes = j["pre_tokenizer"];
         const Json split = {{"type", "Split"},
                             {"pattern", {{"Regex", "\\s+"}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
         j["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", Json::array({split, bytes})}};
       }},
      {"post_processor.type",
       [](Json& j) { j["post_processor"]["type"] = "BertProcessing"; }},
      {"post_processor.single",
       [](Json& j) { j["post_processor"]["type"] = "TemplateProcessing"; }},
      {"decoder", [](Json& j) { j["decoder"] = nullptr; }},
      {"decoder.type", [](Json& j) { j["decoder"]["type"] = "WordPiece"; }},
      {"truncation",
       [](Json& j) {
         j["truncation"] = {{"max_length", 5}};
       }},
      {"version", [](Json& j) { j["version"] = "2.0"; }},
      {"added_tokens[0]", [](Json& j) { j["added_tokens"][0]["more"] = 1; }},
      {"added_tokens[0].id", [](Json& j) { j["added_tokens"][0]["id"] = -1; }},
      {"added_tokens[0].lstrip",
       [](Json& j) { j["added_tokens"][0]["lstrip"] = 1; }},
      {"added_tokens", [](Json& j) { j["added_tokens"][0]["id"] = 97; }},
      {"added_tokens", [](Json& j) { j["added_tokens"][0]["content"] = "a"; }},
      {"added_tokens[0].content",
       [](Json& j) {
         j["added_tokens"][0]["content"] = std::string(300, '<');
       }},
      {"model.vocab", [](Json& j) { j["added_tokens"][0]["content"] = ""; }}};
  for (const Case& c : cases) {
    Json json = SmallJson();
    c.change(json);
    const auto got = Tokenizer::FromJson(json.dump());
    ASSERT_FALSE(got.ok()) << c.where;
    EXPECT_EQ(got.error().code(), ErrorCode::kFormat);
    EXPECT_EQ(got.error().where(), std::string("tokenizer.json: ") + c.where)
        << got.error().what();
  }
}

// Any text, however broken, gives only an error or a tokenizer that keeps the
// contract.
TEST(BpeJson, SurvivesRandomDamage) {
  const std::string good = SmallJson().dump();
  std::mt19937 random(11);
  int accepted = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bad = good;
    for (int i = random() % 3; i >= 0; --i) {
      const size_t at = random() % bad.size();
      switch (random() % 3) {
        case 0:
          bad[at] = static_cast<char>(random() % 128);
          break;
        case 1:
          bad.erase(at, 1 + random() % 9);
          break;
        default:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 9));
      }
    }
    const auto got = Tokenizer::FromJson(bad);
    if (!got.ok()) continue;
    ++accepted;
    const auto ids = got.value().Encode("abc <e> cab \xFF");
    if (!ids.ok()) continue;
    EXPECT_EQ(got.value().Decode(ids.value()), "abc <e> cab \xFF");
  }
  EXPECT_GT(accepted, 0);
}

// --- World ---

std::string SmallWorld(const std::string& more = "") {
  std::string text;
  constexpr char kHex[] = "0123456789abcdef";
  for (int b = 0; b < 256; ++b) {
    const char hex[] = {kHex[b / 16], kHex[b % 16], 0};
    text += std::to_string(b + 1) + " b'\\x" + hex + "' 1\n";
  }
  return text + more;
}

TEST(World, ParsesPythonLiterals) {
  struct Case {
    const char *literal, *bytes;
  };
  for (const Case& c :
       std::vector<Case>{{"'a b'", "a b"},
                         {"\"it's\"", "it's"},
                         {"'\\x80'", "\xC2\x80"},
                         {"b'\\x80'", "\x80"},
                         {"'\\u4e2d'", "\xE4\xB8\xAD"},
                         {"'\\U0001f600'", "\xF0\x9F\x98\x80"},
                         {"'\xE4\xB8\xAD'", "\xE4\xB8\xAD"},
                         {"'\\n\\r\\t\\\\\\'\\\"'", "\n\r\t\\'\""},
                         {"''", ""}}) {
    EXPECT_EQ(ParsePythonLiteral(c.literal).Take(), c.bytes) << c.literal;
  }
  for (const char* bad :
       {"", "'", "a", "'a", "'a\"", "'a'b'", "'\\'", "'\\x8'", "'\\xg0'",
        "'\\q'", "'\\ud800'", "'\\U00110000'", "b'\\u4e2d'", "b'\xE4\xB8\xAD'",
        "'\xFF'", "u'a'", "'\\x-1'", "'\\101'"}) {
    EXPECT_FALSE(ParsePythonLiteral(bad).ok()) << bad;
  }
}

TEST(World, GreedyLongestMatch) {
  const Tokenizer world = Tokenizer::World(
      WorldTokenizer::FromText(SmallWorld("257 'ab' 2\n258 'abcd' 4\n"))
          .Take());
  EXPECT_EQ(world.vocab_size(), 259);
  EXPECT_EQ(world.Encode("abcabcd").Take(), (Ids{257, 'c' + 1, 258}));
  EXPECT_EQ(world.Decode({257, 0, 258}), "ababcd");
  EXPECT_EQ(Tokenizer::FromJson(world.ToJson()).Take(), world);
}

TEST(World, RefusesBadLines) {
  for (const char* line :
       {"257 'ab' 3\n", "258 'ab' 2\n", "256 'ab' 2\n", "257 'ab'\n", "257\n",
        "\n", "257 '' 0\n", "257 'a' 1\n", "-257 'ab' 2\n", "257  'ab' 2\n",
        "257 'ab' 2 \n", "4294967553 'ab' 2\n", "257 open('x') 2\n"}) {
    const auto got = WorldTokenizer::FromText(SmallWorld(line));
    ASSERT_FALSE(got.ok()) << line;
    EXPECT_EQ(got.error().code(), ErrorCode::kFormat);
  }
  EXPECT_EQ(
      WorldTokenizer::FromText(SmallWorld("257 'ab' 3\n")).error().where(),
      "vocabulary: line 257");
  EXPECT_FALSE(WorldTokenizer::FromText("1 'a' 1\n").ok());  // bytes missing
  EXPECT_FALSE(WorldTokenizer::FromText(
                   SmallWorld("257 '" + std::string(257, 'x') + "' 257\n"))
                   .ok());
}

TEST(World, SurvivesRandomDamage) {
  const std::string good = SmallWorld("257 'ab' 2\n258 b'\\xff\\x00' 2\n");
  std::mt19937 random(12);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string bad = good;
    // Near the end, where a change is not always fatal.
    const size_t at = bad.size() - 1 - random() % 40;
    bad[at] = static_cast<char>(random());
    if (trial % 3 == 0) bad.erase(at, random() % 5);
    const auto got = WorldTokenizer::FromText(bad);
    if (!got.ok()) continue;
    const std::string text = "ab\xFF ab";
    std::string back;
    for (const int32_t id : got.value().Encode(text)) {
      back += got.value().Bytes(id);
    }
    EXPECT_EQ(back, text);
  }
}

}  // namespace
}  // namespace tarn
