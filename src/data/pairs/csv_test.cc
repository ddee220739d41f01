// CSV files as examples: fields, columns, splits, and files that are hostile.
#include "data/pairs/csv.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "core/test_util.h"
#include "data/pairs/pairs.h"

namespace tarn::train {
namespace {

using CsvTable = std::vector<std::vector<std::string>>;

CsvTable TableOf(const std::string& text) {
  CsvReader reader("x.csv", text);
  CsvTable table;
  for (CsvRecord record; reader.Read(record);) {
    table.emplace_back();
    for (const CsvField& field : record.fields) {
      table.back().push_back(Unescaped(field));
    }
  }
  return table;
}

std::string CsvRefusal(const std::string& text) {
  try {
    TableOf(text);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "";
}

TEST(Csv, FieldsInQuotesHoldCommasLineEndsAndQuotes) {
  const CsvTable want = {{"label", "text"},
                         {"a", "one, two"},
                         {"b", "say \"hi\"\nand\r\ngo"},
                         {"", ""},
                         {"c", " plain "}};
  const std::string text =
      "label,text\r\na,\"one, two\"\n\"b\",\"say "
      "\"\"hi\"\"\nand\r\ngo\"\n\n\r\n"
      ",\"\"\nc, plain ";
  EXPECT_EQ(TableOf(text), want);
  EXPECT_EQ(TableOf("\xef\xbb\xbf" + text), want);
  EXPECT_EQ(TableOf(text + "\n"), want);
  EXPECT_EQ(TableOf(text + "\r\n"), want);
  EXPECT_EQ(TableOf(""), CsvTable());
  EXPECT_EQ(TableOf("a,"), (CsvTable{{"a", ""}}));
  EXPECT_EQ(TableOf("\"a\"\r\n"), (CsvTable{{"a"}}));
}

TEST(Csv, WhatIsWrittenIsReadBack) {
  Rng rng(7);
  const char letters[] = {'a', ',', '"', '\n', '\r', '\t', ' ', '\0', 'z'};
  for (int round = 0; round < 300; ++round) {
    CsvTable table(1 + rng.Next() % 5);
    const size_t width = 1 + rng.Next() % 4;
    std::string text;
    for (std::vector<std::string>& row : table) {
      for (size_t i = 0; i < width; ++i) {
        std::string field;
        for (size_t n = rng.Next() % 6; n > 0; --n) {
          field += letters[rng.Next() % sizeof letters];
        }
        row.push_back(field);
        text += i > 0 ? ",\"" : "\"";
        for (const char c : field)
          text += c == '"' ? "\"\"" : std::string(1, c);
        text += '"';
      }
      text += rng.Next() % 2 == 0 ? "\n" : "\r\n";
    }
    EXPECT_EQ(TableOf(text), table) << text;
  }
}

TEST(Csv, ErrorsNameTheLine) {
  EXPECT_EQ(CsvRefusal("a,b\n\"x\ny\",z\nc,d\"e\n"),
            "x.csv:4: want quotes around the whole field, and doubled inside "
            "it, got a quote inside a field without");
  EXPECT_TRUE(Contains(CsvRefusal("a\n\"x\"y\n"), "x.csv:2: want a comma"));
  EXPECT_TRUE(Contains(CsvRefusal("a\n\n\"x\n\n"),
                       "x.csv:3: want a closing quote within 1048576 bytes"));
  EXPECT_TRUE(Contains(CsvRefusal("\xff\xfe"
                                  "a"),
                       "UTF-16"));
}

// Neither is read to its end: what one record takes is bounded.
TEST(Csv, RecordsAreBounded) {
  const std::string big(3 * kMaxRecordBytes, 'x');
  EXPECT_TRUE(Contains(CsvRefusal("a\n\"" + big), ":2: want a closing quote"));
  EXPECT_TRUE(
      Contains(CsvRefusal("a\n" + big), ":2: want a record of at most"));
  EXPECT_TRUE(Contains(CsvRefusal(std::string(kMaxFields, ',') + ",\n"),
                       ":1: want at most 1024 fields"));
  std::string many = "a,b\n";
  for (int i = 0; i < 3; ++i)
    many += std::string(kMaxRecordBytes / 2, 'y') + ",";
  EXPECT_TRUE(Contains(CsvRefusal(many), ":2: want a record of at most"));
}

// Any bytes either give records or an error, and never a wrong line.
TEST(Csv, AnyBytesAreReadOrRefused) {
  Rng rng(3);
  const char letters[] = {'a', ',', '"', '\n', '\r', '\xff'};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t n = rng.Next() % 30; n > 0; --n) {
      text += letters[rng.Next() % sizeof letters];
    }
    const std::string refusal = CsvRefusal(text);
    if (refusal.empty()) continue;
    EXPECT_TRUE(refusal.starts_with("x.csv:")) << refusal;
  }
}

TEST(Csv, NamesOfFiles) {
  for (const char* path : {"a.csv", "/x/A.CSV", "a.csv.gz", "a.csv.zst"}) {
    EXPECT_TRUE(IsCsvName(path)) << path;
  }
  for (const char* path : {"a.tsv", "csv", "a.csv.txt", "-", "a.csv/b"}) {
    EXPECT_FALSE(IsCsvName(path)) << path;
  }
}

// A file of this name as examples.
PairSplit SplitOf(const std::string& text, bool label_first,
                  const PairColumns& columns = {}, const char* name = "x.csv") {
  const TemporaryFolder dir;
  // The views of a split live as long as the files: compared before they go.
  static std::vector<std::unique_ptr<TextFiles>> kept;
  kept.push_back(std::make_unique<TextFiles>(
      std::vector<std::string>{dir.Write(name, text)}, dir.path()));
  return ReadPairs(*kept.back(), 0, label_first, columns);
}

std::string SplitRefusal(const std::string& text, bool label_first = true,
                         const PairColumns& columns = {}) {
  try {
    SplitOf(text, label_first, columns);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "";
}

std::set<std::pair<std::string, std::string>> AllOf(const PairSplit& split) {
  std::set<std::pair<std::string, std::string>> all;
  for (const auto* side : {&split.training, &split.held_out}) {
    for (const Pair& pair : *side) all.emplace(pair.input, pair.output);
  }
  return all;
}

TEST(Csv, ColumnsAreFoundByName) {
  const std::string text =
      "id,Text,LABEL\n1,\"a \"\"b\"\"\nc\",x\n2,plain,y\n3,\"last\tone\",x\n";
  const std::set<std::pair<std::string, std::string>> want = {
      {"a \"b\"\nc", "x"}, {"plain", "y"}, {"last\tone", "x"}};
  EXPECT_EQ(AllOf(SplitOf(text, true)), want);
  EXPECT_EQ(AllOf(SplitOf("n,stars,review\n" + text.substr(text.find('\n') + 1),
                          true, {"stars", "review"})),
            want);
  // Named columns make any file CSV.
  EXPECT_EQ(AllOf(SplitOf(text, true, {"text", ""}, "x.txt")), want);
  EXPECT_EQ(
      AllOf(SplitOf("target,source\nb,a\nd,c\n", false)),
      (std::set<std::pair<std::string, std::string>>{{"a", "b"}, {"c", "d"}}));
}

TEST(Csv, ErrorsOfExamplesSayWhatToDo) {
  EXPECT_TRUE(Contains(SplitRefusal("review,stars\na,b\n"),
                       "x.csv:1: want a header with columns 'label' and "
                       "'text', or the names of its columns (--label-column "
                       "NAME, --text-column NAME), got the columns 'review', "
                       "'stars'"))
      << SplitRefusal("review,stars\na,b\n");
  EXPECT_TRUE(
      Contains(SplitRefusal("label;text\na;b\n"), "separated by commas"));
  EXPECT_TRUE(Contains(SplitRefusal("label,text,text\na,b,c\n"), "one column"));
  EXPECT_TRUE(Contains(SplitRefusal("label,text\na,b\n\"c\nd\",e\nf\n"),
                       "x.csv:3: want column 'label' without"));
  EXPECT_TRUE(Contains(SplitRefusal("label,text\na,b\nf\n"),
                       "x.csv:3: want 2 fields, as in the header, got 1"));
  EXPECT_TRUE(Contains(SplitRefusal("label,text\na,\n"),
                       "x.csv:2: want column 'text' not empty"));
  EXPECT_TRUE(Contains(SplitRefusal("label,text\n"), "examples"));
  EXPECT_TRUE(Contains(SplitRefusal("\n\n"), "x.csv:3: want a header"));
  EXPECT_TRUE(
      Contains(SplitRefusal("label,text\n" + std::string(300, 'l') + ",t\n"),
               "label of at most 256 bytes"));
}

}  // namespace
}  // namespace tarn::train
