#include "core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

namespace tarn {
namespace {

// Linux moves at most 2 GiB a call; this stays below it.
constexpr size_t kMaxBytesPerCall = size_t{1} << 30;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Makes the rename itself survive a power cut. File systems that cannot sync a
// directory report EINVAL; nothing more can be done on those.
void SyncFolder(const std::string& folder) {
  FileDescriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) throw SystemError(folder, "a folder to sync", errno);
  if (fsync(fd.get()) != 0 && errno != EINVAL) {
    throw SystemError(folder, "a folder to sync", errno);
  }
}

// Appends until the end of the file or until `text` is longer than the limit.
// Sizes are not trusted: files grow, and those in /proc report 0.
int ReadUpTo(int fd, uint64_t max_bytes, std::string& text) {
  constexpr size_t kPiece = size_t{1} << 16;
  for (;;) {
    const size_t used = text.size();
    const uint64_t room = max_bytes + 1 - used;
    if (room == 0) return 0;
    text.resize(used + static_cast<size_t>(std::min<uint64_t>(room, kPiece)));
    const ssize_t got = read(fd, text.data() + used, text.size() - used);
    text.resize(used + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return 0;
    if (got < 0 && errno != EINTR) return errno;
  }
}

}  // namespace

std::string SystemReason(int error_number) {
  std::string reason = std::system_category().message(error_number);
  // An acronym ("RFS specific error") keeps its capitals.
  const auto capital = [&](size_t i) {
    return i < reason.size() && reason[i] >= 'A' && reason[i] <= 'Z';
  };
  if (capital(0) && !capital(1)) reason[0] += 'a' - 'A';
  return reason;
}

IoError SystemError(const std::string& path, const std::string& wanted,
                    int error_number) {
  return IoError(path, wanted, SystemReason(error_number));
}

bool WriteStream(int fd, std::string_view text, const std::string& name) {
  while (!text.empty()) {
    const ssize_t put =
        write(fd, text.data(), std::min(text.size(), kMaxBytesPerCall));
    if (put >= 0) {
      text.remove_prefix(static_cast<size_t>(put));
    } else if (errno == EPIPE) {
      return false;
    } else if (errno != EINTR) {
      throw SystemError(name, "a file that can be written", errno);
    }
  }
  return true;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

int FileDescriptor::Close() { return close(std::exchange(fd_, -1)); }

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  // Exclusive creation lets several writers, threads or processes, coexist.
  constexpr int kMaxAttempts = 1000;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    temporary_ = StrCat(path, ".tmp-", getpid(), "-", attempt);
    fd_ = FileDescriptor(open(temporary_.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd_.get() >= 0) return;
    if (errno != EEXIST) break;
  }
  throw SystemError(path, "a file that can be created", errno);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::Write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put =
        write(fd_.get(), next, std::min(bytes, kMaxBytesPerCall));
    if (put < 0) {
      if (errno == EINTR) continue;
      throw SystemError(path_, "a file that can be written", errno);
    }
    next += put;
    bytes -= static_cast<size_t>(put);
  }
}

void AtomicFile::Commit() {
  // A network file system reports a full disk only at sync or close.
  if (fsync(fd_.get()) != 0 || fd_.Close() != 0) {
    throw SystemError(path_, "a file that can be written", errno);
  }
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw SystemError(path_, "a name that can be given to the file", errno);
  }
  temporary_.clear();
  SyncFolder(FolderOf(path_));
}

void WriteFileAtomically(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.Write(contents.data(), contents.size());
  file.Commit();
}

Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  // Without O_NONBLOCK a named pipe would hold the caller for ever.
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return SystemError(path, "a readable file", errno);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) {
    return SystemError(path, "a readable file", errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return IoError(path, "a regular file", "a folder, pipe or device");
  }
  max_bytes = std::min<uint64_t>(max_bytes, INT64_MAX);  // max + 1 must exist
  const auto size = static_cast<uint64_t>(info.st_size);
  const auto too_large = [&](const std::string& given) {
    return FormatError(path, StrCat("at most ", max_bytes, " bytes"), given);
  };
  if (size > max_bytes) return too_large(StrCat(size));
  std::string text;
  try {
    text.reserve(static_cast<size_t>(size) + 1);
    if (const int error = ReadUpTo(fd.get(), max_bytes, text)) {
      return SystemError(path, "a readable file", error);
    }
  } catch (const std::bad_alloc&) {
    return IoError(path, StrCat("memory for ", size, " bytes"), "none left");
  }
  if (text.size() > max_bytes) return too_large("more");
  return text;
}

}  // namespace tarn
