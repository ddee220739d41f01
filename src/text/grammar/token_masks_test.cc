// Masks against their definition: a copy of the state takes a token's bytes or
// it does not.
#include "text/grammar/token_masks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "text/world_tokenizer.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;

bool Bit(const std::vector<uint32_t>& mask, int32_t id) {
  return (mask[static_cast<size_t>(id / 32)] >> (id % 32) & 1) != 0;
}

std::string TokenBytes(const Tokenizer& tokenizer, int32_t id) {
  std::string bytes;
  tokenizer.Decode(id, bytes);
  return bytes;
}

std::vector<uint32_t> MaskOf(const TokenMasks& masks,
                             const GrammarState& state) {
  std::vector<uint32_t> mask(static_cast<size_t>(masks.mask_words()), ~0u);
  masks.Fill(state, mask);
  return mask;
}

// All bytes, and tokens of several: 0 has none.
Tokenizer SmallTokenizer() {
  std::string file;
  int id = 0;
  const auto add = [&](const std::string& bytes) {
    std::string literal = "b'";
    for (const char c : bytes) {
      char text[8];
      std::snprintf(text, sizeof(text), "\\x%02x", static_cast<uint8_t>(c));
      literal += text;
    }
    file += std::to_string(++id) + " " + literal + "' " +
            std::to_string(bytes.size()) + "\n";
  };
  for (int byte = 0; byte < 256; ++byte) {
    add(std::string(1, static_cast<char>(byte)));
  }
  for (const char* text :
       {"\"}",      "\":",   "\": ",      "\",",      "\", \"",     "{\"",
        "[{\"",     "}]",    "]}",        "}}",       "]]",         "[[",
        "[1",       ", ",    ",\n",       "\n  ",     "true",       "tru",
        "e}",       "null,", "12",        "34.5",     "e10",        "-1",
        "\\u00",    "\\\"",  "\\\\\"",    "ab",       "abc",        "a\"",
        "a\",\"",   "\"\"",  "\"a\": 1}", "\xC3\xA9", "\xC3\xA9\"", "\x98\x80",
        "\xF0\x9F", "()",    "((",        "))",       ")(",         "(a",
        "a)",       "a))",   "a)]",       ")]",       "]",          ")}",
        "  ",       "{}",    "{} ",       "[]",       "aaaa",       "ba",
        "\xA9\"}",  "\"}}}", "]]]]",      ")))))",    "x)))]"}) {
    std::string text_string(text);
    if (text_string.size() > 1) add(text_string);
  }
  return Tokenizer::World(WorldTokenizer::FromText(file).Take());
}

struct NamedGrammar {
  const char* name;
  Grammar grammar;
};

std::vector<NamedGrammar> Grammars() {
  std::vector<NamedGrammar> grammars;
  const auto gbnf = [&](const char* name, const char* source) {
    grammars.push_back({name, Grammar::FromGbnf(source).Take()});
  };
  const auto schema = [&](const char* name, const char* source) {
    grammars.push_back({name, Grammar::FromJsonSchema(source).Take()});
  };
  grammars.push_back({"json", Grammar::AnyJson()});
  grammars.push_back({"dense json", Grammar::AnyJson({.white_space = false})});
  gbnf("brackets",
       "root ::= item+\nitem ::= \"(\" item* \")\" | \"[\" item* \"]\" | name\n"
       "name ::= [a-c]+ | \"\xC3\xA9\"");
  // Many stacks at one time, and rules that end together.
  gbnf("ambiguous",
       "root ::= (a | b | c)+\na ::= \"(\" root \")\" | \"a\"\n"
       "b ::= \"(\" root \")\" \"]\"? | \"a\" [ab]*\n"
       "c ::= \"(\" (root | d) (\")\" | \"}\")\nd ::= \"a\"* \")\" d | \"x\"");
  gbnf("right", "root ::= \"a\" root | \"(\" root \")\" root | \"b\" | \"\"");
  gbnf("calls of one character",
       "root ::= \"\\\"\" char{2,40} \"\\\"\" end\n"
       "char ::= [^\"\\\\] | \"\\\\\" char\nend ::= \")\" end | \"}\"");
  gbnf("any", "root ::= .*");
  schema("schema",
         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},"
         "\"ab\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},"
         "\"c\":{\"$ref\":\"#\"}},\"required\":[\"a\"],"
         "\"additionalProperties\":{\"type\":\"boolean\"}}");
  schema("lengths",
         "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":2,"
         "\"maxLength\":5},\"minItems\":1,\"maxItems\":4}");
  grammars.push_back(
      {"regex", Grammar::FromRegex("(?:[a-z]+\\(\\d{1,3}\\)\\s)*").Take()});
  return grammars;
}

// Positions after random tokens that the masks allow.
std::vector<GrammarState> RandomStates(const TokenMasks& masks,
                                       const Grammar& grammar,
                                       const Tokenizer& tokenizer, int count,
                                       uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<GrammarState> states;
  GrammarState state(grammar);
  for (int steps = 0; static_cast<int>(states.size()) < count; ++steps) {
    states.push_back(state);
    const std::vector<uint32_t> mask = MaskOf(masks, state);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < masks.vocab_size(); ++id) {
      if (Bit(mask, id)) allowed.push_back(id);
    }
    bool moved = false;
    for (int tries = 0; tries < 5 && !allowed.empty() && !moved; ++tries) {
      const int32_t id = allowed[random() % allowed.size()];
      moved = state.Push(TokenBytes(tokenizer, id)) &&
              !TokenBytes(tokenizer, id).empty();
    }
    if (!moved || random() % 40 == 0) state = GrammarState(grammar);
  }
  return states;
}

void ExpectMask(const std::vector<uint32_t>& mask, const GrammarState& state,
                const Tokenizer& tokenizer, const std::vector<bool>& never,
                const std::vector<int32_t>& stop, const std::string& what) {
  int wrong = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string bytes = TokenBytes(tokenizer, id);
    bool wanted = false;
    if (std::find(stop.begin(), stop.end(), id) != stop.end()) {
      wanted = state.complete();
    } else if (!bytes.empty() && !never[static_cast<size_t>(id)]) {
      GrammarState copy = state;
      wanted = copy.Push(bytes);
    }
    if (Bit(mask, id) == wanted) continue;
    if (++wrong < 4) {
      ADD_FAILURE() << what << ": token " << id << " '" << bytes << "' wanted "
                    << wanted;
    }
  }
  for (size_t id = static_cast<size_t>(tokenizer.vocab_size());
       id < 32 * mask.size(); ++id) {
    EXPECT_FALSE(Bit(mask, static_cast<int32_t>(id)));
  }
}

TEST(TokenMasks, EveryTokenOfSmallVocabularies) {
  for (const Tokenizer& tokenizer : {Tokenizer::Byte(), SmallTokenizer()}) {
    const std::vector<int32_t> stop = {0, 3};
    const std::vector<bool> never(static_cast<size_t>(tokenizer.vocab_size()));
    for (const auto& [name, grammar] : Grammars()) {
      const TokenMasks masks(grammar, tokenizer, stop);
      // Without caches, and with room for about one mask.
      const TokenMasks bare(grammar, tokenizer, stop,
                            {.cache_bytes = 0, .states = 0});
      const TokenMasks tight(grammar, tokenizer, stop,
                             {.cache_bytes = 2000, .states = 1});
      uint32_t seed = 1;
      for (const GrammarState& state :
           RandomStates(masks, grammar, tokenizer, 60, seed++)) {
        const std::vector<uint32_t> mask = MaskOf(masks, state);
        ExpectMask(mask, state, tokenizer, never, stop, name);
        ASSERT_EQ(mask, MaskOf(bare, state)) << name;
        ASSERT_EQ(mask, MaskOf(tight, state)) << name;
        ASSERT_LE(tight.cached_bytes(), 2000u + 4 * mask.size());
        ASSERT_EQ(bare.cached_bytes(), 0u);
        if (HasFailure()) return;
      }
    }
  }
}

// Near the limits of depth tokens are refused as Push refuses them.
TEST(TokenMasks, AtTheLimits) {
  const Tokenizer tokenizer = SmallTokenizer();
  const std::vector<bool> never(static_cast<size_t>(tokenizer.vocab_size()));
  const Grammar grammar =
      Grammar::FromGbnf("root ::= \"(\" root \")\" | \"[\" root \"]\" | \"\"")
          .Take();
  const TokenMasks masks(grammar, tokenizer, {});
  GrammarState state(grammar);
  int refused = 0;
  for (int depth = 0; depth < 1100; ++depth) {
    if (depth > 1015 || depth % 200 == 0) {
      ExpectMask(MaskOf(masks, state), state, tokenizer, never, {},
                 "depth " + std::to_string(depth));
    }
    if (!state.Push("(")) ++refused;
  }
  EXPECT_GT(refused, 10);
  EXPECT_FALSE(HasFailure());
  // More rules than may be followed at one time: the first byte is refused.
  std::string source = "root ::= ";
  for (int i = 0; i < 300; ++i) {
    source += (i == 0 ? "r" : " | r") + std::to_string(i);
  }
  for (int i = 0; i < 300; ++i) {
    const std::string name = "r" + std::to_string(i);
    source +=
        "\n" + name + " ::= \"a\" " + name + "? \"" + std::to_string(i) + "\"";
  }
  const Grammar wide = Grammar::FromGbnf(source).Take();
  const TokenMasks wide_masks(wide, tokenizer, {});
  const GrammarState start(wide);
  ExpectMask(MaskOf(wide_masks, start), start, tokenizer, never, {}, "wide");
  GrammarState copy = start;
  const std::optional<Error> error = copy.Advance("a");
  ASSERT_TRUE(error.has_value());
  EXPECT_NE(std::string(error->what()).find("256 positions"),
            std::string::npos);
}

// Counts in the place of times: what the second mask at a node costs.
TEST(TokenMasks, LaterMasksTakeFewSteps) {
  const Tokenizer tokenizer = SmallTokenizer();
  const Grammar grammar = Grammar::AnyJson();
  const TokenMasks masks(grammar, tokenizer, {}, {.states = 0});
  const auto steps = [&](const std::string& text) {
    GrammarState state(grammar);
    EXPECT_TRUE(state.Push(text));
    const uint64_t before = masks.steps();
    MaskOf(masks, state);
    return masks.steps() - before;
  };
  const uint64_t first = steps("[\"a");
  EXPECT_GT(first, 256u);
  // At the same node, with other stacks: only what follows the string.
  const uint64_t again = steps("[\"ab");
  EXPECT_LT(again, 40u);
  EXPECT_LT(steps("[[[{\"a\": [\"b"), 60u);
  // With states kept a mask is copied.
  const TokenMasks kept(grammar, tokenizer, {});
  GrammarState state(grammar);
  ASSERT_TRUE(state.Push("[\"a"));
  MaskOf(kept, state);
  const uint64_t after = kept.steps();
  ASSERT_TRUE(state.Push("bc"));
  MaskOf(kept, state);
  EXPECT_EQ(kept.steps(), after);
}

TEST(TokenMasks, ThreadsShareACache) {
  const Tokenizer tokenizer = SmallTokenizer();
  const Grammar grammar = Grammar::AnyJson();
  const TokenMasks masks(grammar, tokenizer, {},
                         {.cache_bytes = 4000, .states = 2});
  const std::vector<GrammarState> states =
      RandomStates(masks, grammar, tokenizer, 100, 5);
  std::vector<std::vector<uint32_t>> wanted;
  for (const GrammarState& state : states) {
    wanted.push_back(MaskOf(masks, state));
  }
  std::vector<int> wrong(3, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < states.size(); ++i) {
        const size_t at = (i * (2 * t + 1)) % states.size();
        wrong[t] += MaskOf(masks, states[at]) != wanted[at];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

TEST(TokenMasks, Arguments) {
  const Tokenizer tokenizer = Tokenizer::Byte();
  const Grammar grammar = Grammar::AnyJson();
  EXPECT_THROW(TokenMasks(grammar, tokenizer, std::vector<int32_t>{256}),
               ArgumentError);
  const TokenMasks masks(grammar, tokenizer, {});
  std::vector<uint32_t> mask(7);
  EXPECT_THROW(masks.Fill(GrammarState(grammar), mask), ArgumentError);
  mask.resize(8);
  const Grammar other = Grammar::FromRegex("a").Take();
  EXPECT_THROW(masks.Fill(GrammarState(other), mask), ArgumentError);
  masks.With(other).Fill(GrammarState(other), mask);
  EXPECT_EQ(mask, (std::vector<uint32_t>{0, 0, 0, 2, 0, 0, 0, 0}));
}

// A published vocabulary of 151,669 tokens.
class PublishedVocabulary : public testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("TARN_DATA");
    const fs::path data = given != nullptr
                              ? fs::path(given)
                              : fs::path(TARN_SOURCE_DIR) / "../shared/data";
    const fs::path folder = data / "tokenizers" / "qwen3";
    if (!fs::exists(folder)) {
      GTEST_SKIP() << "no " << folder
                   << " (TARN_DATA names the folder of the shared data)";
    }
    tokenizer_ = Tokenizer::OpenAlone(folder.string()).Take();
    never_.resize(static_cast<size_t>(tokenizer_.vocab_size()));
    // By their texts: <|im_end|>, <think>, </tool_call>, ...
    for (int32_t id = 151643; id < tokenizer_.vocab_size(); ++id) {
      never_[static_cast<size_t>(id)] = true;
      const std::string bytes = TokenBytes(tokenizer_, id);
      ASSERT_TRUE(bytes.front() == '<' && bytes.back() == '>') << bytes;
    }
  }

  Tokenizer tokenizer_;
  std::vector<bool> never_;
};

TEST_F(PublishedVocabulary, EveryToken) {
  const std::vector<int32_t> stop = {tokenizer_.AddedId("<|im_end|>"),
                                     tokenizer_.AddedId("<|endoftext|>")};
  ASSERT_GT(stop[0], 0);
  const Grammar json = Grammar::AnyJson();
  const TokenMasks base(json, tokenizer_, stop);
  for (const auto& [name, grammar] : Grammars()) {
    const TokenMasks masks = base.With(grammar);
    for (const GrammarState& state :
         RandomStates(masks, grammar, tokenizer_, 4, 3)) {
      ExpectMask(MaskOf(masks, state), state, tokenizer_, never_, stop, name);
      if (HasFailure()) return;
    }
  }
  for (const char* text :
       {"", "{", "{\"", "{\"key\": \"a b", "[1, 2", "[\"\xC3",
        "{\"a\": {\"b\": [\"c\", {\"d\": \"e", "true"}) {
    GrammarState state(json);
    ASSERT_TRUE(state.Push(text));
    ExpectMask(MaskOf(base, state), state, tokenizer_, never_, stop, text);
  }
}

TEST_F(PublishedVocabulary, StepsInAStringBody) {
  const Grammar json = Grammar::AnyJson();
  const TokenMasks masks(json, tokenizer_, {}, {.states = 0});
  GrammarState state(json);
  ASSERT_TRUE(state.Push("{\"key\": \"text"));
  MaskOf(masks, state);
  const uint64_t before = masks.steps();
  ASSERT_TRUE(state.Push(" and more"));
  MaskOf(masks, state);
  // What may follow the closing quote: far fewer than the vocabulary.
  EXPECT_LT(masks.steps() - before, 2000u);
  RecordProperty("steps", static_cast<int>(masks.steps() - before));
}

}  // namespace
}  // namespace tarn
