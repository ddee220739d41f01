// A file that another process may finish: what makes conversions of large
// models continue where they were interrupted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/file.h"

namespace tarn {

/// A file written from beginning to end that appears under its name whole, by
/// rename: Write to `path.partial-KEY`, then Commit. Destroyed or killed before
/// that it leaves the partial file, and the next writer with the same key
/// continues in it. The caller makes the same bytes from Begun() on, keeps
/// other writers away, and chooses a key that stands for all that the bytes
/// depend on. Every call throws IoError. One thread at a time.
class ResumableFile final : public ByteSink {
 public:
  /// bytes: of the whole file. step: bytes after which what was written is put
  /// on the disk. A partial file counts up to its last whole step, as bytes
  /// after that may be lost.
  ResumableFile(std::string path, const std::string& key, uint64_t bytes,
                uint64_t step);

  /// Bytes that the file began with.
  uint64_t Begun() const { return begun_; }
  void Write(const void* data, size_t bytes) override;
  /// Gives the file its name.
  void Commit();
  /// Removes the partial file.
  void Discard();

 private:
  const std::string path_, partial_;
  const uint64_t step_;
  FileDescriptor fd_;
  uint64_t begun_ = 0, written_ = 0;
};

}  // namespace tarn
