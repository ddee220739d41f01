// GGUF files as they must be, and each way in which one may lie.
#include "weights/gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/rng.h"
#include "core/test_util.h"
#include "weights/gguf/gguf_source.h"
#include "weights/gguf/gguf_test_bytes.h"
#include "weights/weight_source.h"

namespace tarn::testing {
namespace {

// Two matrices and a vector: F32 [3, 4], Q8_0 [2, 32], F32 [5].
GgufBytes GoodFile() {
  GgufBytes file;
  file.keys = {
      GgufBytes::Text("general.architecture", "llama"),
      GgufBytes::U32("llama.block_count", 3),
      {"llama.epsilon", 6, Le(1e-6f)},
      {"llama.flag", 7, Le<uint8_t>(1)},
      {"llama.signed", 5, Le<int32_t>(-3)},
      {"llama.double", 12, Le(0.25)},
      {"llama.large", 10, Le<uint64_t>(~uint64_t{0})},
      GgufBytes::Array("llama.heads", 5, 3,
                       Le<int32_t>(1) + Le<int32_t>(0) + Le<int32_t>(4)),
      GgufBytes::Array("llama.flags", 7, 2, std::string("\0\1", 2)),
      GgufBytes::Array("llama.scores", 6, 2, Le(0.5f) + Le(-1.0f)),
      GgufBytes::Array("llama.words", 8, 3,
                       GgufText("one") + GgufText("") + GgufText("three"))};
  std::string numbers;
  for (int i = 0; i < 12; ++i) numbers += Le(static_cast<float>(i));
  std::string blocks;
  for (int row = 0; row < 2; ++row) {
    blocks += Le<uint16_t>(0x3800);  // 0.5
    for (int i = 0; i < 32; ++i) {
      blocks += static_cast<char>(row == 0 ? i - 16 : -i);
    }
  }
  file.tensors = {{"matrix", {4, 3}, 0, numbers},
                  {"blocks", {32, 2}, 8, blocks},
                  {"vector", {5}, 0, numbers.substr(0, 20)}};
  return file;
}

class GgufFileTest : public ::testing::Test {
 protected:
  // The error for these bytes, the same for all ways to read; kOk when none.
  Error ErrorFor(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    const Error mapped =
        ErrorOf([&] { ReadAll(GgufFile::Open(path_).Take()); });
    const Error copied =
        ErrorOf([&] { ReadAll(GgufFile::Open(path_, false).Take()); });
    const Error in_memory = ErrorOf([&] {
      // A copy of exactly these bytes: reading past them is found.
      const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
      ReadAll(GgufFile::OfBytes(path_, exact).Take());
    });
    EXPECT_STREQ(mapped.what(), copied.what());
    EXPECT_STREQ(mapped.what(), in_memory.what());
    EXPECT_EQ(std::string(mapped.what()).find('\n'), std::string::npos);
    return mapped;
  }
  void ExpectRefused(const GgufBytes& file, const std::string& message) {
    const Error error = ErrorFor(file.Make());
    EXPECT_EQ(error.code(), ErrorCode::kFormat) << error.what();
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
        << error.what() << "\nwanted: " << message;
  }
  // A good file with one change.
  void ExpectRefused(const std::function<void(GgufBytes&)>& change,
                     const std::string& message) {
    GgufBytes file = GoodFile();
    change(file);
    ExpectRefused(file, message);
  }
  // A file that opens must be readable to its last byte.
  static void ReadAll(GgufFile opened) {
    const auto source =
        GgufWeights(std::make_shared<const GgufFile>(std::move(opened)));
    std::vector<float> numbers;
    for (const WeightTensor& tensor : source->tensors()) {
      if (tensor.elements() > 1 << 20) continue;
      numbers.resize(static_cast<size_t>(tensor.elements()));
      source->ReadRows(tensor, {0, tensor.rows()}, numbers.data());
      source->Release(tensor);
    }
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "model.gguf";
};

TEST_F(GgufFileTest, GivesKeysAndTensors) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBytes bytes = GoodFile();
    bytes.version = version;
    folder_.Write("model.gguf", bytes.Make());
    EXPECT_TRUE(IsGgufFile(path_));
    const auto file =
        std::make_shared<const GgufFile>(GgufFile::Open(path_).Take());
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(file->path(), path_);
    EXPECT_EQ(file->keys().size(), bytes.keys.size());
    EXPECT_EQ(file->Text("general.architecture"), "llama");
    EXPECT_EQ(file->Integer("llama.block_count", 1, 9), 3);
    EXPECT_EQ(file->Integer("llama.signed", -5, 5), -3);
    // The decimal number that the float32 stands for.
    EXPECT_EQ(file->Real("llama.epsilon", 0, 1), 1e-6);
    EXPECT_EQ(file->Real("llama.double", 0, 1), 0.25);
    EXPECT_EQ(file->Real("llama.block_count", 0, 9), 3.0);
    EXPECT_TRUE(file->Flag("llama.flag"));
    EXPECT_EQ(file->Integers("llama.heads", 0, 9, 3),
              (std::vector<int64_t>{1, 0, 4}));
    EXPECT_EQ(file->Reals("llama.scores", 2), (std::vector<double>{0.5, -1}));
    EXPECT_EQ(file->Flags("llama.flags", 2), (std::vector<bool>{false, true}));
    const GgufStrings& words = file->Strings("llama.words", 3);
    ASSERT_EQ(words.size(), 3u);
    EXPECT_EQ(words[0], "one");
    EXPECT_EQ(words[1], "");
    EXPECT_EQ(words[2], "three");
    EXPECT_EQ(file->TypeOf("llama.words"), GgufType::kArray);
    EXPECT_EQ(file->ItemTypeOf("llama.words"), GgufType::kString);
    EXPECT_EQ(file->CountOf("llama.words"), 3u);
    ASSERT_NE(file->Find("blocks"), nullptr);
    EXPECT_EQ(file->Find("blocks")->shape, (std::vector<int64_t>{2, 32}));
    EXPECT_EQ(file->Find("block"), nullptr);

    const auto source = GgufWeights(file);
    const WeightTensor& matrix = *source->Find("matrix");
    EXPECT_EQ(matrix.shape, (std::vector<int64_t>{3, 4}));
    std::vector<float> part(4);
    source->Read(matrix, {1, 3}, {1, 3}, part.data());
    EXPECT_EQ(part, (std::vector<float>{5, 6, 9, 10}));
    const WeightTensor& blocks = *source->Find("blocks");
    std::vector<float> row(32);
    source->ReadRows(blocks, {1, 2}, row.data());
    EXPECT_EQ(row[3], -1.5f);
    EXPECT_EQ(source->Where(blocks, 40),
              StrCat(path_, ": tensor 'blocks' at byte ",
                     file->data_offset() + 64 + 34));
    std::vector<uint8_t> stored(68);
    source->ReadStoredRows(blocks, {0, 2}, stored.data());
    EXPECT_EQ(std::string(stored.begin(), stored.end()), bytes.tensors[1].data);
  }
}

TEST_F(GgufFileTest, EmptyFilesAndOtherAlignments) {
  GgufBytes none;
  EXPECT_EQ(ErrorFor(none.Make()).code(), ErrorCode::kOk);
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    GgufBytes file = GoodFile();
    file.keys.push_back(GgufBytes::U32("general.alignment", alignment));
    file.alignment = alignment;
    EXPECT_EQ(ErrorFor(file.Make()).code(), ErrorCode::kOk);
  }
  // The padding after the last tensor may be missing.
  GgufBytes file = GoodFile();
  file.padded_end = false;
  EXPECT_EQ(ErrorFor(file.Make()).code(), ErrorCode::kOk);
  // Axes of no numbers, and a number without axes.
  file.tensors.push_back({"none", {0, 5}, 0, ""});
  file.tensors.push_back({"one", {}, 0, Le(1.0f)});
  EXPECT_EQ(ErrorFor(file.Make()).code(), ErrorCode::kOk);
}

TEST_F(GgufFileTest, RefusesOtherFiles) {
  EXPECT_FALSE(IsGgufFile(folder_.path()));
  EXPECT_FALSE(IsGgufFile(folder_ / "missing"));
  EXPECT_EQ(ErrorOf([&] { GgufFile::Open(folder_ / "missing").Take(); }).code(),
            ErrorCode::kIo);
  EXPECT_EQ(ErrorOf([&] { GgufFile::Open(folder_.path()).Take(); }).code(),
            ErrorCode::kIo);
  EXPECT_EQ(ErrorOf([&] { GgufFile::Open("/dev/zero").Take(); }).code(),
            ErrorCode::kIo);
  ExpectRefused([](GgufBytes& f) { f.magic = "GGML"; }, "want 'GGUF', got");
  ExpectRefused([](GgufBytes& f) { f.version = 1; },
                "byte 4: want version 2 or 3, got 1");
  ExpectRefused([](GgufBytes& f) { f.version = 4; }, "got 4");
  ExpectRefused([](GgufBytes& f) { f.version = 0x03000000; },
                "got a big-endian file");
}

// Every beginning of a file is too short for what it announces.
TEST_F(GgufFileTest, RefusesEveryTruncation) {
  GgufBytes file = GoodFile();
  file.padded_end = false;
  const std::string whole = file.Make();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(ErrorFor(whole.substr(0, size)).code(), ErrorCode::kFormat)
        << size;
  }
}

// Counts and lengths that are larger than the file, before memory is taken.
TEST_F(GgufFileTest, RefusesCountsBeyondTheFile) {
  for (const int64_t count :
       {int64_t{1000}, int64_t{1} << 40, INT64_MAX, int64_t{-2}}) {
    GgufBytes tensors = GoodFile(), keys = GoodFile();
    tensors.tensor_count = count;
    keys.key_count = count;
    if (count < 0) continue;  // below, as bytes
    ExpectRefused(tensors, "tensors, got");
    ExpectRefused(keys, "keys, got");
    GgufBytes array = GoodFile();
    array.keys.push_back(
        GgufBytes::Array("many", 6, static_cast<uint64_t>(count), Le(1.0f)));
    ExpectRefused(array, "items of an array, got");
    GgufBytes texts = GoodFile();
    texts.keys.push_back(GgufBytes::Array(
        "many", 8, static_cast<uint64_t>(count), GgufText("a")));
    ExpectRefused(texts, "items of an array, got");
    GgufBytes text = GoodFile();
    text.keys.push_back(
        {"long", 8, Le<uint64_t>(static_cast<uint64_t>(count)) + "abc"});
    ExpectRefused(text, "a length of a text up to");
  }
  std::string bytes = GoodFile().Make();
  bytes.replace(8, 8, Le<int64_t>(-1));
  EXPECT_EQ(ErrorFor(bytes).code(), ErrorCode::kFormat);
}

TEST_F(GgufFileTest, RefusesShapesThatWrapAround) {
  const auto with = [](std::vector<int64_t> axes, uint32_t type = 0) {
    return [axes, type](GgufBytes& file) {
      file.tensors[0].axes = axes;
      file.tensors[0].type = type;
    };
  };
  const int64_t large = int64_t{1} << 32;
  ExpectRefused(with({large, large}), "with a product below 2^63");
  ExpectRefused(with({large, large, 0}), "with a product below 2^63");
  ExpectRefused(with({large, 0, large}), "with a product below 2^63");
  ExpectRefused(with({INT64_MAX, 2}), "with a product below 2^63");
  ExpectRefused(with({-1, 4}), "sizes of tensor 'matrix' from 0 on");
  ExpectRefused(with({INT64_MIN, 4}), "sizes of tensor 'matrix' from 0 on");
  // 2^62 numbers of 4 bytes: 2^64.
  ExpectRefused(with({int64_t{1} << 62}), "got 2^64 or more");
  ExpectRefused(with({int64_t{1} << 40}), "bytes of the file, got");
  ExpectRefused(with({4, 4, 4, 4, 4}), "a tensor of up to 4 axes, got 5");
  ExpectRefused(with({4, 2}, 8), "of whole blocks of 32, as Q8_0 has them");
  ExpectRefused(with({255, 2}, 12), "of whole blocks of 256, as Q4_K");
  ExpectRefused(with({32}, 8), "single numbers in tensor 'matrix'");
}

// Offsets are the running sum of padded sizes, and end in the file.
TEST_F(GgufFileTest, RefusesOtherOffsets) {
  const auto at = [](int64_t offset) {
    return [offset](GgufBytes& file) { file.tensors[1].offset = offset; };
  };
  for (const int64_t offset :
       {int64_t{0}, int64_t{32}, int64_t{63}, int64_t{65}, int64_t{96},
        int64_t{1} << 40, INT64_MAX}) {
    ExpectRefused(at(offset), "offset 64 of tensor 'blocks', where the one");
  }
  std::string bytes = GoodFile().Make();
  const size_t offset = bytes.find(Le<uint64_t>(64), bytes.find("blocks"));
  bytes.replace(offset, 8, Le<uint64_t>(~uint64_t{0} - 31));
  EXPECT_NE(std::string(ErrorFor(bytes).what()).find("want offset 64"),
            std::string::npos);
  // The data area ends before the data.
  GgufBytes file = GoodFile();
  file.tensors.push_back({"last", {1}, 0, "", -1});
  const auto size = static_cast<int64_t>(file.Make().size());
  file.tensors.back().axes = {size / 4};
  ExpectRefused(file, "data of tensor 'last' within the file's");
  file.tensors.back().axes = {(size - 192) / 4};  // behind 64, 96 and 32 bytes
  ExpectRefused(file, "tensor 'last': want data up to byte");
}

TEST_F(GgufFileTest, RefusesTypesThatItDoesNotKnow) {
  for (const uint32_t type : {4u, 5u, 31u, 33u, 36u, 38u, 42u, ~0u}) {
    ExpectRefused([type](GgufBytes& file) { file.tensors[0].type = type; },
                  StrCat("got ", type));
  }
  ExpectRefused([](GgufBytes& file) { file.tensors[0].type = 16; },
                "MXFP4), got IQ2_XXS");
  for (const uint32_t type : {13u, 100u, ~0u}) {
    ExpectRefused(
        [type](GgufBytes& file) {
          file.keys.push_back({"odd", type, Le<uint64_t>(0)});
        },
        "a type of value from 0 to 12 of key 'odd'");
  }
  ExpectRefused(
      [](GgufBytes& file) {
        file.keys.push_back(GgufBytes::Array("odd", 13, 1, Le<uint64_t>(0)));
      },
      "a type of value from 0 to 12");
}

TEST_F(GgufFileTest, RefusesNestedArrays) {
  std::string nested = Le(1.0f);
  uint32_t item = 6;
  for (int depth = 0; depth < 10000; ++depth) {
    nested = Le(item) + Le<uint64_t>(1) + nested;
    item = 9;
  }
  ExpectRefused(
      [&](GgufBytes& file) {
        file.keys.push_back({"deep", 9, nested});
      },
      "items of key 'deep' that are no arrays");
}

TEST_F(GgufFileTest, RefusesBoolsThatAreNone) {
  ExpectRefused(
      [](GgufBytes& file) {
        file.keys.push_back({"odd", 7, "\2"});
      },
      "0 or 1 as a bool of key 'odd', got 2");
  ExpectRefused(
      [](GgufBytes& file) {
        file.keys.push_back(GgufBytes::Array("odd", 7, 2, "\1\xFF"));
      },
      "0 or 1 as a bool of key 'odd', got 255");
}

TEST_F(GgufFileTest, RefusesNamesThatOccurTwice) {
  ExpectRefused(
      [](GgufBytes& file) {
        file.keys.push_back(GgufBytes::U32("llama.block_count", 3));
      },
      "want keys that occur once, got a second 'llama.block_count'");
  ExpectRefused([](GgufBytes& file) { file.tensors[1].name = "matrix"; },
                "want names that occur once, got a second 'matrix'");
  ExpectRefused([](GgufBytes& file) { file.tensors[1].name = ""; },
                "want the name of a tensor, got an empty one");
  ExpectRefused(
      [](GgufBytes& file) { file.keys.push_back(GgufBytes::U32("", 3)); },
      "want the name of a key, got an empty one");
  ExpectRefused(
      [](GgufBytes& file) { file.tensors[1].name = std::string(64, 'x'); },
      "a length of the name of a tensor up to 63, got 64");
  ExpectRefused(
      [](GgufBytes& file) {
        file.keys.push_back(GgufBytes::U32(std::string(65536, 'x'), 3));
      },
      "a length of the name of a key up to 65535, got 65536");
  // Tokens have a bound of their own.
  ExpectRefused(
      [](GgufBytes& file) {
        file.keys.push_back(GgufBytes::Array(
            "tokens", 8, 1, GgufText(std::string(65537, 'x'))));
      },
      "a length of a text of an array up to 65536, got 65537");
}

TEST_F(GgufFileTest, RefusesAlignmentsThatAreNone) {
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 33u, 1u << 17, 1u << 31}) {
    ExpectRefused(
        [alignment](GgufBytes& file) {
          file.keys.push_back(GgufBytes::U32("general.alignment", alignment));
        },
        StrCat("want a power of two from 8 to 65536 as u32, got ", alignment));
  }
  ExpectRefused(
      [](GgufBytes& file) {
        file.keys.push_back({"general.alignment", 10, Le<uint64_t>(32)});
      },
      "as u32, got u64");
}

TEST_F(GgufFileTest, GettersRefuseOtherTypesAndRanges) {
  const std::string bytes = GoodFile().Make();
  const std::vector<uint8_t> copy(bytes.begin(), bytes.end());
  const GgufFile file = GgufFile::OfBytes("m.gguf", copy).Take();
  const auto refused = [](const std::function<void()>& get) {
    const Error error = ErrorOf(get);
    EXPECT_EQ(error.code(), ErrorCode::kFormat);
    return std::string(error.what());
  };
  EXPECT_EQ(refused([&] { file.Integer("none", 0, 1); }),
            "m.gguf: key 'none': want an integer from 0 to 1, got no such key");
  EXPECT_EQ(refused([&] { file.Integer("llama.block_count", 4, 9); }),
            "m.gguf: key 'llama.block_count': want an integer from 4 to 9, got "
            "3");
  EXPECT_EQ(refused([&] { file.Integer("llama.epsilon", 0, 9); }),
            "m.gguf: key 'llama.epsilon': want an integer from 0 to 9, got "
            "1e-06");
  refused([&] { file.Integer("llama.flag", 0, 9); });
  refused([&] { file.Integer("llama.heads", 0, 9); });
  refused([&] { file.Integer("general.architecture", 0, 9); });
  refused([&] { file.Integer("llama.large", 0, INT64_MAX - 1); });
  refused([&] { file.Real("llama.epsilon", 1, 2); });
  refused([&] { file.Real("llama.flag", 0, 2); });
  refused([&] { file.Flag("llama.block_count"); });
  refused([&] { file.Text("llama.block_count"); });
  refused([&] { file.Text("llama.words"); });
  refused([&] { file.Integers("llama.heads", 0, 9, 2); });
  refused([&] { file.Integers("llama.heads", 1, 9, 3); });
  refused([&] { file.Integers("llama.scores", 0, 9, 3); });
  refused([&] { file.Integers("llama.block_count", 0, 9, 3); });
  refused([&] { file.Reals("llama.words", 3); });
  refused([&] { file.Flags("llama.heads", 3); });
  refused([&] { file.Strings("llama.heads", 3); });
  refused([&] { file.Strings("general.architecture", 3); });
  refused([&] { file.TypeOf("none"); });
}

TEST_F(GgufFileTest, RealsAreFinite) {
  for (const float odd : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    GgufBytes bytes;
    bytes.keys = {{"odd", 6, Le(odd)},
                  GgufBytes::Array("odds", 6, 2, Le(1.0f) + Le(odd))};
    const std::string text = bytes.Make();
    const std::vector<uint8_t> copy(text.begin(), text.end());
    const GgufFile file = GgufFile::OfBytes("m.gguf", copy).Take();
    EXPECT_EQ(ErrorOf([&] { file.Real("odd", -1e300, 1e300); }).code(),
              ErrorCode::kFormat);
    EXPECT_EQ(ErrorOf([&] { file.Reals("odds", 2); }).code(),
              ErrorCode::kFormat);
  }
}

// Every byte before the data becomes others: a file that is refused in one
// line, or one that can be read to its end.
TEST_F(GgufFileTest, MutatedHeaders) {
  const std::string whole = GoodFile().Make();
  const std::vector<uint8_t> good(whole.begin(), whole.end());
  const size_t header = GgufFile::OfBytes("good", good).Take().data_offset();
  Rng rng(5);
  int refused = 0, opened = 0;
  for (size_t at = 0; at < header; ++at) {
    const uint8_t old = good[at];
    for (const uint8_t value :
         {static_cast<uint8_t>(old + 1), static_cast<uint8_t>(old - 1),
          static_cast<uint8_t>(old ^ 0x80), uint8_t{0}, uint8_t{0xFF},
          static_cast<uint8_t>(rng.Below(256))}) {
      std::vector<uint8_t> bytes = good;
      bytes[at] = value;
      const Error error =
          ErrorOf([&] { ReadAll(GgufFile::OfBytes("m", bytes).Take()); });
      ASSERT_TRUE(error.code() == ErrorCode::kOk ||
                  error.code() == ErrorCode::kFormat)
          << at << ": " << error.what();
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      (error.code() == ErrorCode::kOk ? opened : refused) += 1;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(opened, 100);
}

}  // namespace
}  // namespace tarn::testing
