// Log, folders that appear by rename, and progress text.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/folder.h"
#include "core/test_util.h"
#include "train/run/log.h"
#include "train/run/progress.h"

namespace tarn::train {
namespace {

namespace fs = std::filesystem;

TEST(StepLogTest, DropsWhatFollowsTheCheckpoint) {
  const TemporaryFolder dir;
  StepFigures figures;
  uint64_t kept = 0;
  {
    StepLog log(dir / "log", 0);
    figures.step = 1;
    log.Write(figures);
    kept = log.bytes();
    figures.step = 2;
    log.Write(figures);
  }
  const std::string first = dir.Read("log").substr(0, kept);
  EXPECT_EQ(first.find("{\"step\": 1, \"loss\": 0,"), 0u);
  {
    StepLog log(dir / "log", kept);
    EXPECT_EQ(dir.Read("log"), first);
    figures.step = 3;
    figures.val_bits_per_byte = 2.5;
    log.Write(figures);
  }
  const std::string second = dir.Read("log").substr(kept);
  EXPECT_EQ(second.find("{\"step\": 3,"), 0u);
  EXPECT_NE(second.find("\"val_bits_per_byte\": 2.5,"), std::string::npos);
  EXPECT_THROW(StepLog(dir / "log", 100000), FormatError);
  EXPECT_THROW(StepLog(dir / "no/log", 0), IoError);
}

TEST(StepLogTest, FullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "/dev/full is missing";
  // Writes to it fail with "no space left"; it can be neither cut nor sought,
  // so either way the caller gets an error.
  EXPECT_THROW(StepLog("/dev/full", 0).Write(StepFigures()), IoError);
}

std::string Fill(const std::string& dir, const std::string& text) {
  std::ofstream(dir + "/file") << text;
  return text;
}

TEST(ReplaceFolderTest, SwapsWholeFolders) {
  const TemporaryFolder dir;
  const std::string path = dir / "checkpoint";
  ReplaceFolder(path, "1", [](const std::string& d) { Fill(d, "one"); });
  EXPECT_EQ(dir.Read("checkpoint/file"), "one");
  ReplaceFolder(path, "2", [&](const std::string& d) {
    EXPECT_EQ(dir.Read("checkpoint/file"), "one");
    Fill(d, "two");
  });
  EXPECT_EQ(dir.Read("checkpoint/file"), "two");
  EXPECT_THROW(ReplaceFolder(path, "3",
                             [](const std::string& d) {
                               Fill(d, "half");
                               throw IoError("no space");
                             }),
               IoError);
  EXPECT_EQ(dir.Read("checkpoint/file"), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1);
}

TEST(RecoverFolderTest, FindsTheOldFolderBetweenTheTwoRenames) {
  const TemporaryFolder dir;
  const std::string path = dir / "checkpoint";
  fs::create_directory(path + ".old");
  Fill(path + ".old", "old");
  RecoverFolder(path);
  EXPECT_EQ(dir.Read("checkpoint/file"), "old");
  // After the second rename the old one is only in the way.
  fs::create_directory(path + ".old");
  Fill(path + ".old", "older");
  RecoverFolder(path);
  EXPECT_EQ(dir.Read("checkpoint/file"), "old");
  EXPECT_FALSE(fs::exists(path + ".old"));
}

TEST(RemoveLeftoversTest, TouchesNothingOfTheUser) {
  const TemporaryFolder dir;
  for (const char* name : {"notes.tmp", "model.safetensors", "a.tmp-1-0"}) {
    dir.Write(name, "mine");
  }
  dir.Write("model.safetensors.tmp-12-0", "");
  fs::create_directory(dir / "checkpoint-40.tmp");
  dir.Write("checkpoint-40.tmp/x", "");
  RemoveLeftovers(dir.path());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 3);
}

TEST(MakeWritableFolderTest, MakesParentsAndRefusesFiles) {
  const TemporaryFolder dir;
  MakeWritableFolder(dir / "a/b/c");
  EXPECT_TRUE(fs::is_empty(dir / "a/b/c"));
  dir.Write("file", "");
  EXPECT_THROW(MakeWritableFolder(dir / "file"), IoError);
  EXPECT_THROW(MakeWritableFolder(dir / "file/x"), IoError);
  EXPECT_THROW(CheckFreeSpace(dir.path(), UINT64_MAX), IoError);
  EXPECT_NO_THROW(CheckFreeSpace(dir.path(), 1));
}

TEST(FreeSpaceErrorTest, NamesTwoNumbersThatDiffer) {
  const auto text = [](uint64_t bytes, uint64_t free) {
    return std::string(FreeSpaceError("out", bytes, free).what());
  };
  EXPECT_EQ(text(3 << 20, 1 << 20), "out: want 3 MiB of free space, got 1 MiB");
  EXPECT_EQ(text(300 << 10, 4096),
            "out: want 300 KiB of free space, got 4 KiB");
  EXPECT_EQ(text((5 << 20) + 2048, 5 << 20),
            "out: want 5122 KiB of free space, got 5120 KiB");
  EXPECT_EQ(text(900, 0), "out: want 900 bytes of free space, got 0 bytes");
}

TEST(ProgressTest, DurationsAndLines) {
  EXPECT_EQ(DurationText(0.4), "0 s");
  EXPECT_EQ(DurationText(59.6), "1 min 00 s");
  EXPECT_EQ(DurationText(187), "3 min 07 s");
  EXPECT_EQ(DurationText(7512), "2 h 05 min");
  EXPECT_EQ(DurationText(-1), "?");
  StepFigures figures;
  figures.step = 120;
  figures.loss = 1.8734;
  figures.bits_per_byte = 2.7027;
  figures.tokens_per_s = 15170;
  EXPECT_EQ(ProgressLine(figures, 4000, 187),
            "step 120/4000  loss 1.873  2.703 bits/byte  15.2k tokens/s  "
            "ETA 3 min 07 s");
  EXPECT_EQ(OneLine("a\nb\tc\x1b[2J"), "a /b c?[2J");
}

// What Progress writes, read back from a temporary file.
template <typename F>
std::string Written(bool terminal, bool quiet, F use) {
  const TemporaryFolder dir;
  std::FILE* file = std::fopen((dir / "out").c_str(), "w");
  {
    Progress progress(file, terminal, quiet);
    use(progress);
  }
  std::fclose(file);
  return dir.Read("out");
}

TEST(ProgressTest, PlainOutputIsSparseAndTerminalsAreRewritten) {
  const auto hundred_steps = [](Progress& progress) {
    StepFigures figures;
    for (figures.step = 1; figures.step <= 100; ++figures.step) {
      progress.Step(figures, 100);
    }
    progress.Note("done");
  };
  // A hundred steps within ten seconds print nothing by themselves.
  EXPECT_EQ(Written(false, false, hundred_steps), "done\n");
  EXPECT_EQ(Written(false, true, hundred_steps), "");
  const auto held_out = [](Progress& progress) {
    StepFigures figures;
    figures.val_loss = figures.val_bits_per_byte = 2.5;
    progress.Step(figures, 100);
    progress.Sample("to\nbe");
  };
  const std::string text = Written(true, false, held_out);
  EXPECT_NE(text.find("held out 2.5000 bits/byte\n"), std::string::npos);
  EXPECT_NE(text.find("sample: to /be\n"), std::string::npos);
}

}  // namespace
}  // namespace tarn::train
