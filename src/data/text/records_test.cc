#include "data/text/records.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <set>

#include "core/error.h"
#include "core/test_util.h"
#include "data/files/packing.h"

namespace tarn::train {
namespace {

std::vector<std::string> Cut(std::string_view text, RecordMode mode,
                             uint64_t block_bytes = 2048) {
  std::vector<std::string> pieces;
  uint64_t next = 0;
  CutFile(text, mode, block_bytes, [&](Slice slice) {
    EXPECT_EQ(slice.begin, next);
    EXPECT_GT(slice.length, 0u);
    pieces.emplace_back(text.substr(slice.begin, slice.length));
    next = slice.begin + slice.length;
  });
  EXPECT_EQ(next, text.size());
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(CutFileTest, FortunesKeepTheirSeparatorLine) {
  EXPECT_EQ(Cut("one\n%\ntwo\nlines\n%\nlast\n", RecordMode::kAuto),
            (Pieces{"one\n%\n", "two\nlines\n%\n", "last\n"}));
  EXPECT_EQ(Cut("a\r\n%\r\nb\n%", RecordMode::kAuto),
            (Pieces{"a\r\n%\r\n", "b\n%"}));
  EXPECT_EQ(Cut("%\n%\na\n", RecordMode::kAuto), (Pieces{"%\n", "%\n", "a\n"}));
}

TEST(CutFileTest, PercentWithinALineSeparatesNothing) {
  const std::string text = "100 %\n% sure\n%% \n";
  EXPECT_EQ(Cut(text, RecordMode::kAuto), Pieces{text});
  EXPECT_EQ(Cut(text, RecordMode::kFortune), Pieces{text});
}

TEST(CutFileTest, ModesOverrideWhatTheTextLooksLike) {
  const std::string text = "one\n%\ntwo\n";
  EXPECT_EQ(Cut(text, RecordMode::kBlock), Pieces{text});
  EXPECT_EQ(Cut("plain\n", RecordMode::kFortune), Pieces{"plain\n"});
}

TEST(CutFileTest, BlocksEndAtLineEnds) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "line " + std::to_string(i) + "\n";
  const Pieces pieces = Cut(text, RecordMode::kAuto, 256);
  EXPECT_GT(pieces.size(), 10u);
  for (const std::string& piece : pieces) {
    EXPECT_EQ(piece.back(), '\n');
    EXPECT_LE(piece.size(), 512u);
  }
}

TEST(CutFileTest, TextWithoutLinesIsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\xE2\x82\xAC";  // 3 bytes each
  for (const std::string& piece : Cut(text, RecordMode::kBlock, 100)) {
    EXPECT_EQ(piece.size() % 3, 0u);
  }
  // Bytes that are not UTF-8 are cut too, and none is lost.
  Cut(std::string(5000, '\x80'), RecordMode::kBlock, 100);
}

TEST(CutFileTest, LongRecordsAreCutLikeBlocks) {
  std::string book;
  while (book.size() < 100000) book += "A sentence of a long book.\n";
  EXPECT_GT(Cut(book + "%\n" + book, RecordMode::kAuto).size(), 50u);
}

TEST(RecordKeyTest, LeavesOutSeparatorAndLineEnds) {
  EXPECT_EQ(RecordKey("text\n%\n"), "text");
  EXPECT_EQ(RecordKey("text\r\n%\r\n"), "text");
  EXPECT_EQ(RecordKey("text"), "text");
  EXPECT_EQ(RecordKey("50%\n"), "50%");
  EXPECT_EQ(RecordKey("%\n"), "");
  EXPECT_EQ(RecordKey("\n\n"), "");
}

// Keys of all records within the slices of one side of a split.
std::multiset<std::string> Keys(const TextFiles& text,
                                const std::vector<Slice>& slices) {
  std::multiset<std::string> keys;
  for (const Slice& slice : slices) {
    for (const std::string& record :
         Cut(text.At(slice.begin, slice.length), RecordMode::kFortune)) {
      keys.emplace(RecordKey(record));
    }
  }
  return keys;
}

std::string Fortunes(int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i) {
    text += "fortune number " + std::to_string(i * 7919) + "\n%\n";
  }
  return text;
}

TEST(SplitRecordsTest, HoldsOutOneInTwentyAndNoRecordTwice) {
  const TemporaryFolder dir;
  // 2000 records; the files share 500, and one file repeats its own first.
  const TextFiles text({dir.Write("a", Fortunes(0, 1000) + Fortunes(0, 1)),
                        dir.Write("b", Fortunes(500, 1500))},
                       dir.path());
  const RecordSplit split = SplitRecords(text, RecordMode::kAuto);
  EXPECT_EQ(split.records, 2000);
  EXPECT_EQ(split.duplicates, 501);
  EXPECT_NEAR(split.held_out_records, 100, 40);  // four deviations
  const auto training = Keys(text, split.training);
  const auto held_out = Keys(text, split.held_out);
  EXPECT_EQ(static_cast<int64_t>(training.size() + held_out.size()), 2000);
  EXPECT_EQ(static_cast<int64_t>(held_out.size()), split.held_out_records);
  for (const std::string& key : held_out) {
    EXPECT_EQ(held_out.count(key), 1u);
    EXPECT_EQ(training.count(key), 0u) << key;
  }
}

TEST(SplitRecordsTest, ARecordKeepsItsSideWhateverSurroundsIt) {
  const TemporaryFolder dir;
  const TextFiles few({dir.Write("a", Fortunes(0, 600))}, dir.path());
  const TextFiles many({dir.Write("b", Fortunes(300, 2000)), few.path(0)},
                       dir.path());
  const auto held = Keys(few, SplitRecords(few, RecordMode::kAuto).held_out);
  const auto more = Keys(many, SplitRecords(many, RecordMode::kAuto).held_out);
  EXPECT_GT(held.size(), 0u);
  for (const std::string& key : held) EXPECT_EQ(more.count(key), 1u) << key;
}

TEST(SplitRecordsTest, SmallestTextsStillHoldSomethingOut) {
  const TemporaryFolder dir;
  const TextFiles text({dir.Write("a", "one\n%\ntwo\n%\n")}, dir.path());
  const RecordSplit split = SplitRecords(text, RecordMode::kAuto);
  EXPECT_EQ(split.training.size(), 1u);
  EXPECT_EQ(split.held_out.size(), 1u);
  const TextFiles single({dir.Write("b", "one\n%\n\n%\none\n")}, dir.path());
  EXPECT_THROW(SplitRecords(single, RecordMode::kAuto), FormatError);
}

TEST(SplitRecordsTest, FingerprintTellsTextsApart) {
  const TemporaryFolder dir;
  const std::string a = dir.Write("a", Fortunes(0, 50));
  const std::string b = dir.Write("b", Fortunes(0, 49));
  const std::string c = dir.Write("c", Fortunes(0, 50));
  const auto print = [&](const std::vector<std::string>& paths) {
    const TextFiles text(paths, dir.path());
    return SplitRecords(text, RecordMode::kAuto).fingerprint;
  };
  EXPECT_EQ(print({a}), print({c}));
  EXPECT_NE(print({a}), print({b}));
  EXPECT_NE(print({a, b}), print({b, a}));
}

TEST(TextFilesTest, RefusesWhatHoldsNoText) {
  const TemporaryFolder dir;
  const std::string empty = dir.Write("empty", "");
  for (const std::string& path : {empty, dir.path(), dir / "missing"}) {
    EXPECT_THROW(TextFiles({path}, dir.path()), FormatError) << path;
    EXPECT_THROW(CheckReadable({path}), FormatError) << path;
  }
  EXPECT_NO_THROW(CheckReadable({"-"}));
}

TEST(TextFilesTest, ReadsPipesThroughACopyThatLeavesNoName) {
  const TemporaryFolder dir, spool;
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string text(3 << 20, 'x');
  std::FILE* writer =
      popen(("head -c 3145728 /dev/zero | tr '\\0' x > " + pipe).c_str(), "w");
  {
    const TextFiles files({pipe}, spool.path());
    EXPECT_EQ(files.contents(0), text);
    EXPECT_TRUE(std::filesystem::is_empty(spool.path()));
  }
  pclose(writer);
}

TEST(TextFilesTest, UnpacksWhatBeginsLikeGzipOrZstd) {
  const TemporaryFolder dir;
  const std::string text = Fortunes(0, 400);
  const std::string half = text.substr(0, text.size() / 2),
                    rest = text.substr(half.size());
  // The name does not matter, parts are joined; plain files stay as they are.
  const TextFiles files(
      {dir.Write("a.gz", Gzipped(text)), dir.Write("b", Zstandard(text)),
       dir.Write("c", Gzipped(half) + Gzipped(rest)), dir.Write("d.gz", text)},
      dir.path());
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(files.contents(i), text) << i;
  EXPECT_EQ(files.bytes(), 4 * text.size());
  // Nothing of the copies is left in the folder.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}),
            4);
}

TEST(TextFilesTest, DamagedPackedFilesAreRefused) {
  const TemporaryFolder dir;
  const std::string text = Fortunes(0, 400);
  for (const std::string& good : {Gzipped(text), Zstandard(text)}) {
    std::string flipped = good;
    flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 4);
    for (const std::string& bad :
         {good.substr(0, good.size() / 2), good.substr(0, good.size() - 1),
          good.substr(0, 5), good + "tail", flipped}) {
      const std::string path = dir.Write("bad", bad);
      EXPECT_THROW(TextFiles({path}, dir.path()), FormatError) << bad.size();
    }
    EXPECT_THROW(TextFiles({dir.Write("empty", Gzipped(""))}, dir.path()),
                 FormatError);
  }
}

TEST(TextFilesTest, FastaIsTheLettersOfItsSequences) {
  const TemporaryFolder dir;
  const std::string genome = ">one\nacgt\nNNAC\n>two\r\nGG\r\n";
  const TextFiles files(
      {dir.Write("a.fa", genome), dir.Write("b.fa.gz", Gzipped(genome)),
       dir.Write("c.fa.zst", Zstandard(genome))},
      dir.path(), TextForm::kFasta);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(files.contents(i), "ACGTNNAC\nGG") << i;
  }
  for (const char* bad : {"ACGT\n", ">a\n", ">a\nAC1\n", ">a\n>b\nA\n"}) {
    EXPECT_THROW(
        TextFiles({dir.Write("bad", bad)}, dir.path(), TextForm::kFasta),
        FormatError)
        << bad;
    EXPECT_THROW(TextFiles({dir.Write("bad", Gzipped(bad))}, dir.path(),
                           TextForm::kFasta),
                 FormatError)
        << bad;
  }
}

// A genome has no line ends: blocks tile it all the same, and both sides get
// letters only.
TEST(SplitRecordsTest, CutsGenomesIntoBlocks) {
  const TemporaryFolder dir;
  std::mt19937 random(3);
  std::string genome = ">g\n";
  for (int i = 0; i < 200000; ++i) {
    genome += "ACGT"[random() % 4];
    if (i % 70 == 69) genome += '\n';
  }
  const TextFiles files({dir.Write("g", genome)}, dir.path(), TextForm::kFasta);
  const RecordSplit split = SplitRecords(files, RecordMode::kFasta);
  EXPECT_EQ(files.bytes(), 200000u);
  uint64_t held_out = 0, training = 0;
  for (const Slice& slice : split.held_out) held_out += slice.length;
  for (const Slice& slice : split.training) training += slice.length;
  EXPECT_EQ(held_out + training, 200000u);
  EXPECT_GT(held_out, 200000u / 60);
  EXPECT_LT(held_out, 200000u / 8);
}

}  // namespace
}  // namespace tarn::train
