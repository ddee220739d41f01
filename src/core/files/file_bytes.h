// The bytes of large files: mapped, or copied into aligned memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/file.h"

namespace tarn {

/// Memory aligned for the widest vectors, grown by copying.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : bytes_(std::exchange(other.bytes_, nullptr)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~AlignedBuffer();
  uint8_t* get() const { return bytes_; }
  /// Room for `bytes`, of which `used` survive. Throws std::bad_alloc.
  void Grow(uint64_t used, uint64_t bytes);

 private:
  uint8_t* bytes_ = nullptr;
};

/// A read-only private mapping of a whole file.
class FileMapping {
 public:
  FileMapping() = default;
  FileMapping(FileMapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)),
        bytes_(other.bytes_) {}
  FileMapping& operator=(FileMapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~FileMapping();
  /// False with errno set when the system refuses.
  bool Map(int fd, uint64_t bytes);
  const uint8_t* get() const { return static_cast<const uint8_t*>(address_); }
  /// Gives whole pages of [begin, end) back to the system, which reads them
  /// again when they are needed: parts of others may still be in use.
  void Release(uint64_t begin, uint64_t end) const;

 private:
  void* address_ = nullptr;
  uint64_t bytes_ = 0;
};

/// A file as it was opened: kind and size are asked once, of the descriptor, so
/// a file exchanged or changed later cannot contradict what was checked.
struct OpenedFile {
  std::string path;
  FileDescriptor fd;
  std::optional<uint64_t> size;  // empty: a pipe or device, end unknown

  /// IoError for a folder and for what cannot be read.
  static Result<OpenedFile> Open(const std::string& path);
  FormatError Truncated(uint64_t offset, const std::string& wanted,
                        uint64_t got) const;
};

/// Reads until `bytes` are there or the file ends; returns the count, or -1
/// with errno set.
int64_t ReadFully(int fd, uint8_t* out, uint64_t bytes);

/// Reads the next `bytes` of the file, from `offset` for messages, into a
/// buffer. From a stream, which may end long before what its header claims,
/// memory grows with what has come.
std::optional<Error> ReadNext(const OpenedFile& source, uint64_t offset,
                              uint64_t bytes, AlignedBuffer& buffer);

}  // namespace tarn
