// Files that appear by rename only, sinks for bytes that are made in pieces,
// and bounded reads of files from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace tarn {

/// An open file descriptor with one owner; -1 means none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();
  int get() const { return fd_; }
  /// Closes now; returns the system's result (0, or -1 with errno set).
  int Close();

 private:
  int fd_;
};

/// Where bytes go that are made in pieces: a file (AtomicFile), memory, or what
/// a caller makes of them. One thread at a time.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  /// Takes the next bytes; throws IoError where they have no place.
  virtual void Write(const void* data, size_t bytes) = 0;
};

/// Appends to a string.
class StringSink final : public ByteSink {
 public:
  explicit StringSink(std::string& out) : out_(out) {}
  void Write(const void* data, size_t bytes) override {
    out_.append(static_cast<const char*>(data), bytes);
  }

 private:
  std::string& out_;
};

/// A file written in pieces that appears under its name whole or not at all:
/// Write to a temporary next to `path`, then Commit (fsync, rename, fsync of
/// the directory). Destroyed without Commit, it removes the temporary. Every
/// call throws IoError (path, system's reason). One thread at a time; two
/// writers of one path do not mix, the last Commit wins. A process killed in
/// between leaves `path.tmp-<process>-<n>`.
class AtomicFile final : public ByteSink {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile() override;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Write(const void* data, size_t bytes) override;
  void Commit();

 private:
  std::string path_, temporary_;
  FileDescriptor fd_;
};

/// Writes to a temporary next to `path`, fsyncs, renames, fsyncs the directory.
/// Throws IoError (path, system's reason); a failure leaves nothing behind.
void WriteFileAtomically(const std::string& path, std::string_view contents);

/// Reads a regular file of at most `max_bytes`. IoError when it cannot be
/// read, FormatError when it is larger.
Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes);

/// Writes all of `text` to a descriptor; `name` stands for it in errors:
/// "standard output". False when its reader is gone (EPIPE, where SIGPIPE is
/// ignored); throws IoError for any other failure, such as a full disk.
bool WriteStream(int fd, std::string_view text, const std::string& name);

/// The system's words for an errno as the end of a message: "no such file or
/// directory".
std::string SystemReason(int error_number);

/// "path: want a readable file, got no such file or directory": the error for
/// a failed system call; `error_number` is its errno.
IoError SystemError(const std::string& path, const std::string& wanted,
                    int error_number);

}  // namespace tarn
