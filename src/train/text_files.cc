#include "train/text_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "core/file.h"

namespace tarn::train {
namespace {

std::string Reason() { return std::strerror(errno); }

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

void Copy(int from, int to, const std::string& path, const std::string& dir) {
  std::vector<char> buffer(1 << 20);
  for (;;) {
    const ssize_t got = read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw FormatError(path, "text that can be read", Reason());
    if (got == 0) return;
    for (ssize_t done = 0; done < got;) {
      const ssize_t put = write(to, buffer.data() + done, got - done);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) throw IoError(dir, "room for a copy of " + path, Reason());
      done += put;
    }
  }
}

}  // namespace

TextFiles::TextFiles(const std::vector<std::string>& paths,
                     const std::string& spool_dir) {
  try {
    for (const std::string& path : paths) Map(path, spool_dir);
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

void TextFiles::Map(const std::string& path, const std::string& spool_dir) {
  const FileDescriptor given(OpenText(path));
  struct stat info;
  if (fstat(given.get(), &info) != 0) {
    throw FormatError(path, "a text file", Reason());
  }
  if (S_ISDIR(info.st_mode)) {
    throw FormatError(path, "a text file", "a directory");
  }
  // Only a regular file can be mapped; anything else is copied into one.
  const bool spool = path == "-" || !S_ISREG(info.st_mode);
  const FileDescriptor copy(spool ? OpenSpool(spool_dir) : -1);
  if (spool) {
    Copy(given.get(), copy.get(), path, spool_dir);
    fstat(copy.get(), &info);
  }
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
