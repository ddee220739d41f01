// Examples of two fields, one a line: "label TAB text" or "source TAB target";
// or two columns of a CSV file.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/text_files.h"

namespace tarn::train {

/// Bounds of what is read: a line, a label, the examples of a run (the index
/// takes 56 bytes each).
inline constexpr size_t kMaxLineBytes = size_t{1} << 20;
inline constexpr size_t kMaxLabelBytes = 256;
inline constexpr int64_t kMaxPairs = int64_t{1} << 22;

/// Names of the two columns of CSV files; empty: "text" and "label", of targets
/// "source" and "target". Where one is given, every file is CSV.
struct PairColumns {
  std::string input, output;
};

/// One example. Both fields are views into the text files, or into the split.
struct Pair {
  std::string_view input;   // the text, or the source
  std::string_view output;  // the label, or the target
  int64_t file = 0;         // of TextFiles
  int64_t line = 0;         // counted from 1
};

/// The outcome of ReadPairs, both sides in the order of the files.
struct PairSplit {
  std::vector<Pair> training, held_out;
  int64_t duplicates = 0;    // dropped: input and output as in another line
  int64_t overlapping = 0;   // dropped from training: input is held out
  uint64_t fingerprint = 0;  // of every byte of the files, in order
  std::deque<std::string> unescaped;  // fields of CSV files with doubled quotes
};

/// "names.tsv:17", as error messages begin.
std::string PlaceOf(const TextFiles& files, const Pair& pair);

/// Reads every file. A line is two fields with one TAB between, neither empty;
/// it ends in LF or CRLF; lines that hold nothing are skipped. label_first: the
/// first field is a label (at most kMaxLabelBytes) and the second the input;
/// otherwise the first is the input. A file named .csv has a header and columns
/// (csv.h); text and sources may then hold TABs and line ends. Exact duplicates
/// are dropped. held_out_files: how many files at the head are held out whole;
/// examples of the others with an input that occurs there are dropped. 0: one
/// input in kHoldOutOneIn is held out by a hash of its bytes (at least one),
/// with all its examples: no input is on both sides. Throws FormatError with
/// file and line, or when a side has no example. O(bytes log(lines)) time for
/// any input.
PairSplit ReadPairs(const TextFiles& files, int64_t held_out_files,
                    bool label_first, const PairColumns& columns = {});

}  // namespace tarn::train
