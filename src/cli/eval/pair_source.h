// Examples of two fields, from lines with a TAB or from a CSV file.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "cli/console/lines.h"
#include "data/pairs/csv_pairs.h"
#include "data/text/text_files.h"

namespace tarn::cli {

/// What an example is: a label and a text, or a source and a target.
enum class PairKind { kLabelled, kTarget };

/// Reads the examples of one file in order, as `tarn train` reads them: a file
/// named .csv, and any file when a column is named, has a header and columns;
/// another holds "label TAB text" or "source TAB target" lines.
class PairSource {
 public:
  /// Throws FormatError for a file that cannot be read, or without the columns.
  PairSource(const std::string& path, PairKind kind,
             const train::PairColumns& columns);
  /// The next example: label and text, or source and target. False after the
  /// last and when a signal arrived. Throws ExitError (bad data) or FormatError
  /// with file and line.
  bool Next(TextPair& pair);
  /// "names.tsv:17", of the example that Next returned last.
  std::string Place() const;
  uint64_t size() const;  // in the unit of `done`; 0 when not known
  uint64_t done() const;  // bytes of lines, or of a CSV file

 private:
  bool NextOfCsv(TextPair& pair);

  PairKind kind_;
  std::unique_ptr<LineReader> lines_;  // either these, or
  std::unique_ptr<train::TextFiles> csv_;
  std::unique_ptr<train::CsvPairs> records_;
  train::Pair found_;
  std::deque<std::string> unescaped_;  // of the example returned last
};

}  // namespace tarn::cli
