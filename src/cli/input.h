// Files and standard input, read in pieces of bounded size.
#pragma once

#include <cstdint>
#include <string>

namespace tarn::cli {

/// Reads a file, or standard input when the path is "-".
class InputFile {
 public:
  /// Throws IoError when it cannot be opened or is a directory.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  /// Appends up to `bytes` bytes to `out`; false at the end of the file or when
  /// a signal arrived while waiting. Throws IoError.
  bool Read(size_t bytes, std::string& out);
  uint64_t size() const { return size_; }  // 0 when not known

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace tarn::cli
