#include "data/images/image_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/rng.h"
#include "core/test_util.h"
#include "data/files/packing.h"

namespace tarn {
namespace {

std::string Word(uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) {
    bytes += static_cast<char>(value >> shift & 0xff);
  }
  return bytes;
}

std::string RandomBytes(size_t count, uint64_t seed = 1) {
  Rng rng(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng.Below(256));
  return bytes;
}

// Three images of 4 x 6 pixels.
std::string SmallIdx() {
  return Word(2051) + Word(3) + Word(4) + Word(6) + RandomBytes(72);
}

std::string CifarRecord(char label, uint64_t seed) {
  return label + RandomBytes(3072, seed);
}

std::string ErrorOf(const std::string& path, const ImageBounds& bounds = {}) {
  try {
    ReadImages(path, bounds);
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    return error.what();
  }
  return "";
}

void ExpectPart(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks " << part;
}

TEST(ImagesTest, IdxPlainAndPacked) {
  const TemporaryFolder dir;
  const std::string idx = SmallIdx();
  for (const std::string& bytes : {idx, Gzipped(idx), Zstandard(idx)}) {
    const ImageSet images = ReadImages(dir.Write("images", bytes));
    EXPECT_EQ(images.count, 3);
    EXPECT_EQ(images.height, 4);
    EXPECT_EQ(images.width, 6);
    EXPECT_EQ(images.channels, 1);
    EXPECT_EQ(images.bytes, idx.substr(16));
    EXPECT_EQ(images.image(2), idx.substr(16 + 48));
    EXPECT_TRUE(images.labels.empty());
    EXPECT_EQ(ImagesToIdx(images), idx);
  }
}

TEST(ImagesTest, IdxWithColours) {
  const TemporaryFolder dir;
  const std::string idx =
      Word(2052) + Word(2) + Word(1) + Word(2) + Word(3) + RandomBytes(12);
  const ImageSet images = ReadImages(dir.Write("images", idx));
  EXPECT_EQ(images.channels, 3);
  EXPECT_EQ(images.bytes, idx.substr(20));
  EXPECT_EQ(ImagesToIdx(images), idx);
  ExpectPart(ErrorOf(dir.Write("two", Word(2052) + Word(1) + Word(1) + Word(1) +
                                          Word(2) + "ab")),
             "channels: want 1 or 3, got 2");
}

TEST(ImagesTest, CifarPlanesAreInterleaved) {
  const TemporaryFolder dir;
  const std::string file = CifarRecord('\x06', 1) + CifarRecord('\x09', 2);
  for (const std::string& bytes : {file, Gzipped(file)}) {
    const ImageSet images = ReadImages(dir.Write("batch", bytes));
    EXPECT_EQ(images.count, 2);
    EXPECT_EQ(images.image_bytes(), 3072);
    EXPECT_EQ(images.labels, (std::vector<uint8_t>{6, 9}));
    for (const int pixel : {0, 1, 31, 32, 1023}) {
      for (const int channel : {0, 1, 2}) {
        EXPECT_EQ(images.image(1)[3 * pixel + channel],
                  file[3073 + 1 + 1024 * channel + pixel]);
      }
    }
  }
  ExpectPart(ErrorOf(dir.Write(
                 "batch", CifarRecord('\x06', 1) + CifarRecord('\x0a', 2))),
             "label of image 1: want 0 to 9, got 10");
}

TEST(ImagesTest, EveryWrongLengthIsRefusedWithNumbers) {
  const TemporaryFolder dir;
  const std::string idx = SmallIdx();
  for (size_t length = 0; length < idx.size(); ++length) {
    const std::string error = ErrorOf(dir.Write("cut", idx.substr(0, length)));
    ExpectPart(error, StrCat("got ", length, " bytes"));
  }
  ExpectPart(ErrorOf(dir.Write("cut", idx.substr(0, 87))),
             "want 88 bytes for 3 images of 4 x 6 x 1, got 87 bytes");
  ExpectPart(ErrorOf(dir.Write("long", idx + "x")), "got 89 bytes");
  const std::string cifar = CifarRecord('\x01', 1);
  for (const size_t length : {1, 3072}) {
    ExpectPart(ErrorOf(dir.Write("cut", cifar.substr(0, length))),
               "CIFAR-10 records of 3073 bytes");
  }
  ExpectPart(ErrorOf(dir.Write("long", cifar + "\x01")), "got 3074 bytes");
}

TEST(ImagesTest, BoundsComeBeforeMemory) {
  const TemporaryFolder dir;
  const auto header = [&](uint32_t count, uint32_t height, uint32_t width) {
    return ErrorOf(dir.Write(
        "head", Word(2051) + Word(count) + Word(height) + Word(width)));
  };
  ExpectPart(header(0, 4, 6), "images: want 1 to 16777216, got 0");
  ExpectPart(header(0xffffffff, 4, 6), "got 4294967295");
  ExpectPart(header(1, 0xffffffff, 0xffffffff), "height: want 1 to 4096");
  ExpectPart(header(1, 1, 0), "width: want 1 to 4096, got 0");
  // The header declares as much as it may, with no data after it.
  ExpectPart(header(1 << 24, 4096, 4096), "got 16 bytes");
  ImageBounds bounds;
  bounds.max_images = 2;
  ExpectPart(ErrorOf(dir.Write("three", SmallIdx()), bounds), "got 3");
  bounds = {};
  bounds.max_bytes = 87;
  ExpectPart(ErrorOf(dir.Write("three", SmallIdx()), bounds), "at most 87");
}

TEST(ImagesTest, WhatIsNoImage) {
  const TemporaryFolder dir;
  ExpectPart(ErrorOf(dir.Write("labels", Word(2049) + Word(1) + "x")),
             "got labels (magic 2049)");
  ExpectPart(ErrorOf(dir.Write("text", "some text\n")), "magic 2051");
  ExpectPart(ErrorOf(dir.Write("empty", "")), "got 0 bytes");
  // Floats, which IDX supports as well.
  ExpectPart(ErrorOf(dir.Write("floats", Word(0xd03) + Word(1))), "3331");
}

// Any change of a byte gives images or a FormatError, nothing else.
TEST(ImagesTest, MutationsAreReadOrRefused) {
  const TemporaryFolder dir;
  const std::string idx = SmallIdx();
  const std::string cifar = CifarRecord('\x01', 1);
  Rng rng(3);
  int refused = 0, read = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string bytes = i % 3 == 0 ? Gzipped(idx) : i % 3 == 1 ? idx : cifar;
    for (uint64_t edits = 1 + rng.Below(3); edits > 0; --edits) {
      const size_t at = rng.Below(std::min<size_t>(bytes.size(), 40));
      switch (rng.Below(4)) {
        case 0:
          bytes[at] = static_cast<char>(rng.Below(256));
          break;
        case 1:
          bytes[at] ^= static_cast<char>(1 << rng.Below(8));
          break;
        case 2:
          bytes.insert(at, RandomBytes(rng.Below(5), rng.Next()));
          break;
        default:
          bytes.erase(at, rng.Below(5));
      }
    }
    try {
      const ImageSet images = ReadImages(dir.Write("mutant", bytes));
      ASSERT_EQ(static_cast<int64_t>(images.bytes.size()),
                images.count * images.image_bytes());
      ++read;
    } catch (const FormatError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(read, 50);
}

TEST(ImagesTest, PoolingIsTheRoundedMean) {
  ImageSet images;
  images.count = 2;
  images.height = 4;
  images.width = 6;
  images.channels = 3;
  images.bytes = RandomBytes(2 * 4 * 6 * 3, 5);
  const ImageSet pooled = PoolImages(images, 2);
  EXPECT_EQ(pooled.height, 2);
  EXPECT_EQ(pooled.width, 3);
  const auto byte = [](const ImageSet& set, int64_t i, int64_t y, int64_t x,
                       int64_t c) {
    return static_cast<unsigned char>(
        set.image(i)[(y * set.width + x) * set.channels + c]);
  };
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t y = 0; y < 2; ++y) {
      for (int64_t x = 0; x < 3; ++x) {
        for (int64_t c = 0; c < 3; ++c) {
          const double mean = (byte(images, i, 2 * y, 2 * x, c) +
                               byte(images, i, 2 * y, 2 * x + 1, c) +
                               byte(images, i, 2 * y + 1, 2 * x, c) +
                               byte(images, i, 2 * y + 1, 2 * x + 1, c)) /
                              4.0;
          EXPECT_EQ(byte(pooled, i, y, x, c), std::floor(mean + 0.5));
        }
      }
    }
  }
  EXPECT_EQ(PoolImages(images, 1).bytes, images.bytes);
  EXPECT_THROW(PoolImages(images, 3), ArgumentError);
  EXPECT_THROW(PoolImages(images, 0), ArgumentError);
  EXPECT_THROW(PoolImages(images, -2), ArgumentError);
  // The brightest stay in range.
  images.bytes.assign(images.bytes.size(), '\xff');
  EXPECT_EQ(PoolImages(images, 2).bytes, std::string(36, '\xff'));
}

}  // namespace
}  // namespace tarn
