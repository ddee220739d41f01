// Examples of two fields from two columns of a CSV file.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "data/pairs/csv.h"
#include "data/pairs/pairs.h"

namespace tarn::train {

/// Reads the records of one file in order, with the checks that hold wherever
/// examples are read: as many fields as the header, neither column empty, no
/// label or target with a TAB or a line end, labels of at most kMaxLabelBytes.
class CsvPairs {
 public:
  /// path: for messages. text: must outlive the pairs. label_first: the columns
  /// are called "text" and "label" unless `columns` names others, else "source"
  /// and "target". Reads the header; throws FormatError with file and line.
  CsvPairs(std::string path, std::string_view text, bool label_first,
           const PairColumns& columns);
  /// The next example, with its line; false at the end. Its fields are views
  /// into the text or, for fields with doubled quotes, into `unescaped`, which
  /// grows. Throws FormatError with file and line.
  bool Next(std::deque<std::string>& unescaped, Pair& pair);
  /// "x.csv:17", of the example that Next returned last.
  std::string Place() const;
  size_t bytes_read() const { return reader_.bytes_read(); }

 private:
  std::string_view Kept(size_t column, const std::string& name,
                        std::deque<std::string>& unescaped) const;
  [[noreturn]] void Refuse(const std::string& wanted,
                           const std::string& given) const;

  std::string path_, input_, output_;
  bool label_first_;
  CsvReader reader_;
  CsvRecord record_;
  CsvColumns columns_;
  size_t width_ = 0;
};

}  // namespace tarn::train
