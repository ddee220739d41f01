// Small tokenizers of every supported form against the ids and texts that the
// `tokenizers` package gave (tests/golden/make_tokenizers.py).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace tarn {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

Json ReadGolden(const std::string& name) {
  const std::string folder = TARN_SOURCE_DIR "/tests/golden/tokenizers/";
  std::ifstream file(folder + name + ".json", std::ios::binary);
  EXPECT_TRUE(file) << folder << name;
  return Json::parse(file);
}

// FNV-1a over what the generator hashes, in its order.
class Hash {
 public:
  void Add(const Ids& ids) {
    for (const int32_t id : ids) {
      for (int shift = 0; shift < 32; shift += 8) Byte(id >> shift & 255);
    }
    Byte('|');
  }
  void Add(const std::string& text) {
    for (const char c : text) Byte(static_cast<uint8_t>(c));
    Byte('|');
  }
  std::string Text() const {
    char text[9];
    std::snprintf(text, sizeof(text), "%08x",
                  static_cast<unsigned>(value_ >> 32));
    return text;
  }

 private:
  void Byte(int byte) {
    value_ = (value_ ^ static_cast<uint64_t>(byte)) * 0x100000001B3;
  }
  uint64_t value_ = 0xCBF29CE484222325;
};

Json WholeOf(const Json& golden, const Json& models) {
  Json root = golden["root"];
  Json model = models[root["file"].get<std::string>()];
  model.update(root["model"]);
  root["model"] = model;
  root.erase("file");
  return root;
}

struct Given {
  Ids plain, special;
};

Given EncodeBoth(const Tokenizer& tokenizer, const std::string& text) {
  EncodeOptions all;
  all.allow_special = all.add_special = true;
  return {tokenizer.Encode(text).Take(), tokenizer.Encode(text, all).Take()};
}

void ExpectCase(const Tokenizer& tokenizer, const Json& golden,
                const std::vector<std::string>& strings, size_t block) {
  for (const auto& [key, want] : golden["shown"].items()) {
    const std::string& text = strings[std::stoul(key)];
    const Given given = EncodeBoth(tokenizer, text);
    EXPECT_EQ(given.plain, want["plain"].get<Ids>()) << text;
    EXPECT_EQ(given.special, want["special"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer.DecodeText(given.plain, false), want["text"]);
  }
  const auto hashes = golden["hashes"].get<std::string>();
  ASSERT_EQ(hashes.size(), strings.size() / block * 8);
  for (size_t begin = 0; begin < strings.size(); begin += block) {
    Hash hash;
    for (size_t i = begin; i < begin + block; ++i) {
      const Given given = EncodeBoth(tokenizer, strings[i]);
      hash.Add(given.plain);
      hash.Add(given.special);
      hash.Add(tokenizer.DecodeText(given.plain, false));
      hash.Add(tokenizer.DecodeText(given.special, true));
    }
    EXPECT_EQ(hash.Text(), hashes.substr(begin / block * 8, 8))
        << "strings " << begin << " to " << begin + block - 1;
  }
}

TEST(PipelineGolden, EveryCase) {
  const Json golden = ReadGolden("cases");
  const auto strings = ReadGolden("strings").get<std::vector<std::string>>();
  EXPECT_EQ(strings.size(), 2000u);
  Json models;
  for (const char* name : {"bytes", "characters", "unigram"}) {
    models[name] = ReadGolden(name);
  }
  EXPECT_GE(golden["cases"].size(), 30u);
  for (const auto& [name, part] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const std::string json = WholeOf(part, models).dump();
    const auto tokenizer = Tokenizer::FromJson(json);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().what();
    ExpectCase(tokenizer.value(), part, strings, golden["block"]);
    // What a model directory keeps is the same tokenizer.
    const std::string written = tokenizer.value().ToJson();
    const Tokenizer again = Tokenizer::FromJson(written).Take();
    EXPECT_TRUE(again == tokenizer.value());
    EXPECT_EQ(again.ToJson(), written);
    EXPECT_EQ(again.Encode(strings[500]).Take(),
              tokenizer.value().Encode(strings[500]).Take());
  }
}

}  // namespace
}  // namespace tarn
