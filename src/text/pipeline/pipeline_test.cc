// Forms of tokenizer.json beyond byte-level BPE: rules that goldens do not
// show, and files from outside.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/test_util.h"
#include "text/tokenizer.h"

namespace tarn {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

constexpr char kBar[] = "\xE2\x96\x81";

Json Added(int id, const std::string& content, bool special = true) {
  return {{"id", id}, {"content", content}, {"special", special}};
}

Json Root(Json model) {
  Json root;
  root["version"] = "1.0";
  root["added_tokens"] = Json::array({Added(0, "<unk>"), Added(1, "<s>")});
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", kBar},
                           {"prepend_scheme", "always"},
                           {"split", false}};
  root["decoder"] = {{"type", "Metaspace"},
                     {"replacement", kBar},
                     {"prepend_scheme", "always"},
                     {"split", false}};
  root["model"] = std::move(model);
  return root;
}

// <unk> <s> _ a b ab _a, and the bytes from 7 on with `bytes`.
Json SpacesBpe(bool bytes) {
  Json vocab = {{"<unk>", 0},
                {"<s>", 1},
                {kBar, 2},
                {"a", 3},
                {"b", 4},
                {"ab", 5},
                {std::string(kBar) + "a", 6}};
  for (int byte = 0; bytes && byte < 256; ++byte) {
    char name[7];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocab[name] = 7 + byte;
  }
  return Root({{"type", "BPE"},
               {"unk_token", "<unk>"},
               {"fuse_unk", true},
               {"byte_fallback", bytes},
               {"vocab", vocab},
               {"merges", Json::array({{"a", "b"}, {kBar, "a"}})}});
}

Json UnigramJson() {
  Json vocab = Json::array({{"<unk>", 0.0},
                            {"<s>", 0.0},
                            {kBar, -3.0},
                            {"a", -1.0},
                            {"b", -1.0},
                            {"ab", -2.0},
                            {"abab", -3.5}});
  return Root({{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}});
}

Tokenizer Open(const Json& json) {
  return Tokenizer::FromJson(json.dump()).Take();
}

TEST(Pipeline, KindsAndRoundTrips) {
  EXPECT_EQ(Open(SpacesBpe(true)).kind(), TokenizerKind::kBpe);
  EXPECT_EQ(Open(UnigramJson()).kind(), TokenizerKind::kUnigram);
  EXPECT_EQ(Open(SpacesBpe(true)).bpe(), nullptr);
  for (const Json& json : {SpacesBpe(true), SpacesBpe(false), UnigramJson()}) {
    const Tokenizer tokenizer = Open(json);
    const Tokenizer again = Tokenizer::FromJson(tokenizer.ToJson()).Take();
    EXPECT_TRUE(again == tokenizer);
    EXPECT_EQ(again.ToJson(), tokenizer.ToJson());
    EXPECT_EQ(tokenizer.AddedId("<s>"), 1);
    EXPECT_EQ(tokenizer.AddedId("<t>"), -1);
  }
  EXPECT_FALSE(Open(SpacesBpe(true)) == Open(SpacesBpe(false)));
}

TEST(Pipeline, MergesUnknownAndBytes) {
  EXPECT_EQ(Open(SpacesBpe(false)).Encode("abb a").Take(), (Ids{2, 5, 4, 6}));
  EXPECT_EQ(Open(SpacesBpe(false)).Encode("xyab").Take(), (Ids{2, 0, 5}));
  const Tokenizer bytes = Open(SpacesBpe(true));
  // A byte that is not UTF-8 has its token, and decoding gives it back.
  const Ids ids = bytes.Encode("a\xFF\xC3\xA9").Take();
  EXPECT_EQ(ids, (Ids{6, 7 + 0xFF, 7 + 0xC3, 7 + 0xA9}));
  Json fallback = SpacesBpe(true);
  fallback["decoder"] = {
      {"type", "Sequence"},
      {"decoders", Json::array({{{"type", "Replace"},
                                 {"pattern", {{"String", kBar}}},
                                 {"content", " "}},
                                {{"type", "ByteFallback"}},
                                {{"type", "Fuse"}},
                                {{"type", "Strip"},
                                 {"content", " "},
                                 {"start", 1},
                                 {"stop", 0}}})}};
  const Tokenizer tokenizer = Open(fallback);
  EXPECT_EQ(tokenizer.Decode(ids), "a\xFF\xC3\xA9");
  // A run of bytes that is broken anywhere: U+FFFD for each.
  EXPECT_EQ(tokenizer.DecodeText(ids, false),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  // A token that continues a text keeps its space.
  std::string out;
  tokenizer.Decode(6, out);
  EXPECT_EQ(out, " a");
}

TEST(Pipeline, UnigramTakesTheBestSumAndOfEqualOnesTheLongerToken) {
  const Tokenizer tokenizer = Open(UnigramJson());
  EXPECT_EQ(tokenizer.Encode("ab").Take(), (Ids{2, 5}));
  EXPECT_EQ(tokenizer.Encode("abab").Take(), (Ids{2, 6}));
  EXPECT_EQ(tokenizer.Encode("xyza").Take(), (Ids{2, 0, 3}));
  EXPECT_EQ(tokenizer.Encode("a\xFF").Take(), (Ids{2, 3, 0}));
  Json none = UnigramJson();
  none["model"]["unk_id"] = nullptr;
  const auto missing = Open(none).Encode("ab x");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kFormat);
}

// However special tokens come about, a user's text gives none.
TEST(Pipeline, TextYieldsNoSpecialToken) {
  EncodeOptions all;
  all.allow_special = true;
  for (const Json& json : {SpacesBpe(true), UnigramJson()}) {
    const Tokenizer tokenizer = Open(json);
    for (const int32_t id : tokenizer.Encode("<s>a<s>").Take()) {
      EXPECT_NE(id, 1);
    }
    EXPECT_EQ(tokenizer.Encode("<s>", all).Take(), Ids{1});
  }
  // Full-width signs become "<s>" by NFKC.
  Json folded = UnigramJson();
  folded["normalizer"] = {{"type", "NFKC"}};
  for (const int32_t id :
       Open(folded).Encode("\xEF\xBC\x9Cs\xEF\xBC\x9E", all).Take()) {
    EXPECT_NE(id, 1);
  }
}

TEST(Pipeline, EndsAreAddedOnRequest) {
  Json json = SpacesBpe(false);
  const Json piece = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", Json::array({piece, text})},
      {"pair", Json::array()},
      {"special_tokens",
       {{"<s>",
         {{"id", "<s>"}, {"ids", {1}}, {"tokens", Json::array({"<s>"})}}}}}};
  EncodeOptions ends;
  ends.add_special = true;
  EXPECT_EQ(Open(json).Encode("ab").Take(), (Ids{2, 5}));
  EXPECT_EQ(Open(json).Encode("ab", ends).Take(), (Ids{1, 2, 5}));
  EXPECT_EQ(Open(json).Encode("", ends).Take(), Ids{1});
  json["post_processor"]["special_tokens"]["<s>"]["ids"] = {99};
  EXPECT_FALSE(Tokenizer::FromJson(json.dump()).ok());
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(Pipeline, TheConfigDecidesOverTheEnds) {
  const TemporaryFolder folder;
  Write(folder / "tokenizer.json", SpacesBpe(false).dump());
  EncodeOptions ends;
  ends.add_special = true;
  const auto ids = [&](const std::string& config) {
    Write(folder / "tokenizer_config.json", config);
    auto tokenizer = Tokenizer::OpenAlone(folder / "");
    return tokenizer.ok() ? tokenizer.value().Encode("ab", ends).Take() : Ids{};
  };
  EXPECT_EQ(ids("{}"), (Ids{2, 5}));
  EXPECT_EQ(ids(R"({"add_bos_token":true,"bos_token":"<s>"})"), (Ids{1, 2, 5}));
  EXPECT_EQ(ids(R"({"add_eos_token":true,"eos_token":{"content":"<s>"}})"),
            (Ids{2, 5, 1}));
  EXPECT_EQ(ids(R"({"add_bos_token":true,"bos_token":"<t>"})"), Ids{});
  EXPECT_EQ(ids(R"({"add_bos_token":true})"), Ids{});
  EXPECT_EQ(ids(R"({"add_bos_token":1})"), Ids{});
  EXPECT_EQ(ids("[]"), Ids{});
}

TEST(Pipeline, RefusesTheRestByItsPath) {
  struct Case {
    const char* where;
    std::function<void(Json&)> change;
  };
  const Json growing = {{"type", "Replace"},
                        {"pattern", {{"String", "a"}}},
                        {"content", std::string(16, 'a')}};
  const std::vector<Case> cases = {
      {"normalizer.type",
       [](Json& j) {
         j["normalizer"] = {{"type", "Precompiled"}};
       }},
      {"normalizer",
       [&](Json& j) {
         j["normalizer"] = {{"type", "Sequence"},
                            {"normalizers", Json::array({growing, growing})}};
       }},
      {"normalizer.pattern",
       [&](Json& j) {
         j["normalizer"] = growing;
         j["normalizer"]["pattern"] = {{"Regex", "a"}};
       }},
      {"normalizer.pattern.String",
       [&](Json& j) {
         j["normalizer"] = growing;
         j["normalizer"]["pattern"]["String"] = "";
       }},
      {"pre_tokenizer.prepend_scheme",
       [](Json& j) { j["pre_tokenizer"]["prepend_scheme"] = "last"; }},
      {"pre_tokenizer.replacement",
       [](Json& j) { j["pre_tokenizer"]["replacement"] = ""; }},
      {"pre_tokenizer.type",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
       }},
      {"pre_tokenizer.pretokenizers",
       [](Json& j) {
         const Json steps(20, Json{{"type", "WhitespaceSplit"}});
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
       }},
      {"decoder.type",
       [](Json& j) {
         j["decoder"] = {{"type", "CTC"}};
       }},
      {"decoder", [](Json& j) { j["decoder"] = nullptr; }},
      {"model.continuing_subword_prefix",
       [](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }},
      {"model.unk_token", [](Json& j) { j["model"]["unk_token"] = "<no>"; }},
      {"model.type", [](Json& j) { j["model"]["type"] = "WordLevel"; }},
      {"model.vocab", [](Json& j) { j["model"]["vocab"]["far"] = 9000; }},
      {"model.merges[2]", [](Json& j) {
         j["model"]["vocab"]["<s>a"] = 7;
         j["model"]["merges"].push_back({"<s>", "a"});
       }}};
  for (const Case& c : cases) {
    Json json = SpacesBpe(false);
    c.change(json);
    const auto got = Tokenizer::FromJson(json.dump());
    ASSERT_FALSE(got.ok()) << c.where;
    EXPECT_EQ(got.error().where(), std::string("tokenizer.json: ") + c.where)
        << got.error().what();
  }
}

TEST(Pipeline, SurvivesRandomDamage) {
  std::mt19937 random(13);
  int accepted = 0;
  for (const std::string& good :
       {SpacesBpe(true).dump(), UnigramJson().dump()}) {
    for (int trial = 0; trial < 1500; ++trial) {
      std::string bad = good;
      for (int i = random() % 3; i >= 0; --i) {
        const size_t at = random() % bad.size();
        if (random() % 2 == 0) {
          bad[at] = static_cast<char>(random() % 128);
        } else {
          bad.erase(at, 1 + random() % 9);
        }
      }
      const auto got = Tokenizer::FromJson(bad);
      if (!got.ok()) continue;
      ++accepted;
      const auto ids = got.value().Encode("ab <s> \xFF b\xE2\x96\x81");
      if (ids.ok()) got.value().DecodeText(ids.value(), true);
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace tarn
