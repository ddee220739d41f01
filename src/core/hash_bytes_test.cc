#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "core/hash.h"
#include "core/rng.h"

namespace tarn {
namespace {

std::string RandomBytes(Rng& rng, size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng.Below(256));
  return bytes;
}

// Files, corpora and models are named by it: values must not change.
TEST(Hash, KnownValues) {
  EXPECT_EQ("6393d51c06c618dc", HashText(HashBytes("")));
  EXPECT_EQ("aa94ec0dfa911ff5", HashText(HashBytes("tarn")));
  EXPECT_EQ("0c5a5e5ccb3e73f4", HashText(HashBytes("eight by")));
  EXPECT_EQ("09dcc66f63da0208", HashText(HashBytes("more than 8 bytes")));
}

TEST(Hash, PiecesOfAnySizeGiveTheHashOfTheWhole) {
  Rng rng(3);
  for (int i = 0; i < 300; ++i) {
    const std::string bytes = RandomBytes(rng, rng.Below(70));
    PiecewiseHash hash(bytes.size());
    for (std::string_view rest = bytes; !rest.empty();) {
      const size_t piece = std::min<size_t>(rest.size(), rng.Below(20));
      hash.Add(rest.substr(0, piece));
      rest.remove_prefix(piece);
    }
    ASSERT_EQ(HashBytes(bytes), hash.Finish()) << bytes.size();
  }
}

// Another definition of WideHash: words by their numbers, one hash for each of
// eight places.
uint64_t WideByDefinition(std::string bytes) {
  const uint64_t total = bytes.size();
  bytes.resize((bytes.size() + 63) / 64 * 64, '\0');
  uint64_t lanes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (size_t w = 0; 8 * w < bytes.size(); ++w) {
    uint64_t word = 0;
    for (size_t i = 0; i < 8; ++i) {
      word |= uint64_t{static_cast<uint8_t>(bytes[8 * w + i])} << (8 * i);
    }
    uint64_t& lane = lanes[w % 8];
    lane = (lane ^ word) * 0x9e3779b97f4a7c15u;
    lane ^= lane >> 32;
  }
  uint64_t hash = Mix(total + 0x9e3779b97f4a7c15u);
  for (const uint64_t lane : lanes) hash = Mix(hash ^ lane);
  return hash;
}

TEST(WideHash, PiecesOfAnySizeGiveTheHashOfTheWhole) {
  EXPECT_EQ(WideByDefinition(""), WideHash().Finish());
  Rng rng(5);
  for (int i = 0; i < 500; ++i) {
    const std::string bytes = RandomBytes(rng, rng.Below(300));
    WideHash hash;
    for (std::string_view rest = bytes; !rest.empty();) {
      const size_t piece = std::min<size_t>(rest.size(), rng.Below(150));
      hash.Add(rest.substr(0, piece));
      rest.remove_prefix(piece);
      hash.Add({});
      hash.Finish();  // changes nothing
    }
    ASSERT_EQ(WideByDefinition(bytes), hash.Finish()) << bytes.size();
  }
}

TEST(WideHash, EveryBitAndTheLengthCount) {
  Rng rng(6);
  const auto hash = [](std::string_view bytes) {
    WideHash wide;
    wide.Add(bytes);
    return wide.Finish();
  };
  for (const size_t count : {1, 8, 63, 64, 65, 200}) {
    const std::string bytes = RandomBytes(rng, count);
    for (size_t bit = 0; bit < 8 * count; ++bit) {
      std::string other = bytes;
      other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
      EXPECT_NE(hash(bytes), hash(other));
    }
    EXPECT_NE(hash(bytes), hash(bytes + '\0'));
  }
}

TEST(Hash, EveryBitAndTheLengthCount) {
  Rng rng(4);
  for (const size_t count : {1, 7, 8, 9, 16, 21}) {
    const std::string bytes = RandomBytes(rng, count);
    for (size_t bit = 0; bit < 8 * count; ++bit) {
      std::string other = bytes;
      other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
      EXPECT_NE(HashBytes(bytes), HashBytes(other));
    }
    EXPECT_NE(HashBytes(bytes), HashBytes(bytes + '\0'));
  }
}

}  // namespace
}  // namespace tarn
