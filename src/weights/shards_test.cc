// Weight files and shards: what opens, what is refused and in which words, and
// reads by rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/test_util.h"
#include "weights/shard_index.h"
#include "weights/test_files.h"

namespace tarn::testing {
namespace {

const std::vector<TestTensor> kFirst = {{"a", {3, 4}, DType::kF32, 1},
                                        {"b", {5}, DType::kBF16, 20}};
const std::vector<TestTensor> kSecond = {{"c", {2, 3, 2}, DType::kF16, 40},
                                         {"d", {}, DType::kF32, 60},
                                         {"e", {0, 7}, DType::kF32, 0}};
constexpr const char* kNames[] = {"model-00001-of-00002.safetensors",
                                  "model-00002-of-00002.safetensors"};

class ShardsTest : public ::testing::Test {
 protected:
  ShardsTest() {
    WriteTestFile(folder_ / kNames[0], kFirst);
    WriteTestFile(folder_ / kNames[1], kSecond);
    WriteIndex(Map({{"a", kNames[0]},
                    {"b", kNames[0]},
                    {"c", kNames[1]},
                    {"d", kNames[1]},
                    {"e", kNames[1]}}));
  }
  static std::string Map(
      const std::vector<std::pair<std::string, std::string>>& entries) {
    std::string text = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {";
    for (size_t i = 0; i < entries.size(); ++i) {
      text += StrCat(i == 0 ? "" : ", ", "\"", entries[i].first, "\": \"",
                     entries[i].second, "\"");
    }
    return text + "}}";
  }
  void WriteIndex(const std::string& text) {
    WriteFileAtomically(folder_ / "model.safetensors.index.json", text);
  }
  void ExpectRefused(ErrorCode code, const std::vector<std::string>& parts) {
    for (const bool use_mmap : {true, false}) {
      const auto source = OpenWeightSource(folder_.path(), use_mmap);
      ASSERT_FALSE(source.ok());
      const std::string text = source.error().what();
      EXPECT_EQ(code, source.error().code()) << text;
      EXPECT_LT(text.size(), 1500u);
      EXPECT_EQ(text.npos, text.find('\n'));
      for (const std::string& part : parts) {
        EXPECT_NE(text.npos, text.find(part)) << part << " in " << text;
      }
    }
  }
  TemporaryFolder folder_;
};

TEST_F(ShardsTest, AreOneSource) {
  for (const bool use_mmap : {true, false}) {
    const auto source = OpenWeightSource(folder_.path(), use_mmap).Take();
    EXPECT_EQ(5u, source->tensors().size());
    EXPECT_EQ(folder_ / "model.safetensors.index.json", source->path());
    for (const auto& tensors : {kFirst, kSecond}) {
      for (const TestTensor& wanted : tensors) {
        const WeightTensor* tensor = source->Find(wanted.name);
        ASSERT_NE(nullptr, tensor) << wanted.name;
        EXPECT_EQ(wanted.shape, tensor->shape);
        EXPECT_STREQ(DTypeName(wanted.dtype), tensor->encoding->name);
        EXPECT_EQ(wanted.Values(), ValuesOf(*source, wanted.name));
      }
    }
    const std::string where = source->Where(*source->Find("c"), 3);
    EXPECT_NE(where.npos, where.find(folder_ / kNames[1])) << where;
    EXPECT_NE(where.npos, where.find("'c' at byte ")) << where;
    EXPECT_EQ(nullptr, source->Find("f"));
  }
}

TEST_F(ShardsTest, ASingleFileWins) {
  WriteTestFile(folder_ / "model.safetensors", {{"z", {2}, DType::kF32, 7}});
  const auto source = OpenWeightSource(folder_.path()).Take();
  ASSERT_EQ(1u, source->tensors().size());
  EXPECT_EQ((std::vector<float>{7, 8}), ValuesOf(*source, "z"));
  EXPECT_EQ(folder_ / "model.safetensors", source->path());
}

TEST_F(ShardsTest, NeitherFileNorIndexNamesTheFile) {
  std::filesystem::remove(folder_ / "model.safetensors.index.json");
  ExpectRefused(ErrorCode::kIo, {folder_ / "model.safetensors"});
}

TEST_F(ShardsTest, RowsColumnsAndBytes) {
  const auto source = OpenWeightSource(folder_.path()).Take();
  const WeightTensor& c = *source->Find("c");  // two rows of 6
  EXPECT_EQ(2, c.rows());
  EXPECT_EQ(6, c.columns());
  std::vector<float> out(6, -1);
  source->ReadRows(c, {1, 2}, out.data());
  EXPECT_EQ((std::vector<float>{46, 47, 48, 49, 50, 51}), out);
  out.assign(4, -1);
  source->Read(c, {0, 2}, {2, 4}, out.data());
  EXPECT_EQ((std::vector<float>{42, 43, 48, 49}), out);
  source->ReadRows(c, {1, 1}, nullptr);  // nothing
  const std::vector<uint8_t> stored = kSecond[0].Stored();
  for (int64_t begin = 0; begin <= c.bytes(); ++begin) {
    for (int64_t count = 0; count <= c.bytes() - begin; ++count) {
      std::vector<uint8_t> part(static_cast<size_t>(count), 0xEE);
      source->ReadBytes(c, begin, count, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), stored.begin() + begin));
    }
  }
  std::vector<uint8_t> row(12);
  source->ReadStoredRows(c, {1, 2}, row.data());
  EXPECT_TRUE(std::equal(row.begin(), row.end(), stored.begin() + 12));
  EXPECT_THROW(source->ReadRows(c, {1, 3}, nullptr), ShapeError);
  EXPECT_THROW(source->ReadRows(c, {-1, 0}, nullptr), ShapeError);
  EXPECT_THROW(source->Read(c, {0, 1}, {0, 7}, nullptr), ShapeError);
  EXPECT_THROW(source->ReadBytes(c, 20, 5, nullptr), ShapeError);
  const WeightTensor other = c;  // of no source
  EXPECT_THROW(source->ReadRows(other, {0, 1}, out.data()), ArgumentError);
}

// Giving memory back changes no number.
TEST_F(ShardsTest, ReleasedTensorsAreReadAgain) {
  const TestTensor large{"large", {300, 100}, DType::kF32, 0};
  WriteTestFile(
      folder_ / "model.safetensors",
      {{"x", {3}, DType::kF32, 1}, large, {"y", {3}, DType::kF32, 5}});
  for (const bool use_mmap : {true, false}) {
    const auto source = OpenWeightSource(folder_.path(), use_mmap).Take();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(large.Values(), ValuesOf(*source, "large"));
      source->Release(*source->Find("large"));
    }
    EXPECT_EQ((std::vector<float>{5, 6, 7}), ValuesOf(*source, "y"));
  }
}

TEST_F(ShardsTest, AMissingShardIsNamed) {
  std::filesystem::remove(folder_ / kNames[1]);
  ExpectRefused(ErrorCode::kIo, {folder_ / kNames[1]});
}

TEST_F(ShardsTest, ATensorInAnotherShardIsNamed) {
  WriteIndex(Map({{"a", kNames[0]},
                  {"b", kNames[1]},
                  {"c", kNames[1]},
                  {"d", kNames[1]},
                  {"e", kNames[1]}}));
  ExpectRefused(ErrorCode::kFormat, {kNames[0], "'b'", kNames[1]});
}

TEST_F(ShardsTest, ATensorInTwoShardsIsNamed) {
  std::vector<TestTensor> second = kSecond;
  second.push_back({"a", {3, 4}, DType::kF32, 1});
  WriteTestFile(folder_ / kNames[1], second);
  ExpectRefused(ErrorCode::kFormat, {kNames[1], "'a'", kNames[0]});
}

TEST_F(ShardsTest, ATensorThatTheIndexLacksIsNamed) {
  WriteIndex(Map({{"a", kNames[0]},
                  {"b", kNames[0]},
                  {"c", kNames[1]},
                  {"d", kNames[1]}}));
  ExpectRefused(ErrorCode::kFormat, {kNames[1], "'e'", "does not name"});
}

TEST_F(ShardsTest, ATensorThatTheShardLacksIsNamed) {
  WriteIndex(Map({{"a", kNames[0]},
                  {"b", kNames[0]},
                  {"c", kNames[1]},
                  {"d", kNames[1]},
                  {"e", kNames[1]},
                  {"f", kNames[0]}}));
  ExpectRefused(ErrorCode::kFormat, {kNames[0], "'f'", "no such tensor"});
}

TEST_F(ShardsTest, NamesStayInTheFolder) {
  WriteTestFile(folder_ / "outside.safetensors", kFirst);
  std::filesystem::create_directory(folder_ / "inside");
  for (const std::string name :
       {"../outside.safetensors", "/etc/passwd", "inside/x.safetensors", "..",
        ".", "", "a\\u0000b", "a\\u001Bb", "\xC3\xA4", "inside\\\\x"}) {
    WriteIndex(Map({{"a", name}}));
    ExpectRefused(ErrorCode::kFormat, {"weight_map", "'a'", "same folder"});
  }
  WriteIndex(Map({{"a", std::string(256, 'x')}}));
  ExpectRefused(ErrorCode::kFormat, {"same folder"});
  WriteIndex(Map({{"a", "inside"}}));  // a folder is no file
  ExpectRefused(ErrorCode::kIo, {"a folder"});
}

TEST_F(ShardsTest, BadIndexesAreRefused) {
  for (const std::string text :
       {"", "{", "[]", "{}", "{\"weight_map\": {}}", "{\"weight_map\": []}",
        "{\"weight_map\": {\"a\": 1}}", "{\"weight_map\": {\"a\": null}}",
        "{\"weight_map\": {\"a\": \"x\", \"a\": \"x\"}}",
        "{\"weight_map\": {\"a\": \"x\"}, \"weight_map\": {\"a\": \"x\"}}",
        "{\"weight_map\": {\"a\": \"\xff\"}}",
        "{\"weight_map\": {\"a\": \"x\"}"}) {
    WriteIndex(text);
    ExpectRefused(ErrorCode::kFormat, {"model.safetensors.index.json"});
  }
  WriteIndex(std::string(100000, '['));
  ExpectRefused(ErrorCode::kFormat, {"model.safetensors.index.json"});
}

// Counts are bounded before any shard is opened, and a file that is too large
// before it is read.
TEST_F(ShardsTest, AbsurdSizesAreRefused) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (size_t i = 0; i <= kMaxShards; ++i) {
    entries.emplace_back(StrCat("t", i), StrCat("s", i));
  }
  WriteIndex(Map(entries));
  ExpectRefused(ErrorCode::kFormat, {"at most 4096 files"});
  entries.clear();
  for (size_t i = 0; i <= (size_t{1} << 18); ++i) {
    entries.emplace_back(StrCat("t", i), kNames[0]);
  }
  WriteIndex(Map(entries));
  ExpectRefused(ErrorCode::kFormat, {"at most 262144 tensors"});
  WriteIndex("{}");
  std::filesystem::resize_file(folder_ / "model.safetensors.index.json",
                               uint64_t{1} << 40);  // a hole, no bytes
  ExpectRefused(ErrorCode::kFormat, {"model.safetensors.index.json"});
}

TEST(ShardIndexTest, ReadsTheMapAlone) {
  const auto shards = ShardsFromJson(
      "{\"other\": [1, {\"x\": 2}], \"weight_map\": {\"n\": \"f\"}}", "index");
  ASSERT_TRUE(shards.ok()) << shards.error().what();
  EXPECT_EQ((std::map<std::string, std::string>{{"n", "f"}}), shards.value());
}

}  // namespace
}  // namespace tarn::testing
