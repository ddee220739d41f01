// Vocabularies of other programs against token ids that those programs gave.
// Needs the project's shared data; skipped where it is absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "text/bpe_tokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode/nfc.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;

// TARN_DATA, or shared/data next to the repository.
fs::path DataFile(const std::string& name) {
  const char* given = std::getenv("TARN_DATA");
  const fs::path data = given != nullptr
                            ? fs::path(given)
                            : fs::path(TARN_SOURCE_DIR) / "../shared/data";
  return data / "tokenizers" / name;
}

#define TARN_NEED_DATA(name)                                            \
  if (!fs::exists(DataFile(name))) {                                    \
    GTEST_SKIP() << "no " << DataFile(name)                             \
                 << " (TARN_DATA names the folder of the shared data)"; \
  }

std::string Contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> Split(const std::string& text,
                               const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != text.npos;) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

struct Golden {
  std::string text;
  std::vector<int32_t> ids;
};
// NAME.inp: texts with a line of their own between; NAME.out: a line of ids
// each. The last text is empty.
std::vector<Golden> ReadGoldens(const std::string& name) {
  const auto texts =
      Split(Contents(DataFile(name + ".inp")), "\n__ggml_vocab_test__\n");
  const auto lines = Split(Contents(DataFile(name + ".out")), "\n");
  EXPECT_EQ(texts.size(), lines.size());
  std::vector<Golden> goldens;
  for (size_t i = 0; i < std::min(texts.size(), lines.size()); ++i) {
    goldens.push_back({texts[i], {}});
    std::istringstream ids(lines[i]);
    for (int32_t id; ids >> id;) goldens[i].ids.push_back(id);
  }
  return goldens;
}

void ExpectGoldens(const Tokenizer& tokenizer, const std::string& name) {
  const std::vector<Golden> goldens = ReadGoldens(name);
  EXPECT_EQ(goldens.size(), 47u);
  for (const Golden& golden : goldens) {
    EXPECT_EQ(tokenizer.Encode(golden.text).Take(), golden.ids) << golden.text;
    EXPECT_EQ(tokenizer.Decode(golden.ids), golden.text);
  }
}

std::string RandomBytes(std::mt19937& random, size_t size) {
  std::string bytes(size, ' ');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

TEST(TokenizerGolden, Gpt2) {
  TARN_NEED_DATA("gpt2_encoder.json");
  const Tokenizer gpt2 =
      Tokenizer::OpenFile(DataFile("gpt2_encoder.json")).Take();
  EXPECT_EQ(gpt2.kind(), TokenizerKind::kBpe);
  EXPECT_EQ(gpt2.vocab_size(), 50257);
  ExpectGoldens(gpt2, "gpt2_golden");
  // The form that a model directory keeps gives the same tokenizer.
  const Tokenizer again = Tokenizer::FromJson(gpt2.ToJson()).Take();
  EXPECT_EQ(again, gpt2);
  EXPECT_EQ(again.ToJson(), gpt2.ToJson());
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const std::string text = RandomBytes(random, random() % 400);
    ASSERT_EQ(again.Decode(again.Encode(text).Take()), text);
  }
}

TEST(TokenizerGolden, NeoX) {
  TARN_NEED_DATA("20B_tokenizer.json");
  const Tokenizer neox =
      Tokenizer::OpenFile(DataFile("20B_tokenizer.json")).Take();
  EXPECT_EQ(neox.vocab_size(), 50277);
  ExpectGoldens(neox, "gptneox_golden_mpt");
  EXPECT_EQ(Tokenizer::FromJson(neox.ToJson()).Take(), neox);
  // Random code points and stray continuation bytes. The vocabulary has no
  // token for the 13 bytes that UTF-8 never uses: those are errors.
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    std::string text;
    for (size_t i = random() % 200; i > 0; --i) {
      text += static_cast<char>(0x80 + random() % 0x40);
      text += static_cast<char>(random() % 0x80);
      text += std::string(random() % 30, ' ') + "e\xCC\x81";
    }
    ASSERT_EQ(neox.Decode(neox.Encode(text).Take()), ToNfc(text));
  }
  const auto missing = neox.Encode("ab\xFF");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().where(), "text: byte 2");
}

TEST(TokenizerGolden, SpecialTokensOnlyWhenAllowed) {
  TARN_NEED_DATA("20B_tokenizer.json");
  const Tokenizer neox =
      Tokenizer::OpenFile(DataFile("20B_tokenizer.json")).Take();
  const Tokenizer gpt2 =
      Tokenizer::OpenFile(DataFile("gpt2_encoder.json")).Take();
  const std::string text = "a<|endoftext|>b";
  for (const Tokenizer& tokenizer : {gpt2, neox}) {
    const int32_t special = tokenizer.bpe()->added[0].id;
    const auto usual = tokenizer.Encode(text).Take();
    EXPECT_EQ(std::count(usual.begin(), usual.end(), special), 0);
    EXPECT_EQ(tokenizer.Decode(usual), text);
    const auto allowed = tokenizer.Encode(text, EncodeOptions{true, 0}).Take();
    EXPECT_EQ(allowed.size(), 3u);
    EXPECT_EQ(allowed[1], special);
    EXPECT_EQ(tokenizer.Decode(allowed), text);
  }
}

TEST(TokenizerGolden, World) {
  TARN_NEED_DATA("rwkv_vocab_v20230424.txt");
  const Tokenizer world =
      Tokenizer::OpenFile(DataFile("rwkv_vocab_v20230424.txt")).Take();
  EXPECT_EQ(world.kind(), TokenizerKind::kWorld);
  EXPECT_EQ(world.vocab_size(), 65530);
  EXPECT_EQ(Tokenizer::FromJson(world.ToJson()).Take(), world);
  EXPECT_EQ(world.Decode({65529}), std::string(128, ' '));
  EXPECT_EQ(world.Decode({0}), "");
  EXPECT_EQ(world.Encode(std::string(300, ' ')).Take().size(), 3u);
  // Greedy by definition: no longer token begins where one was taken.
  std::vector<std::string> all;
  for (int32_t id = 1; id < 65530; ++id) all.push_back(world.Decode({id}));
  std::sort(all.begin(), all.end());
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::string text = RandomBytes(random, random() % 50);
    for (int i = 0; i < 20; ++i) text += all[random() % all.size()];
    const std::vector<int32_t> ids = world.Encode(text).Take();
    ASSERT_EQ(world.Decode(ids), text);
    size_t at = 0;
    for (const int32_t id : ids) {
      const size_t bytes = world.Decode({id}).size();
      for (size_t longer = bytes + 1; longer <= 128; ++longer) {
        ASSERT_FALSE(at + longer <= text.size() &&
                     std::binary_search(all.begin(), all.end(),
                                        text.substr(at, longer)));
      }
      at += bytes;
    }
  }
}

}  // namespace
}  // namespace tarn
