#include "data/text/text_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "core/error.h"
#include "core/file.h"
#include "data/files/fasta.h"
#include "data/files/unpack.h"

namespace tarn::train {
namespace {

// The bound of a copied text: what a small packed file may unpack to on disk.
constexpr uint64_t kMaxCopied = uint64_t{64} << 30;

std::string Reason() { return SystemReason(errno); }

int OpenText(const std::string& path) {
  // A duplicate, so that the caller may close what it gets.
  const int fd = path == "-" ? dup(STDIN_FILENO)
                             : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw FormatError(path, "a text file that can be read", Reason());
  return fd;
}

// An unlinked file in `dir`: it vanishes with the process, however that ends.
int OpenSpool(const std::string& dir) {
  int fd = open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = dir + "/.spool-XXXXXX";
  fd = mkstemp(name.data());
  if (fd < 0) throw IoError(dir, "room for a copy of the input", Reason());
  unlink(name.c_str());
  return fd;
}

// Reads up to a buffer's bytes; 0 at the end.
using ByteSource = std::function<size_t(char*, size_t)>;

size_t ReadSome(int from, const std::string& path, char* out, size_t bytes) {
  for (;;) {
    const ssize_t got = read(from, out, bytes);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) {
      throw FormatError(path, "text that can be read", Reason());
    }
  }
}

void WriteAll(int to, std::string_view bytes, const std::string& path,
              const std::string& dir) {
  while (!bytes.empty()) {
    const ssize_t put = write(to, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw IoError(dir, "room for a copy of " + path, Reason());
    bytes.remove_prefix(static_cast<size_t>(put));
  }
}

// Copies `source` to the file `to` in `dir`; of FASTA the letters alone.
void Copy(const ByteSource& source, TextForm form, int to,
          const std::string& path, const std::string& dir) {
  std::vector<char> buffer(1 << 20);
  FastaReader fasta(path);
  std::string letters;
  uint64_t bytes = 0;
  while (const size_t got = source(buffer.data(), buffer.size())) {
    std::string_view piece(buffer.data(), got);
    if ((bytes += got) > kMaxCopied) {
      throw FormatError(path, StrCat("at most ", kMaxCopied, " bytes of text"),
                        "more");
    }
    if (form == TextForm::kFasta) {
      letters.clear();
      fasta.Read(piece, letters);
      piece = letters;
    }
    WriteAll(to, piece, path, dir);
  }
  if (form == TextForm::kFasta) fasta.Finish();
}

}  // namespace

TextFiles::TextFiles(const std::vector<std::string>& paths,
                     const std::string& spool_dir, TextForm form) {
  try {
    for (const std::string& path : paths) Map(path, spool_dir, form);
  } catch (...) {
    Unmap();
    throw;
  }
}

TextFiles::~TextFiles() { Unmap(); }

void TextFiles::Unmap() {
  for (const File& file : files_) {
    munmap(const_cast<char*>(file.text.data()), file.text.size());
  }
  files_.clear();
}

void TextFiles::Map(const std::string& path, const std::string& spool_dir,
                    TextForm form) {
  const FileDescriptor given(OpenText(path));
  struct stat info;
  if (fstat(given.get(), &info) != 0) {
    throw FormatError(path, "a text file", Reason());
  }
  if (S_ISDIR(info.st_mode)) {
    throw FormatError(path, "a text file", "a directory");
  }
  // Only a regular file can be mapped as it is; anything else is copied into
  // one.
  const bool regular = path != "-" && S_ISREG(info.st_mode);
  const bool packed = regular && BeginsPacked(given.get());
  const bool spool = !regular || packed || form == TextForm::kFasta;
  const FileDescriptor copy(spool ? OpenSpool(spool_dir) : -1);
  if (packed) {
    UnpackStream unpacked(path);
    Copy([&](char* out, size_t bytes) { return unpacked.Read(out, bytes); },
         form, copy.get(), path, spool_dir);
  } else if (spool) {
    Copy([&](char* out,
             size_t bytes) { return ReadSome(given.get(), path, out, bytes); },
         form, copy.get(), path, spool_dir);
  }
  if (spool) fstat(copy.get(), &info);
  if (info.st_size == 0) throw FormatError(path, "text", "an empty file");
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE,
                    spool ? copy.get() : given.get(), 0);
  if (data == MAP_FAILED) {
    throw FormatError(path, "a file that can be mapped", Reason());
  }
  files_.push_back(
      {path, std::string_view(static_cast<const char*>(data), size), bytes_});
  bytes_ += size;
}

std::string_view TextFiles::At(uint64_t begin, uint64_t length) const {
  const auto after = std::upper_bound(
      files_.begin(), files_.end(), begin,
      [](uint64_t offset, const File& file) { return offset < file.base; });
  const File& file = *(after - 1);
  return file.text.substr(begin - file.base, length);
}

void CheckReadable(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path == "-") continue;
    struct stat info;
    // Pipes are not opened here: that would wait for, or lose, their writer.
    if (stat(path.c_str(), &info) != 0 || access(path.c_str(), R_OK) != 0) {
      throw FormatError(path, "a text file that can be read", Reason());
    }
    if (S_ISDIR(info.st_mode)) {
      throw FormatError(path, "a text file", "a directory");
    }
    if (S_ISREG(info.st_mode) && info.st_size == 0) {
      throw FormatError(path, "text", "an empty file");
    }
  }
}

}  // namespace tarn::train
