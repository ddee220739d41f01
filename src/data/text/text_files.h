// The texts of a training run, seen as one long string of bytes. Files are
// memory-mapped, so that they may be larger than memory; packed ones and
// genomes are written out first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tarn::train {

/// The part of a file that is its text: all of it, or its sequences' letters.
enum class TextForm { kPlain, kFasta };

/// Read-only, several files in the order given. Bytes have global offsets:
/// file i begins at base(i), the sum of the sizes before it. Thread-safe after
/// construction. A file that shrinks while it is mapped ends the process with
/// SIGBUS, as with any mapped file.
class TextFiles {
 public:
  /// paths: regular files, or "-" (standard input), or pipes; the last two are
  /// copied to an unlinked file in spool_dir first. So is what a regular file
  /// unpacks to where it begins like gzip or zstd (at most 64 GiB), and the
  /// letters of FASTA (data/files/fasta.h). Throws FormatError for a file that
  /// is missing, unreadable, a directory, empty, damaged, or not FASTA, and
  /// IoError when the copy cannot be written.
  TextFiles(const std::vector<std::string>& paths, const std::string& spool_dir,
            TextForm form = TextForm::kPlain);
  ~TextFiles();
  TextFiles(const TextFiles&) = delete;
  TextFiles& operator=(const TextFiles&) = delete;

  int64_t files() const { return static_cast<int64_t>(files_.size()); }
  const std::string& path(int64_t file) const { return files_[file].path; }
  std::string_view contents(int64_t file) const { return files_[file].text; }
  uint64_t base(int64_t file) const { return files_[file].base; }
  uint64_t bytes() const { return bytes_; }

  /// Bytes [begin, begin + length) of the long string, which must be within
  /// one file (every record does).
  std::string_view At(uint64_t begin, uint64_t length) const;

 private:
  struct File {
    std::string path;
    std::string_view text;
    uint64_t base = 0;
  };
  void Map(const std::string& path, const std::string& spool_dir,
           TextForm form);
  void Unmap();

  std::vector<File> files_;
  uint64_t bytes_ = 0;
};

/// Throws FormatError unless every path is "-" or can be opened for reading and
/// is not a directory: the check that comes before any output is made.
void CheckReadable(const std::vector<std::string>& paths);

}  // namespace tarn::train
