#include "weights/resumable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/text.h"

namespace tarn {
namespace {

constexpr const char* kPartial = ".partial-";
constexpr const char* kWanted = "a file that can be written";

}  // namespace

ResumableFile::ResumableFile(std::string path, const std::string& key,
                             uint64_t bytes, uint64_t step)
    : path_(std::move(path)),
      partial_(StrCat(path_, kPartial, key)),
      step_(step),
      fd_(open(partial_.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
               0666)) {
  struct stat info;
  if (fd_.get() < 0 || fstat(fd_.get(), &info) != 0) {
    throw SystemError(path_, "a file that can be created", errno);
  }
  if (!S_ISREG(info.st_mode)) {
    throw IoError(partial_, "a regular file", "a pipe or device");
  }
  begun_ = std::min(static_cast<uint64_t>(info.st_size), bytes) / step_ * step_;
  written_ = begun_;
  const auto end = static_cast<off_t>(begun_);
  if (ftruncate(fd_.get(), end) != 0 || lseek(fd_.get(), end, SEEK_SET) < 0) {
    throw SystemError(partial_, kWanted, errno);
  }
}

void ResumableFile::Write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const uint64_t left = step_ - written_ % step_;
    const ssize_t put = write(fd_.get(), next, std::min<uint64_t>(bytes, left));
    if (put < 0) {
      if (errno == EINTR) continue;
      throw SystemError(partial_, kWanted, errno);
    }
    next += put;
    bytes -= static_cast<size_t>(put);
    written_ += static_cast<uint64_t>(put);
    // Before the first byte of the next step: a longer file has all of this
    // one.
    if (written_ % step_ == 0 && fdatasync(fd_.get()) != 0) {
      throw SystemError(partial_, kWanted, errno);
    }
  }
}

void ResumableFile::Commit() {
  if (fsync(fd_.get()) != 0 || fd_.Close() != 0) {
    throw SystemError(partial_, kWanted, errno);
  }
  if (rename(partial_.c_str(), path_.c_str()) != 0) {
    throw SystemError(path_, "a name that can be given to the file", errno);
  }
}

void ResumableFile::Discard() { unlink(partial_.c_str()); }

}  // namespace tarn
