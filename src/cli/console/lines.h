// Lines of a file or of standard input, and tab-separated pairs, one a line.
#pragma once

#include <cstdint>
#include <string>

#include "cli/console/input.h"

namespace tarn::cli {

/// Reads line by line in bounded memory. A line ends in LF or CRLF, or with the
/// file; it holds at most kMaxBytes.
class LineReader {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;
  /// Throws FormatError as InputFile.
  explicit LineReader(const std::string& path);
  /// The next line, without its end; false after the last and when a signal
  /// arrived. Throws ExitError (bad data) for a line that is too long.
  bool Next(std::string& line);
  /// "names.tsv:17", of the line Next returned last.
  std::string Place() const;
  uint64_t size() const { return input_.size(); }      // 0 when not known
  uint64_t bytes_read() const { return bytes_read_; }  // of the lines so far

 private:
  std::string path_;
  InputFile input_;
  std::string held_;  // read, and not yet returned
  size_t at_ = 0;     // of held_
  bool end_ = false;
  int64_t number_ = 0;
  uint64_t bytes_read_ = 0;
};

/// "first TAB second", neither empty, as `tarn train` reads them.
struct TextPair {
  std::string first, second;
};

/// The next pair; lines that hold nothing are skipped. `wanted` describes a
/// line for the error, "label TAB text". Throws ExitError (bad data) with file
/// and line.
bool NextPair(LineReader& lines, const char* wanted, TextPair& pair);

}  // namespace tarn::cli
