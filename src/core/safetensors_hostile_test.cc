// Damaged and hostile safetensors files: each is an error that names the file,
// never a crash, in bounded time and memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "core/file.h"
#include "core/rng.h"
#include "core/safetensors.h"
#include "core/safetensors_header.h"
#include "core/test_util.h"

namespace tarn {
namespace {

std::string LengthField(uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof(length)};
}

class Hostile : public ::testing::Test {
 protected:
  // The error for these bytes, the same for all ways to read; kOk when none.
  Error ErrorFor(const std::string& bytes) {
    // Thousands of files: written without the syncs of an atomic write.
    std::ofstream(path_, std::ios::binary) << bytes;
    const Error mapped = ErrorOf([&] { OpenAndReadAll(true); });
    const Error copied = ErrorOf([&] { OpenAndReadAll(false); });
    const Error in_memory = ErrorOf([&] {
      // A copy of exactly these bytes: reading past them is found.
      const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
      ReadAll(SafetensorsFile::OfBytes(path_, exact).Take());
    });
    EXPECT_STREQ(mapped.what(), copied.what());
    EXPECT_STREQ(mapped.what(), in_memory.what());
    return mapped;
  }
  // Puts a valid length field in front of the header.
  Error ErrorForHeader(const std::string& header, size_t data_bytes) {
    return ErrorFor(LengthField(header.size()) + header +
                    std::string(data_bytes, '\0'));
  }
  // A file that opens must be readable to its last byte.
  void OpenAndReadAll(bool use_mmap) {
    ReadAll(SafetensorsFile::Open(path_, use_mmap).Take());
  }
  void ReadAll(const SafetensorsFile& file) {
    for (const TensorEntry& entry : file.tensors()) {
      std::vector<float> values(entry.elements());
      file.ReadF32(entry, values.data());
    }
  }
  std::string GoodFile() {
    std::vector<float> x(24);
    WriteSafetensors(path_,
                     {{"layers.0.weight", DType::kF32, {3, 4}, x.data()},
                      {"layers.0.bias", DType::kBF16, {3}, x.data()},
                      {"half", DType::kF16, {2, 1}, x.data()},
                      {"empty", DType::kF32, {0}, nullptr}},
                     {{"format", "pt"}});
    return ReadFile(path_, 1 << 20).Take();
  }
  void ExpectFormatError(const Error& error, const std::string& what) {
    EXPECT_EQ(error.code(), ErrorCode::kFormat) << what << ": " << error.what();
    EXPECT_TRUE(error.where().starts_with(path_)) << error.where();
    EXPECT_FALSE(Contains(error.what(), "\n"));
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "model.safetensors";
};

TEST_F(Hostile, TheUndamagedFileOpens) {
  EXPECT_EQ(ErrorFor(GoodFile()).code(), ErrorCode::kOk);
}

TEST_F(Hostile, TruncationAtEveryByte) {
  const std::string good = GoodFile();
  for (size_t length = 0; length < good.size(); ++length) {
    ExpectFormatError(ErrorFor(good.substr(0, length)), StrCat("cut ", length));
  }
  ExpectFormatError(ErrorFor(good + "x"), "one byte more");
}

TEST_F(Hostile, EveryFlippedHeaderByte) {
  const std::string good = GoodFile();
  uint64_t length;
  std::memcpy(&length, good.data(), sizeof(length));
  size_t refused = 0, trials = 0;
  for (size_t i = 0; i < 8 + length; ++i) {
    for (const int mask : {0x01, 0x10, 0x80, 0xff}) {
      std::string flipped = good;
      flipped[i] = static_cast<char>(flipped[i] ^ mask);
      const Error error = ErrorFor(flipped);
      ++trials;
      if (error.code() == ErrorCode::kOk) continue;  // changed a name
      ++refused;
      ExpectFormatError(error, StrCat("byte ", i, " mask ", mask));
    }
  }
  EXPECT_GT(refused, trials / 2);
}

TEST_F(Hostile, RandomDamage) {
  const std::string good = GoodFile();
  Rng rng(11);
  for (int trial = 0; trial < 1000; ++trial) {
    std::string bytes = good;
    for (uint64_t change = rng.Below(4) + 1; change > 0; --change) {
      const size_t at = rng.Below(bytes.size());
      switch (rng.Below(4)) {
        case 0:
          bytes[at] = static_cast<char>(rng.Below(256));
          break;
        case 1:
          bytes.erase(at, rng.Below(8) + 1);
          break;
        case 2:
          bytes.insert(at, bytes.substr(rng.Below(bytes.size()), 20));
          break;
        default:  // digits become other digits: offsets and sizes
          bytes[at] = static_cast<char>('0' + rng.Below(10));
      }
      if (bytes.empty()) break;
    }
    const Error error = ErrorFor(bytes);
    if (error.code() != ErrorCode::kOk) {
      ExpectFormatError(error, StrCat("trial ", trial));
    }
  }
}

TEST_F(Hostile, HeaderLengths) {
  const std::string good = GoodFile();
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{1}, uint64_t{100'000'001}, uint64_t{1} << 32,
        uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7,
        uint64_t{good.size()}, uint64_t{good.size() - 7}}) {
    ExpectFormatError(ErrorFor(LengthField(length) + good.substr(8)),
                      StrCat(length));
  }
}

// A header that is valid but for one entry.
std::string Entry(const std::string& fields) {
  return "{\"x\":{" + fields + "}}";
}

TEST_F(Hostile, EntriesThatLie) {
  struct Case {
    const char* what;
    std::string header;
    size_t data_bytes;
    const char* given;
  };
  const std::string f32 = R"("dtype":"F32",)";
  const std::string at8 = R"(,"data_offsets":[0,8])";
  const std::string two = R"("shape":[2])";
  for (
      const Case& c : std::vector<Case>{
          {"size too small", Entry(f32 + R"("shape":[3])" + at8), 8, "8"},
          {"size too large", Entry(f32 + R"("shape":[1])" + at8), 8, "8"},
          {"file too short", Entry(f32 + two + at8), 7, "7"},
          {"file too long", Entry(f32 + two + at8), 9, "9"},
          {"negative size", Entry(f32 + R"("shape":[-2])" + at8), 8, "-2"},
          {"fraction", Entry(f32 + R"("shape":[2.5])" + at8), 8, "2.5"},
          {"real size", Entry(f32 + R"("shape":[2.0])" + at8), 8, "2.0"},
          {"text size", Entry(f32 + R"("shape":["2"])" + at8), 8, "'2'"},
          {"shape a number", Entry(f32 + R"("shape":2)" + at8), 8, "2"},
          {"rank 9", Entry(f32 + R"("shape":[2,1,1,1,1,1,1,1,1])" + at8), 8,
           "9"},
          {"product wraps to 8 bytes",
           Entry(f32 + R"("shape":[4611686018427387905,2])" + at8), 8, "2]"},
          {"product wraps to zero",
           Entry(f32 + R"("shape":[4294967296,4294967296])" +
                 R"(,"data_offsets":[0,0])"),
           0, "4294967296"},
          {"huge times zero",
           Entry(f32 + R"("shape":[9223372036854775807,9,0])" +
                 R"(,"data_offsets":[0,0])"),
           0, "0]"},
          {"size beyond int64",
           Entry(f32 + R"("shape":[18446744073709551615])" + at8), 8,
           "18446744073709551615"},
          {"begin after end", Entry(f32 + two + R"(,"data_offsets":[8,0])"), 8,
           "[8, 0]"},
          {"negative offset", Entry(f32 + two + R"(,"data_offsets":[-8,0])"), 8,
           "-8"},
          {"offset beyond int64",
           Entry(
               f32 + two +
               R"(,"data_offsets":[18446744073709551607,18446744073709551615])"),
           8, "18446744073709551615"},
          {"one offset", Entry(f32 + two + R"(,"data_offsets":[8])"), 8,
           "an array"},
          {"three offsets", Entry(f32 + two + R"(,"data_offsets":[0,8,8])"), 8,
           "an array"},
          {"hole at the start", Entry(f32 + two + R"(,"data_offsets":[8,16])"),
           16, "8"},
          {"past the file", Entry(f32 + two + R"(,"data_offsets":[1000,1008])"),
           8, "1000"},
          {"F64", Entry(R"("dtype":"F64","shape":[1])" + at8), 8, "'F64'"},
          {"I64", Entry(R"("dtype":"I64","shape":[1])" + at8), 8, "'I64'"},
          {"unknown type", Entry(R"("dtype":"f32",)" + two + at8), 8, "'f32'"},
          {"type a number", Entry(R"("dtype":0,)" + two + at8), 8, "0"},
          {"no type", Entry(two + at8), 8, "none"},
          {"no shape", Entry(f32.substr(0, f32.size() - 1) + at8), 8, "none"},
          {"no offsets", Entry(f32 + two), 8, "none"},
          {"unknown key", Entry(f32 + two + at8 + R"(,"strides":[1])"), 8,
           "4 keys"},
          {"key twice", Entry(f32 + two + R"(,"shape":[1])" + at8), 8,
           "'shape' twice"},
          {"entry an array", R"({"x":[]})", 0, "an array"},
          {"entry null", R"({"x":null})", 0, "null"},
          {"metadata a number", R"({"__metadata__":1})", 0, "1"},
          {"metadata nested", R"({"__metadata__":{"a":{}}})", 0, "an object"},
          {"metadata number", R"({"__metadata__":{"a":1}})", 0, "1"},
      }) {
    const Error error = ErrorForHeader(c.header, c.data_bytes);
    ExpectFormatError(error, c.what);
    EXPECT_TRUE(Contains(error.given(), c.given)) << c.what << error.what();
  }
}

TEST_F(Hostile, RangesThatDoNotTile) {
  const auto two = [](const std::string& a, const std::string& b) {
    const std::string f32 = R"(":{"dtype":"F32","shape":[2],"data_offsets":)";
    return "{\"a" + f32 + a + "},\"b" + f32 + b + "}}";
  };
  EXPECT_EQ(ErrorForHeader(two("[8,16]", "[0,8]"), 16).code(), ErrorCode::kOk);
  ExpectFormatError(ErrorForHeader(two("[0,8]", "[0,8]"), 8), "same range");
  ExpectFormatError(ErrorForHeader(two("[0,8]", "[4,12]"), 12), "overlap");
  ExpectFormatError(ErrorForHeader(two("[0,8]", "[9,17]"), 17), "hole");
  ExpectFormatError(ErrorForHeader(two("[0,8]", "[8,16]"), 24), "tail");
  const Error hole = ErrorForHeader(two("[0,8]", "[9,17]"), 17);
  EXPECT_TRUE(Contains(hole.where(), "tensor 'b' at byte ")) << hole.where();
  EXPECT_EQ(hole.given(), "9");
}

TEST_F(Hostile, DuplicateAndStrangeNames) {
  const std::string entry = R"(:{"dtype":"F32","shape":[0],)"
                            R"("data_offsets":[0,0]})";
  ExpectFormatError(
      ErrorForHeader("{\"a\"" + entry + ",\"a\"" + entry + "}", 0), "twice");
  ExpectFormatError(
      ErrorForHeader("{\"a\"" + entry + ",\"\\u0061\"" + entry + "}", 0),
      "the same name in another spelling");
  const Error error = ErrorForHeader(
      "{\"" + std::string(100000, 'n') + "\\n\":{\"dtype\":\"F32\"}}", 0);
  ExpectFormatError(error, "long name");
  EXPECT_LT(std::string(error.what()).size(), 1000u);
}

TEST_F(Hostile, HeadersThatAreNoObject) {
  for (const std::string& header :
       {std::string("[]"), std::string("  "), std::string("{}}"),
        std::string("{} x"), std::string(" {}"), std::string("null"),
        std::string("{\"a\":NaN}"), std::string("{\"a\":1e999}"),
        std::string("{\"a\":\"\xff\"}"), std::string("{}\0", 3),
        std::string(1 << 20, '['), "{\"a\":" + std::string(1 << 20, '[')}) {
    ExpectFormatError(ErrorForHeader(header, 0), header.substr(0, 20));
  }
  EXPECT_EQ(ErrorForHeader("{}  \n", 0).code(), ErrorCode::kOk);
}

TEST_F(Hostile, GiantCountsAreBounded) {
  std::string many = "{";
  for (size_t i = 0; i <= kMaxSafetensorsTensors; ++i) {
    many += StrCat(i == 0 ? "" : ",", "\"", i,
                   R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  }
  const auto result = ParseSafetensorsHeader("file", many + "}", 0);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().wanted(), "at most 262144 tensors");

  std::string values = "{\"x\":[0";
  for (int i = 0; i < 1 << 17; ++i) values += ",0";
  EXPECT_FALSE(ParseSafetensorsHeader("file", values + "]}", 0).ok());
}

// A file of 64 GiB that takes no space on disk, with a header as large as
// allowed: it must not be read as a whole before its header is refused.
TEST_F(Hostile, ASparseFileCostsLittle) {
  WriteFileAtomically(path_, LengthField(100'000'000) + "{");
  ASSERT_EQ(truncate(path_.c_str(), off_t{1} << 36), 0);
  for (const bool use_mmap : {true, false}) {
    const auto result = SafetensorsFile::Open(path_, use_mmap);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), ErrorCode::kFormat);
  }
}

TEST_F(Hostile, WhatIsNoFile) {
  for (const std::string& path :
       {folder_.path(), folder_ / "missing", std::string("/dev/null"),
        std::string("/dev/zero"), std::string("/proc/self/status"),
        std::string()}) {
    const auto result = SafetensorsFile::Open(path);
    ASSERT_FALSE(result.ok()) << path;
    EXPECT_TRUE(result.error().code() == ErrorCode::kIo ||
                result.error().code() == ErrorCode::kFormat);
  }
}

// A copied file no longer depends on the original.
TEST_F(Hostile, TruncationAfterACopyingOpenIsHarmless) {
  const float x[3] = {1, 2, 3};
  WriteSafetensors(path_, {{"x", DType::kF32, {3}, x}}, {});
  const SafetensorsFile file = SafetensorsFile::Open(path_, false).Take();
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  float back[3];
  file.ReadF32(*file.Find("x"), back);
  EXPECT_EQ(std::memcmp(back, x, sizeof(x)), 0);
}

}  // namespace
}  // namespace tarn
