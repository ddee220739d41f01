#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace tarn {
namespace {

std::string Reason(const Result<Tokenizer>& result) {
  return result.ok() ? "accepted" : result.error().what();
}

TEST(Tokenizer, ByteRoundTripsEveryByteString) {
  const Tokenizer tokenizer = Tokenizer::Byte();
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  std::mt19937 random(2);
  for (int trial = 0; trial < 100; ++trial) {
    std::string text(random() % 300, ' ');
    for (char& c : text) c = static_cast<char>(random());
    const std::vector<int32_t> tokens = tokenizer.Encode(text).Take();
    ASSERT_EQ(tokens.size(), text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      ASSERT_EQ(tokens[i], static_cast<uint8_t>(text[i]));
    }
    ASSERT_EQ(tokenizer.Decode(tokens), text);
  }
}

TEST(Tokenizer, CharTableIsTheSortedAlphabetOfTheText) {
  const std::string text = "hello \xC3\xBC \xF0\x9F\x98\x80 \xE2\x82\xAC\n";
  const Tokenizer tokenizer = Tokenizer::CharFromText(text).Take();
  // \n, space, e, h, l, o, u-umlaut, euro sign, emoji.
  EXPECT_EQ(tokenizer, Tokenizer::Char({10, 32, 'e', 'h', 'l', 'o', 0xFC,
                                        0x20AC, 0x1F600}));
  const std::vector<int32_t> want{3, 2, 4, 4, 5, 1, 6, 1, 8, 1, 7, 0};
  EXPECT_EQ(tokenizer.Encode(text).Take(), want);
  EXPECT_EQ(tokenizer.Decode(want), text);
}

TEST(Tokenizer, NamesTheByteOfAnUnknownOrBrokenCharacter) {
  const Tokenizer tokenizer = Tokenizer::Char({'a', 'b'});
  const auto unknown = tokenizer.Encode("ab\xE2\x82\xAC");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code(), ErrorCode::kFormat);
  EXPECT_EQ(unknown.error().where(), "text: byte 2");
  EXPECT_EQ(unknown.error().given(), "U+20AC");
  const auto broken = tokenizer.Encode("a\x80", 1000);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().where(), "text: byte 1001");
  const auto unfinished = Tokenizer::CharFromText("ab\xE2\x82");
  ASSERT_FALSE(unfinished.ok());
  EXPECT_EQ(unfinished.error().where(), "text: byte 2");
  EXPECT_FALSE(Tokenizer::CharFromText("").ok());
}

TEST(Tokenizer, IdsAreDecimalNumbersBetweenWhiteSpace) {
  const Tokenizer tokenizer = Tokenizer::Ids(300);
  EXPECT_EQ(tokenizer.vocab_size(), 300);
  const std::vector<int32_t> want{3, 0, 299, 12, 7};
  EXPECT_EQ(tokenizer.Encode("3 0 299 12 7").Take(), want);
  EXPECT_EQ(tokenizer.Encode(" \t3\n0\r\n299  12\t\t7\n").Take(), want);
  EXPECT_EQ(tokenizer.Decode(want), " 3 0 299 12 7");
  EXPECT_EQ(tokenizer.Encode(tokenizer.Decode(want)).Take(), want);
  for (const char* empty : {"", " ", "\r\n\t "}) {
    EXPECT_TRUE(tokenizer.Encode(empty).Take().empty());
  }
  EXPECT_EQ(tokenizer.ToJson(),
            "{\"format_version\":1,\"type\":\"ids\",\"vocab_size\":300}\n");
  EXPECT_FALSE(tokenizer == Tokenizer::Ids(299));
  EXPECT_THROW(Tokenizer::Ids(0), ArgumentError);
  EXPECT_THROW(Tokenizer::Ids((1 << 24) + 1), ArgumentError);
}

TEST(Tokenizer, NamesTheByteOfWhatIsNoId) {
  const Tokenizer tokenizer = Tokenizer::Ids(300);
  const std::string nul("1 2 \0", 5);
  for (const std::string& bad :
       {std::string("1 2 300"), std::string("1 2 -1"), std::string("1 2 +1"),
        std::string("1 2 x"), std::string("1 2 3,4"), std::string("1 2 01"),
        std::string("1 2 1.0"), std::string("1 2 0x1"), nul,
        std::string("1 2 99999999999999999999999"),
        std::string("1 2 \xC2\xA0")}) {
    const auto refused = tokenizer.Encode(bad, 1000);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code(), ErrorCode::kFormat);
    EXPECT_EQ(refused.error().where(), "text: byte 1004") << bad;
    EXPECT_EQ(refused.error().wanted(), "a token id from 0 to 299");
  }
  // A word of any length makes a message of one short line.
  const auto refused = tokenizer.Encode(std::string(1 << 20, '7'));
  ASSERT_FALSE(refused.ok());
  EXPECT_LT(std::string(refused.error().what()).size(), 200u);
}

TEST(Tokenizer, DecodeChecksTheToken) {
  std::string out = "kept";
  EXPECT_THROW(Tokenizer::Byte().Decode(256, out), ArgumentError);
  EXPECT_THROW(Tokenizer::Byte().Decode(-1, out), ArgumentError);
  EXPECT_THROW(Tokenizer::Char({'x'}).Decode(1, out), ArgumentError);
  EXPECT_THROW(Tokenizer::Ids(11).Decode(11, out), ArgumentError);
  EXPECT_EQ(out, "kept");
}

TEST(Tokenizer, CharRefusesBadTables) {
  EXPECT_THROW(Tokenizer::Char({}), ArgumentError);
  EXPECT_THROW(Tokenizer::Char({5, 5}), ArgumentError);
  EXPECT_THROW(Tokenizer::Char({6, 5}), ArgumentError);
  EXPECT_THROW(Tokenizer::Char({0xD800}), ArgumentError);
  EXPECT_THROW(Tokenizer::Char({0x110000}), ArgumentError);
}

TEST(Tokenizer, JsonRoundTrip) {
  EXPECT_EQ(Tokenizer::Byte().ToJson(),
            "{\"format_version\":1,\"type\":\"byte\"}\n");
  for (const Tokenizer& tokenizer :
       {Tokenizer::Byte(), Tokenizer::Char({0, 10, 0xFFFF, 0x10FFFF}),
        Tokenizer::Ids(1), Tokenizer::Ids(1 << 24)}) {
    EXPECT_EQ(Tokenizer::FromJson(tokenizer.ToJson()).Take(), tokenizer);
  }
}

TEST(Tokenizer, JsonIsStrict) {
  const char* kBad[] = {
      "",
      "[]",
      "{}",
      R"({"format_version":1})",
      R"({"type":"byte"})",
      R"({"format_version":2,"type":"byte"})",
      R"({"format_version":"1","type":"byte"})",
      R"({"format_version":1,"type":"bpe"})",
      R"({"format_version":1,"type":["byte"]})",
      R"({"format_version":1,"type":"byte","extra":1})",
      R"({"format_version":1,"type":"byte","":1})",
      R"({"format_version":1,"type":"byte","code_points":[1]})",
      R"({"format_version":1,"type":"byte","type":"byte"})",
      R"({"format_version":1,"type":"char"})",
      R"({"format_version":1,"type":"char","code_points":{}})",
      R"({"format_version":1,"type":"char","code_points":[]})",
      R"({"format_version":1,"type":"char","code_points":[2,1]})",
      R"({"format_version":1,"type":"char","code_points":[1,1]})",
      R"({"format_version":1,"type":"char","code_points":[-1]})",
      R"({"format_version":1,"type":"char","code_points":[1.5]})",
      R"({"format_version":1,"type":"char","code_points":["a"]})",
      R"({"format_version":1,"type":"char","code_points":[55296]})",
      R"({"format_version":1,"type":"char","code_points":[1114112]})",
      R"({"format_version":1,"type":"char","code_points":[4294967306]})",
      R"({"format_version":1,"type":"ids"})",
      R"({"format_version":1,"type":"ids","vocab_size":0})",
      R"({"format_version":1,"type":"ids","vocab_size":-1})",
      R"({"format_version":1,"type":"ids","vocab_size":16777217})",
      R"({"format_version":1,"type":"ids","vocab_size":1.5})",
      R"({"format_version":1,"type":"ids","vocab_size":"11"})",
      R"({"format_version":1,"type":"ids","code_points":[1]})",
      R"({"format_version":1,"type":"ids","vocab_size":11,"extra":1})",
      R"({"format_version":1,"type":"byte","vocab_size":11})",
      R"({"format_version":1,"type":"byte"} x)",
      R"({"format_version":NaN,"type":"byte"})",
  };
  for (const char* json : kBad) {
    const Result<Tokenizer> result = Tokenizer::FromJson(json);
    ASSERT_FALSE(result.ok()) << json;
    EXPECT_EQ(result.error().code(), ErrorCode::kFormat) << json;
    EXPECT_NE(Reason(result).find("tokenizer.json"), std::string::npos)
        << Reason(result);
  }
}

TEST(Tokenizer, OpenChecksAgainstTheConfig) {
  const std::filesystem::path dir =
      std::filesystem::path(testing::TempDir()) / "tarn_tokenizer_test";
  std::filesystem::create_directories(dir);
  std::filesystem::remove(dir / "tokenizer.json");
  ModelConfig config;
  config.tokenizer = TokenizerKind::kChar;
  config.vocab_size = 2;
  EXPECT_EQ(Tokenizer::Open(dir, config).error().code(), ErrorCode::kIo);
  const auto write = [&](const Tokenizer& tokenizer) {
    std::ofstream(dir / "tokenizer.json") << tokenizer.ToJson();
  };
  write(Tokenizer::Char({'a', 'b'}));
  EXPECT_TRUE(Tokenizer::Open(dir, config).ok());
  config.vocab_size = 3;  // rows without a character are allowed
  EXPECT_TRUE(Tokenizer::Open(dir, config).ok());
  write(Tokenizer::Char({'a', 'b', 'c', 'd'}));
  EXPECT_FALSE(Tokenizer::Open(dir, config).ok());
  write(Tokenizer::Byte());
  EXPECT_FALSE(Tokenizer::Open(dir, config).ok());
  std::filesystem::remove_all(dir);
}

TEST(Tokenizer, EncodeIsLinearInTheText) {
  // Twice the text takes twice the work: counted as tokens out, and run on a
  // size where a quadratic method would not finish (4 MiB).
  const Tokenizer tokenizer = Tokenizer::Char({' ', 0x1F600});
  std::string text(4 << 20, ' ');
  EXPECT_EQ(tokenizer.Encode(text).Take().size(), text.size());
  EXPECT_FALSE(tokenizer.Encode(std::string(4 << 20, '\xF0')).ok());
}

}  // namespace
}  // namespace tarn
