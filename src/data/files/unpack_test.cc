#include "data/files/unpack.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/rng.h"
#include "core/test_util.h"
#include "data/files/packing.h"

namespace tarn {
namespace {

// Text that packs, with some that does not.
std::string SomeBytes(size_t count) {
  Rng rng(7);
  std::string bytes;
  while (bytes.size() < count) {
    bytes += rng.Below(2) == 0 ? std::string(rng.Below(300), 'a')
                               : std::to_string(rng.Next());
  }
  bytes.resize(count);
  return bytes;
}

std::string ErrorOf(const std::string& path, uint64_t most = 1 << 20) {
  try {
    ReadUnpacked(path, most);
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    return error.what();
  }
  return "";
}

TEST(UnpackTest, ThreeFormsOfTheSameBytes) {
  const TemporaryFolder dir;
  for (const size_t size : {0, 1, 3, 65535, 65536, 65537, 700001}) {
    const std::string bytes = SomeBytes(size);
    EXPECT_EQ(ReadUnpacked(dir.Write("plain", bytes), size), bytes);
    EXPECT_EQ(ReadUnpacked(dir.Write("gz", Gzipped(bytes)), size), bytes);
    EXPECT_EQ(ReadUnpacked(dir.Write("zst", Zstandard(bytes)), size), bytes);
  }
}

TEST(UnpackTest, PartsFollowEachOther) {
  const TemporaryFolder dir;
  const std::string a = SomeBytes(70000), b = SomeBytes(300);
  const std::string both = a + b;
  EXPECT_EQ(ReadUnpacked(dir.Write("gz", Gzipped(a) + Gzipped("") + Gzipped(b)),
                         1 << 20),
            both);
  EXPECT_EQ(
      ReadUnpacked(dir.Write("zst", Zstandard(a) + Zstandard(b)), 1 << 20),
      both);
}

TEST(UnpackTest, ReadsInPiecesOfAnySize) {
  const TemporaryFolder dir;
  const std::string bytes = SomeBytes(10007);
  for (const std::string& packed : {bytes, Gzipped(bytes), Zstandard(bytes)}) {
    for (const size_t piece : {1, 7, 4096, 1 << 20}) {
      UnpackStream stream(dir.Write("file", packed));
      std::string got, part(piece, '\0');
      while (const size_t count = stream.Read(part.data(), piece)) {
        got.append(part, 0, count);
      }
      EXPECT_EQ(got, bytes);
      EXPECT_EQ(stream.Read(part.data(), piece), 0u);
    }
  }
}

TEST(UnpackTest, EveryCutIsSeen) {
  const TemporaryFolder dir;
  const std::string bytes = SomeBytes(400);
  for (const std::string& packed : {Gzipped(bytes), Zstandard(bytes)}) {
    // A file cut within its first bytes is not a packed one and is read as is.
    for (size_t length = 4; length < packed.size(); ++length) {
      const std::string path = dir.Write("cut", packed.substr(0, length));
      EXPECT_NE(ErrorOf(path).find("cut off"), std::string::npos) << length;
    }
  }
}

TEST(UnpackTest, DamageIsSeenOrHarmless) {
  const TemporaryFolder dir;
  const std::string bytes = SomeBytes(500);
  for (const std::string& packed : {Gzipped(bytes), Zstandard(bytes)}) {
    int refused = 0;
    for (size_t at = 4; at < packed.size(); ++at) {
      std::string damaged = packed;
      damaged[at] ^= 0x10;
      const std::string path = dir.Write("damaged", damaged);
      try {
        // Some bytes of a header (time, system) mean nothing.
        EXPECT_EQ(ReadUnpacked(path, 1 << 20), bytes) << at;
      } catch (const FormatError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, static_cast<int>(packed.size()) - 20);
  }
}

TEST(UnpackTest, RefusesWhatFollowsPackedParts) {
  const TemporaryFolder dir;
  EXPECT_NE(ErrorOf(dir.Write("gz", Gzipped("abc") + "more")).find("after it"),
            std::string::npos);
  EXPECT_NE(ErrorOf(dir.Write("zst", Zstandard("abc") + "more")), "");
}

TEST(UnpackTest, ABombStopsAtItsBound) {
  const TemporaryFolder dir;
  const std::string zeros(64 << 20, '\0');
  for (const std::string& packed : {Gzipped(zeros), Zstandard(zeros)}) {
    const std::string path = dir.Write("bomb", packed);
    EXPECT_LT(packed.size(), zeros.size() / 500);
    EXPECT_NE(ErrorOf(path, 1000).find("at most 1000 bytes, unpacked"),
              std::string::npos);
    EXPECT_EQ(ErrorOf(path, zeros.size()), "");
    EXPECT_NE(ErrorOf(path, zeros.size() - 1), "");
  }
  EXPECT_NE(ErrorOf(dir.Write("plain", "abcd"), 3), "");
  EXPECT_EQ(ErrorOf(dir.Write("plain", "abcd"), 4), "");
}

TEST(UnpackTest, RefusesWhatIsNoFile) {
  const TemporaryFolder dir;
  EXPECT_NE(ErrorOf(dir.path()).find("a directory"), std::string::npos);
  EXPECT_NE(ErrorOf(dir / "none").find("got no such file"), std::string::npos);
  // The pipe has no writer: opening it must not wait for one.
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_NE(ErrorOf(dir / "pipe").find("regular"), std::string::npos);
}

}  // namespace
}  // namespace tarn
