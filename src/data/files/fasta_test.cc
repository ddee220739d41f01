// FASTA against a reader by lines, in pieces of any size; hostile files.
#include "data/files/fasta.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "core/error.h"

namespace tarn {
namespace {

// The file in pieces of `piece` bytes.
std::string LettersOf(const std::string& file, size_t piece = 1 << 20) {
  FastaReader reader("genome");
  std::string letters;
  for (size_t at = 0; at < file.size(); at += piece) {
    reader.Read(std::string_view(file).substr(at, piece), letters);
  }
  reader.Finish();
  return letters;
}

std::string Refusal(const std::string& file, size_t piece = 1 << 20) {
  try {
    return "accepted " + LettersOf(file, piece);
  } catch (const FormatError& error) {
    return error.what();
  }
}

// By definition: line by line, the whole file in memory.
std::string ByLines(const std::string& file) {
  std::istringstream lines(file);
  std::string line, letters;
  bool first = true;
  while (std::getline(lines, line)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line[0] == '>') {
      if (!first) letters += '\n';
      first = false;
      continue;
    }
    for (char c : line) letters += static_cast<char>(std::toupper(c));
  }
  return letters;
}

TEST(Fasta, LettersWithoutHeadersAndLineEnds) {
  EXPECT_EQ(LettersOf(">one sequence\nACGT\nacgt\nNN\n"), "ACGTACGTNN");
  EXPECT_EQ(LettersOf(">a\nAC\n>b > c\nGT"), "AC\nGT");
  EXPECT_EQ(LettersOf(">a\r\nAC\r\n\r\nGT\r\n"), "ACGT");
  EXPECT_EQ(LettersOf(">a\n\n\nM*-k\n\n"), "M*-K");
  // A header may hold anything.
  EXPECT_EQ(LettersOf(std::string(">\0\xFF\t>\nA\n", 8)), "A");
}

TEST(Fasta, AnyCutGivesTheSame) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 50; ++trial) {
    std::string file;
    for (int s = 1 + static_cast<int>(random() % 4); s > 0; --s) {
      file += ">name " + std::to_string(random()) + (s % 2 ? "\n" : "\r\n");
      for (int line = 1 + static_cast<int>(random() % 5); line > 0; --line) {
        file += std::string("ACGTacgtN*-")[random() % 11];
        for (int i = static_cast<int>(random() % 90); i > 0; --i) {
          file += "ACGTacgtN*-"[random() % 11];
        }
        file += s % 2 ? "\n" : "\r\n";
      }
    }
    const std::string want = ByLines(file);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{1} << 20}) {
      ASSERT_EQ(LettersOf(file, piece), want) << file;
    }
  }
}

TEST(Fasta, CountsSequences) {
  FastaReader reader("genome");
  std::string letters;
  reader.Read(">a\nAC\n>b\nG", letters);
  EXPECT_EQ(reader.sequences(), 2);
  reader.Read("T\n>c", letters);
  EXPECT_EQ(reader.sequences(), 3);
  EXPECT_EQ(letters, "AC\nGT");
  EXPECT_THROW(reader.Finish(), FormatError);
}

TEST(Fasta, HostileFilesAreRefusedInOneLine) {
  struct Case {
    std::string file, where;
  };
  const Case cases[] = {
      {"", "genome"},
      {"ACGT\n", "genome: line 1, byte 0"},
      {"\n>a\nA\n", "genome: line 1, byte 0"},
      {";old\nA\n", "genome: line 1, byte 0"},
      {"\xEF\xBB\xBF>a\nA\n", "genome: line 1, byte 0"},
      {">a", "genome"},
      {">a\n", "genome"},
      {">a\n\n\n", "genome"},
      {">a\n>b\nA\n", "genome: line 2"},
      {">a\nA\n>b\n>c\nA", "genome: line 4"},
      {">a\nA\n>b\n", "genome"},
      {">a\nAC GT\n", "genome: line 2, byte 5"},
      {">a\nAC>GT\n", "genome: line 2, byte 5"},
      {">a\nACGT\n12\n", "genome: line 3, byte 8"},
      {">a\nAC\rGT\n", "genome: line 2, byte 6"},
      {std::string(">a\nA\0C\n", 7), "genome: line 2, byte 4"},
      {">a\nA\xC3\x84\n", "genome: line 2, byte 4"},
      {"\x1F\x8B\x08", "genome: line 1, byte 0"},
  };
  for (const Case& c : cases) {
    for (const size_t piece : {size_t{1}, size_t{1} << 20}) {
      const std::string said = Refusal(c.file, piece);
      EXPECT_EQ(said.find(c.where + ": want "), 0u) << said;
      for (char byte : said) EXPECT_TRUE(byte >= 0x20 && byte < 0x7F) << said;
    }
  }
}

// Random bytes end in letters or in an error, never in anything else.
TEST(Fasta, RandomMutationsAreRefusedOrLetters) {
  std::mt19937 random(5);
  const std::string good = ">a b\nACGTACGTAC\nACG\n>c\nGGTTN\n";
  int refused = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string file = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % file.size();
      if (random() % 2 == 0) {
        file[at] = static_cast<char>(random());
      } else {
        file.erase(at, 1 + random() % 4);
      }
      if (file.empty()) break;
    }
    try {
      for (char c : LettersOf(file, 1 + random() % 9)) {
        ASSERT_TRUE((c >= 'A' && c <= 'Z') || c == '*' || c == '-' ||
                    c == '\n');
      }
    } catch (const FormatError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_LT(refused, 2900);
}

}  // namespace
}  // namespace tarn
