#include "core/file.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <thread>

#include "core/test_util.h"

namespace tarn {
namespace {

TEST(File, WritesAndReadsBackAnyBytes) {
  const TemporaryFolder folder;
  std::string contents("a\0b\r\n\xff", 6);
  contents.append(300000, 'x');  // several pieces of a read
  const std::string path = folder / "file";
  WriteFileAtomically(path, contents);
  EXPECT_EQ(ReadFile(path, contents.size()).Take(), contents);
  WriteFileAtomically(path, "");
  EXPECT_EQ(ReadFile(path, 0).Take(), "");
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(File, ReadRefusesWhatIsLargerThanTheLimit) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "file", "12345");
  EXPECT_TRUE(ReadFile(folder / "file", UINT64_MAX).ok());
  const auto result = ReadFile(folder / "file", 4);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kFormat);
  EXPECT_EQ(result.error().wanted(), "at most 4 bytes");
  EXPECT_EQ(result.error().given(), "5");
  // The size that /proc reports is 0, but the contents are longer.
  EXPECT_GT(ReadFile("/proc/self/status", 1 << 20).Take().size(), 100u);
  EXPECT_EQ(ReadFile("/proc/self/status", 10).error().code(),
            ErrorCode::kFormat);
}

TEST(File, ReadRefusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& path :
       {folder.path(), folder / "missing", folder / "pipe",
        std::string("/dev/zero"), std::string()}) {
    const auto result = ReadFile(path, 100);
    ASSERT_FALSE(result.ok()) << path;
    EXPECT_EQ(result.error().code(), ErrorCode::kIo);
    EXPECT_EQ(result.error().where(), path);
  }
  EXPECT_EQ(ReadFile("/absent", 1).error().what(),
            std::string("/absent: want a readable file, "
                        "got no such file or directory"));
  EXPECT_EQ(SystemReason(EDOTDOT), "RFS specific error");
}

TEST(File, FailedWriteNamesThePathAndLeavesNothing) {
  const TemporaryFolder folder;
  const Error missing =
      ErrorOf([&] { WriteFileAtomically(folder / "no/such/folder", "text"); });
  EXPECT_EQ(missing.code(), ErrorCode::kIo);
  EXPECT_EQ(missing.where(), folder / "no/such/folder");
  ASSERT_EQ(mkdir((folder / "taken").c_str(), 0700), 0);
  const Error taken =
      ErrorOf([&] { WriteFileAtomically(folder / "taken", "text"); });
  EXPECT_EQ(taken.code(), ErrorCode::kIo);
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(File, WithoutCommitTheOldFileStays) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "file", "old");
  {
    AtomicFile file(folder / "file");
    file.Write("new", 3);
    EXPECT_EQ(folder.FileCount(), 2u);
  }
  EXPECT_EQ(ReadFile(folder / "file", 10).Take(), "old");
  EXPECT_EQ(folder.FileCount(), 1u);
}

// A limit on file sizes stands in for a full disk: the same failing write.
TEST(File, NoSpaceIsAnErrorAndRemovesTheTemporary) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "file", "old");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = ErrorOf(
      [&] { WriteFileAtomically(folder / "file", std::string(5000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_TRUE(Contains(error.given(), "too large")) << error.given();
  EXPECT_EQ(ReadFile(folder / "file", 10).Take(), "old");
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(File, ConcurrentWritersLeaveOneWholeFile) {
  const TemporaryFolder folder;
  std::vector<std::thread> writers;
  for (char letter : {'a', 'b', 'c', 'd'}) {
    writers.emplace_back([&folder, letter] {
      for (int i = 0; i < 20; ++i) {
        WriteFileAtomically(folder / "file", std::string(10000, letter));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = ReadFile(folder / "file", 1 << 20).Take();
  EXPECT_EQ(text, std::string(10000, text.at(0)));
  EXPECT_EQ(folder.FileCount(), 1u);
}

}  // namespace
}  // namespace tarn
