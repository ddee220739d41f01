// Conversations as ids: special tokens come from templates and never from
// data, whatever the data is; which of a directory's files has the template.
#include "text/template/chat_format.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/test_util.h"
#include "core/text.h"
#include "text/byte_alphabet.h"

namespace tarn {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

constexpr char kBar[] = "\xE2\x96\x81";

Json AddedEntry(int id, const std::string& content, bool special,
                bool normalized) {
  return {{"id", id},
          {"content", content},
          {"special", special},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", normalized}};
}

// Bytes by themselves, ids 0 to 255, and from 256 on <s> <s>> <e> and <t>, of
// which the last is not special.
Tokenizer ByteTokens(bool nfc, bool normalized) {
  Json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    vocab[BytesToAlphabet(one)] = byte;
  }
  Json root;
  root["version"] = "1.0";
  root["added_tokens"] = {AddedEntry(256, "<s>", true, normalized),
                          AddedEntry(257, "<s>>", true, normalized),
                          AddedEntry(258, "<e>", true, normalized),
                          AddedEntry(259, "<t>", false, normalized)};
  root["normalizer"] = nullptr;
  if (nfc) root["normalizer"] = {{"type", "NFC"}};
  root["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  root["decoder"] = {{"type", "ByteLevel"}};
  root["model"] = {
      {"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}};
  return Tokenizer::FromJson(root.dump()).Take();
}

// Llama-2's form: spaces as bars, one before each part, bytes for the rest.
Tokenizer BarTokens(bool normalized) {
  Json vocab = {{"<unk>", 0}, {kBar, 1}, {"a", 2}, {"b", 3}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[7];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocab[name] = 4 + byte;
  }
  Json root;
  root["version"] = "1.0";
  root["added_tokens"] = {AddedEntry(0, "<unk>", true, normalized),
                          AddedEntry(260, "<s>", true, normalized),
                          AddedEntry(261, "<s>>", true, normalized),
                          AddedEntry(262, "<e>", true, normalized),
                          AddedEntry(263, "<t>", false, normalized)};
  root["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "Prepend"}, {"prepend", kBar}},
                          {{"type", "Replace"},
                           {"pattern", {{"String", " "}}},
                           {"content", kBar}}}}};
  root["pre_tokenizer"] = nullptr;
  root["decoder"] = {
      {"type", "Sequence"},
      {"decoders",
       {{{"type", "Replace"},
         {"pattern", {{"String", kBar}}},
         {"content", " "}},
        {{"type", "ByteFallback"}},
        {{"type", "Fuse"}},
        {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  root["model"] = {{"type", "BPE"},    {"unk_token", "<unk>"},
                   {"fuse_unk", true}, {"byte_fallback", true},
                   {"vocab", vocab},   {"merges", Json::array()}};
  return Tokenizer::FromJson(root.dump()).Take();
}

Ids SpecialsOf(const Tokenizer& tokenizer, const Ids& ids) {
  Ids special;
  for (const char* text : {"<s>", "<s>>", "<e>"}) {
    const int32_t id = tokenizer.AddedId(text);
    special.insert(special.end(), std::count(ids.begin(), ids.end(), id), id);
  }
  return special;
}

Ids IdsOf(const Tokenizer& tokenizer, const std::vector<RenderedPiece>& text) {
  return EncodeRendered(tokenizer, {text}).Take();
}

std::vector<Tokenizer> AllTokenizers() {
  return {ByteTokens(false, false), ByteTokens(false, true),
          ByteTokens(true, false), ByteTokens(true, true), BarTokens(false)};
}

TEST(ChatIds, ConversationsWithoutSpecialTextsAreEncodedAsWhole) {
  for (const Tokenizer& tokenizer : AllTokenizers()) {
    EncodeOptions special;
    special.allow_special = true;
    const std::string whole = "<s>a b<e> ab<t><s>\xC3\xA9 b";
    EXPECT_EQ(IdsOf(tokenizer, {{"<s>", false},
                                {"a b", true},
                                {"<e> ", false},
                                {"ab<t>", true},
                                {"<s>", false},
                                {"\xC3\xA9 b", true}}),
              tokenizer.Encode(whole, special).Take());
  }
}

TEST(ChatIds, SpecialTextsOfDataAreText) {
  for (const Tokenizer& tokenizer : AllTokenizers()) {
    const Ids ids = IdsOf(tokenizer, {{"<s>", false}, {"<e>a<s><t>", true}});
    EXPECT_EQ(SpecialsOf(tokenizer, ids), Ids{tokenizer.AddedId("<s>")});
    // A token that the file does not mark as special is found everywhere.
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.AddedId("<t>")), 1);
    EXPECT_NE(tokenizer.Decode(ids).find("<e>a<s><t>"), std::string::npos);
  }
}

TEST(ChatIds, NoSpecialTokenReachesIntoData) {
  for (const Tokenizer& tokenizer : AllTokenizers()) {
    const int32_t begin = tokenizer.AddedId("<s>");
    // The template's <s> is found though <s>> would be longer.
    EXPECT_EQ(
        SpecialsOf(tokenizer, IdsOf(tokenizer, {{"<s>", false}, {">a", true}})),
        Ids{begin});
    // Half of a token from each side is none.
    EXPECT_EQ(
        SpecialsOf(tokenizer, IdsOf(tokenizer, {{"<", true}, {"s>", false}})),
        Ids{});
    EXPECT_EQ(
        SpecialsOf(tokenizer, IdsOf(tokenizer, {{"<s", false}, {">", true}})),
        Ids{});
    // A token of data that reaches into the template does not hide the
    // template's own.
    EXPECT_EQ(SpecialsOf(tokenizer,
                         IdsOf(tokenizer, {{"<s>", true}, {"<s>", false}})),
              Ids{begin});
  }
}

TEST(ChatIds, DataThatNormalisingJoinsToTheTemplateIsNoSpecialToken) {
  // The mark composes with the template's last letter: where data begins cannot
  // be told, so that special tokens of the normalised text are not found.
  const Tokenizer tokenizer = ByteTokens(true, true);
  const Ids ids =
      IdsOf(tokenizer, {{"e", false}, {"\xCC\x81<s>", true}, {"<e>", false}});
  EXPECT_EQ(SpecialsOf(tokenizer, ids), Ids{});
  EXPECT_EQ(tokenizer.Decode(ids), "\xC3\xA9<s><e>");
}

TEST(ChatIds, RandomDataNeverMakesASpecialToken) {
  std::mt19937 random(5);
  const std::vector<std::string> parts = {
      "<", "s", ">",        "<s",  "s>",   "<s>",      "<e", ">>",
      " ", "a", "\xCC\x81", "<e>", "<s>>", "\xC3\xA9", "\n", "\xFF"};
  for (const Tokenizer& tokenizer : AllTokenizers()) {
    for (int i = 0; i < 400; ++i) {
      std::string data;
      for (int k = static_cast<int>(random() % 6) + 1; k > 0; --k) {
        data += parts[random() % parts.size()];
      }
      const Ids got = SpecialsOf(
          tokenizer,
          IdsOf(tokenizer, {{"x<s>1", false}, {data, true}, {"2<e>", false}}));
      EXPECT_EQ(got, (Ids{tokenizer.AddedId("<s>"), tokenizer.AddedId("<e>")}))
          << Quoted(data);
    }
  }
}

TEST(ChatIds, WhereDataIsSurvivesWhatNormalisingPutsBeforeAText) {
  // Found in the normalised text, of which <s> is the bar and <s>.
  const Tokenizer tokenizer = BarTokens(true);
  const int32_t begin = tokenizer.AddedId("<s>");
  EXPECT_EQ(
      SpecialsOf(
          tokenizer,
          IdsOf(tokenizer, {{"<s>", false}, {"a <s>", true}, {" <s>", false}})),
      (Ids{begin, begin}));
  EXPECT_EQ(
      SpecialsOf(tokenizer, IdsOf(tokenizer, {{"<s>", true}, {"a", false}})),
      Ids{});
}

TEST(ChatIds, TheRestOfATextHasTheIdsOfTheWhole) {
  const Tokenizer tokenizer = ByteTokens(false, false);
  const std::vector<RenderedPiece> text = {
      {"<s>", false}, {"<e>a", true}, {"<e>", false}, {"b", true}};
  const Ids all = IdsOf(tokenizer, text);
  EXPECT_EQ(EncodeRendered(tokenizer, {text}, 7).Take(),
            Ids(all.end() - 2, all.end()));
}

TEST(ChatIds, StreamedTokensDecodeAsTheWholeDoes) {
  std::mt19937 random(9);
  for (const Tokenizer& tokenizer : AllTokenizers()) {
    for (int i = 0; i < 200; ++i) {
      Ids ids(random() % 6);
      for (int32_t& id : ids) {
        id = static_cast<int32_t>(
            random() % static_cast<uint32_t>(tokenizer.vocab_size()));
        if (random() % 3 == 0) id = 1;
      }
      DecodeProgress progress;
      std::string streamed;
      for (const int32_t id : ids) tokenizer.Decode(id, progress, streamed);
      EXPECT_EQ(streamed, tokenizer.Decode(ids));
    }
  }
}

class ChatFiles : public testing::Test {
 protected:
  ChatFiles()
      : dir_(std::filesystem::path(testing::TempDir()) /
             ("tarn_chat_files_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(dir_);
  }
  ~ChatFiles() override { std::filesystem::remove_all(dir_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
  }
  std::string Message() {
    const auto format = ChatFormat::Open(dir_);
    return format.ok() ? "" : format.error().what();
  }
  std::filesystem::path dir_;
};

TEST_F(ChatFiles, TheFileOutranksTheKeyAndKeepsTheTokens) {
  EXPECT_NE(Message().find("got neither"), std::string::npos);
  Write("tokenizer_config.json",
        R"({"chat_template": "key", "bos_token": {"content": "<s>"},
            "eos_token": "<e>", "pad_token": null})");
  EXPECT_EQ(ChatFormat::Open(dir_).Take().source, "key");
  Write("chat_template.jinja", "{{ bos_token }}file{{ pad_token }}");
  const ChatFormat format = ChatFormat::Open(dir_).Take();
  const RenderedText text = format.Render({}).Take();
  EXPECT_EQ(text.Text(), "<s>file");
  EXPECT_FALSE(text.pieces[0].from_data);
  Write("other", "{{ eos_token }}");
  EXPECT_EQ(
      ChatFormat::Open(dir_, dir_ / "other").Take().Render({}).Take().Text(),
      "<e>");
}

TEST_F(ChatFiles, AListHasADefault) {
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "a"},
                              {"name": "default", "template": "b"}]})");
  EXPECT_EQ(ChatFormat::Open(dir_).Take().source, "b");
}

TEST_F(ChatFiles, FaultsAreNamed) {
  for (const auto& [text, part] :
       std::vector<std::pair<std::string, std::string>>{
           {"[]", "want an object"},
           {"{", "tokenizer_config.json"},
           {R"({"chat_template": 3})", "chat_template"},
           {R"({"chat_template": [3]})", "chat_template"},
           {R"({"chat_template": [{"name": "x", "template": "y"}]})",
            "one named 'default'"},
           {R"({"chat_template": [{"name": "default"}]})", "chat_template"},
           {R"({"chat_template": "{{ bos_token }}", "bos_token": 1})",
            "bos_token"},
           {R"({"chat_template": "{% if %}"})", "line 1"}}) {
    Write("tokenizer_config.json", text);
    const std::string message = Message();
    EXPECT_NE(message.find(part), std::string::npos) << text << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  Write("tokenizer_config.json", "{}");
  Write("chat_template.jinja", std::string(kMaxTemplateBytes + 1, ' '));
  EXPECT_NE(Message().find("chat_template.jinja"), std::string::npos);
}

}  // namespace
}  // namespace tarn
