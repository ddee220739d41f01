// Files and standard input, read in pieces of bounded size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/files/fasta.h"
#include "data/files/unpack.h"

namespace tarn::cli {

/// The part of a file that is its text: all of it, or the letters of FASTA.
enum class InputForm { kPlain, kFasta };

/// Reads a file, or standard input when the path is "-". A regular file that
/// begins like gzip or zstd is read unpacked.
class InputFile {
 public:
  /// Throws FormatError when it cannot be opened: a missing file is bad data.
  explicit InputFile(const std::string& path,
                     InputForm form = InputForm::kPlain);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  /// Reads up to `bytes` bytes and appends the text among them (for FASTA maybe
  /// none) to `out`; false at the end of the file or when a signal arrived
  /// while waiting. Throws FormatError for what cannot be read (a directory),
  /// damaged packed files and what is not FASTA.
  bool Read(size_t bytes, std::string& out);
  uint64_t size() const { return size_; }  // of the text; 0 when not known

 private:
  // Bytes of the file; 0 at its end or after a signal.
  size_t ReadFile(char* out, size_t bytes);

  std::string path_;
  int fd_ = -1;
  bool waits_ = true;  // reads may wait for data
  uint64_t size_ = 0;
  std::unique_ptr<UnpackStream> unpack_;  // of a packed file
  std::unique_ptr<FastaReader> fasta_;
};

}  // namespace tarn::cli
