// Comma-separated values (RFC 4180): a header, then a record of as many fields.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tarn::train {

/// Bounds of a record: its bytes with all quotes, and its fields.
inline constexpr size_t kMaxRecordBytes = size_t{1} << 20;
inline constexpr size_t kMaxFields = 1024;

/// One field in place in the file, without the quotes around it.
struct CsvField {
  std::string_view text;
  bool doubled = false;  // quotes inside are written twice
};

struct CsvRecord {
  std::vector<CsvField> fields;
  int64_t line = 0;  // where it begins, counted from 1
};

/// Whether a file's name says so: .csv, also packed (.csv.gz, .csv.zst).
bool IsCsvName(std::string_view path);

/// Reads one file from its beginning. Fields are separated by commas and may be
/// in quotes, which then may hold commas, line ends and doubled quotes. Lines
/// end in LF or CRLF; a byte order mark and empty lines are skipped. Memory:
/// the fields of one record.
class CsvReader {
 public:
  /// path: for messages. text: must outlive what is read.
  CsvReader(std::string path, std::string_view text);
  /// False at the end. Throws FormatError with file and line.
  bool Read(CsvRecord& record);
  size_t bytes_read() const { return at_; }

 private:
  CsvField TakeField(const CsvRecord& record);
  CsvField TakeQuoted(const CsvRecord& record);
  [[noreturn]] void Refuse(int64_t line, const std::string& wanted,
                           const std::string& given) const;

  std::string path_;
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

/// The field as it was meant: doubled quotes are one.
std::string Unescaped(const CsvField& field);

/// Places of two columns in a header, by name; upper and lower case of ASCII
/// are one. Throws FormatError that shows the columns there are and says which
/// flags name others.
struct CsvColumns {
  size_t input = 0, output = 0;
};
CsvColumns FindColumns(const std::string& path, const CsvRecord& header,
                       const std::string& input, const std::string& output);

}  // namespace tarn::train
