#include "data/files/archive.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "core/error.h"
#include "core/test_util.h"
#include "data/files/packing.h"

namespace tarn::train {
namespace {

using Members = std::vector<std::pair<std::string, std::string>>;

// A member as POSIX.1-1988 (ustar) lays it out. type: '0' file, '5' folder, '1'
// hard link, '2' symbolic link, '3' device.
std::string Member(const std::string& name, const std::string& contents,
                   char type = '0', const std::string& link = "",
                   long long size = -1) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  char octal[16];
  std::snprintf(octal, sizeof octal, "%011llo",
                size < 0 ? static_cast<long long>(contents.size()) : size);
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, octal);
  put(136, "00000000000");
  put(148, "        ");
  header[156] = type;
  put(157, link);
  put(257, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(octal, sizeof octal, "%06o", sum);
  put(148, std::string(octal, 7));
  return header + contents +
         std::string((512 - contents.size() % 512) % 512, '\0');
}

std::string Tar(const std::string& members) {
  return members + std::string(1024, '\0');
}

Members Read(const std::string& path, const ArchiveBounds& bounds = {}) {
  Members members;
  ReadArchive(path, bounds, [&](const std::string& name, std::string contents) {
    members.emplace_back(name, std::move(contents));
  });
  return members;
}

std::string ErrorOf(const std::string& path, const ArchiveBounds& bounds = {}) {
  try {
    Read(path, bounds);
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    return error.what();
  }
  return "";
}

const std::string kLong(200000, 'x');

TEST(ArchiveTest, MembersInOrderInEveryPacking) {
  const TemporaryFolder dir;
  const std::string tar =
      Tar(Member("clips/", "", '5') + Member("clips/b.wav", "bee") +
          Member("clips/a.wav", "") + Member("../odd name", kLong));
  const Members want = {
      {"clips/b.wav", "bee"}, {"clips/a.wav", ""}, {"../odd name", kLong}};
  EXPECT_EQ(Read(dir.Write("a.tar", tar)), want);
  EXPECT_EQ(Read(dir.Write("a.tar.gz", Gzipped(tar))), want);
  EXPECT_EQ(Read(dir.Write("a.tar.zst", Zstandard(tar))), want);
  // Padded to a whole record, as tar programs do.
  EXPECT_EQ(Read(dir.Write("b.tar", tar + std::string(8192, '\0'))), want);
}

TEST(ArchiveTest, EveryCutIsSeen) {
  const TemporaryFolder dir;
  const std::string tar = Tar(Member("a", "one") + Member("b", "two"));
  for (size_t length = 0; length < tar.size(); length += 64) {
    EXPECT_NE(ErrorOf(dir.Write("cut", tar.substr(0, length))), "") << length;
  }
  const std::string packed = Gzipped(tar);
  for (size_t length = 2; length < packed.size(); ++length) {
    EXPECT_NE(ErrorOf(dir.Write("cut.gz", packed.substr(0, length))), "");
  }
}

TEST(ArchiveTest, OddMembersAreRefusedByName) {
  const TemporaryFolder dir;
  const std::string good = Member("good", "1");
  for (const char type : {'1', '2', '3', '4', '6'}) {
    const std::string error = ErrorOf(
        dir.Write("odd", Tar(good + Member("strange", "", type, "good"))));
    EXPECT_NE(error.find("strange"), std::string::npos) << type << error;
  }
}

TEST(ArchiveTest, BoundsHold) {
  const TemporaryFolder dir;
  const std::string path =
      dir.Write("a", Tar(Member("one", kLong) + Member("two", kLong)));
  ArchiveBounds bounds;
  bounds.max_member_bytes = kLong.size();
  bounds.max_bytes = 2 * kLong.size();
  bounds.max_members = 2;
  EXPECT_EQ(Read(path, bounds).size(), 2u);
  ArchiveBounds less = bounds;
  less.max_member_bytes -= 1;
  EXPECT_NE(ErrorOf(path, less).find("one: want at most 199999 bytes"),
            std::string::npos);
  less = bounds;
  less.max_bytes -= 1;
  EXPECT_NE(ErrorOf(path, less).find("two: want at most 399999 bytes"),
            std::string::npos);
  less = bounds;
  less.max_members = 1;
  EXPECT_NE(ErrorOf(path, less).find("at most 1 files"), std::string::npos);
  // A size that is not there, and one no memory would hold.
  for (const long long size : {1700LL, 8589934591LL}) {
    EXPECT_NE(
        ErrorOf(dir.Write("b", Tar(Member("c", "x", '0', "", size))), bounds),
        "");
  }
}

TEST(ArchiveTest, RefusesWhatIsNoArchive) {
  const TemporaryFolder dir;
  for (const std::string& bytes :
       {std::string(), std::string("text"), std::string(5000, 'q'),
        Gzipped("text"), Gzipped("")}) {
    EXPECT_NE(ErrorOf(dir.Write("none", bytes)), "");
  }
  EXPECT_NE(ErrorOf(dir.path()).find("a directory"), std::string::npos);
}

TEST(ArchiveTest, WhatTheVisitorThrowsComesOut) {
  const TemporaryFolder dir;
  const std::string path = dir.Write("a", Tar(Member("one", "1")));
  EXPECT_THROW(ReadArchive(path, {},
                           [](const std::string& name, std::string) {
                             throw ArgumentError(name);
                           }),
               ArgumentError);
}

}  // namespace
}  // namespace tarn::train
