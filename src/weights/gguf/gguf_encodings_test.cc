// Types of tensors: numbers of random blocks are those that gguf-py reads from
// them, bit for bit, and blocks of numbers those that it writes
// (tests/golden/make_gguf_blocks.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/file.h"
#include "weights/gguf/encodings.h"
#include "weights/quantised/group_encodings.h"

namespace tarn {
namespace {

std::vector<uint8_t> BytesOf(const nlohmann::json& hex) {
  const auto text = hex.get<std::string>();
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(
        static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<float> NumbersOf(const nlohmann::json& hex) {
  const std::vector<uint8_t> bytes = BytesOf(hex);
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

nlohmann::json Golden() {
  const std::string path = std::string(TARN_GOLDEN) + "/gguf_blocks.json";
  return nlohmann::json::parse(ReadFile(path, 1 << 20).Take());
}

const Encoding* Named(const std::string& name) {
  for (uint32_t type = 0; type < 64; ++type) {
    if (GgufTypeName(type) == name) return GgufEncodingOf(type);
  }
  return nullptr;
}

TEST(GgufEncodings, NumbersAreThoseOfTheReference) {
  const nlohmann::json golden = Golden();
  std::set<std::string> seen;
  for (const auto& [name, entry] : golden["read"].items()) {
    SCOPED_TRACE(name);
    const Encoding* encoding = Named(name);
    ASSERT_NE(encoding, nullptr);
    EXPECT_EQ(encoding->name, name);
    const std::vector<uint8_t> blocks = BytesOf(entry["blocks"]);
    const std::vector<float> wanted = NumbersOf(entry["numbers"]);
    const auto count = static_cast<int64_t>(wanted.size());
    ASSERT_EQ(encoding->Bytes(count), static_cast<int64_t>(blocks.size()));
    // At every alignment, and no number beyond the last.
    for (size_t shift = 0; shift < 8; ++shift) {
      std::vector<uint8_t> moved(shift + blocks.size());
      std::memcpy(moved.data() + shift, blocks.data(), blocks.size());
      std::vector<float> given(wanted.size() + 1, std::nanf(""));
      encoding->widen(moved.data() + shift, count, given.data());
      EXPECT_EQ(std::memcmp(given.data(), wanted.data(),
                            wanted.size() * sizeof(float)),
                0);
      EXPECT_TRUE(std::isnan(given.back()));
    }
    encoding->widen(nullptr, 0, nullptr);
    seen.insert(name);
  }
  // Every type that is read is in the golden file.
  std::string names;
  for (uint32_t type = 0; type < 64; ++type) {
    const Encoding* encoding = GgufEncodingOf(type);
    if (encoding == nullptr) continue;
    EXPECT_TRUE(seen.contains(encoding->name)) << encoding->name;
    EXPECT_EQ(GgufTypeOf(*encoding), type);
    names += (names.empty() ? "" : ", ") + std::string(encoding->name);
  }
  EXPECT_EQ(GgufTypeNames(), names);
}

TEST(GgufEncodings, BlocksAreThoseOfTheReference) {
  const nlohmann::json golden = Golden();
  const std::vector<float> numbers = NumbersOf(golden["numbers"]);
  const auto count = static_cast<int64_t>(numbers.size());
  for (const auto& [name, hex] : golden["written"].items()) {
    SCOPED_TRACE(name);
    const Encoding* encoding = Named(name);
    ASSERT_NE(encoding, nullptr);
    ASSERT_NE(encoding->narrow, nullptr);
    const std::vector<uint8_t> wanted = BytesOf(hex);
    ASSERT_EQ(encoding->Bytes(count), static_cast<int64_t>(wanted.size()));
    std::vector<uint8_t> given(wanted.size() + 1, 0xA5);
    encoding->narrow(numbers.data(), count, given.data());
    EXPECT_EQ(std::memcmp(given.data(), wanted.data(), wanted.size()), 0);
    EXPECT_EQ(given.back(), 0xA5);
  }
}

// Groups that tarn quantises to have the blocks of GGUF's types.
TEST(GgufEncodings, GroupsOf32AreTheSameBlocks) {
  EXPECT_EQ(GgufEncodingLike(GroupEncoding({8, 32, false})), &kQ80Encoding);
  EXPECT_EQ(GgufEncodingLike(GroupEncoding({4, 32, false})), &kQ40Encoding);
  EXPECT_EQ(GgufEncodingLike(GroupEncoding({4, 32, true})), &kQ41Encoding);
  EXPECT_EQ(GgufEncodingLike(GroupEncoding({8, 64, false})), nullptr);
  EXPECT_EQ(GgufEncodingLike(kF32Encoding), &kF32Encoding);
  EXPECT_EQ(GgufEncodingLike(kQ6KEncoding), &kQ6KEncoding);
  EXPECT_EQ(GgufEncodingLike(kBytesEncoding), nullptr);
  const nlohmann::json golden = Golden();
  for (const Encoding* encoding :
       {&kQ80Encoding, &kQ40Encoding, &kQ41Encoding}) {
    SCOPED_TRACE(encoding->name);
    const Encoding& group = GroupEncoding(*encoding->scheme);
    EXPECT_EQ(group.bytes, encoding->bytes);
    const auto& entry = golden["read"][encoding->name];
    const std::vector<uint8_t> blocks = BytesOf(entry["blocks"]);
    std::vector<float> numbers(NumbersOf(entry["numbers"]).size());
    group.widen(blocks.data(), std::ssize(numbers), numbers.data());
    EXPECT_EQ(numbers, NumbersOf(entry["numbers"]));
  }
}

// The scale of MX that stands for NaN.
TEST(GgufEncodings, NanScalesGiveNan) {
  std::vector<uint8_t> block(17, 0x11);
  block[0] = 255;
  std::vector<float> numbers(32);
  kMxfp4Encoding.widen(block.data(), 32, numbers.data());
  for (const float number : numbers) EXPECT_TRUE(std::isnan(number));
  block[0] = 254;
  kMxfp4Encoding.widen(block.data(), 32, numbers.data());
  EXPECT_EQ(numbers[0], 0x1p126f);
  block[0] = 0;
  kMxfp4Encoding.widen(block.data(), 32, numbers.data());
  EXPECT_EQ(numbers[0], 0x1p-128f);
}

}  // namespace
}  // namespace tarn
