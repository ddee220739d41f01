// Files read through gzip (zlib) or zstd (libzstd), with a bound on what they
// unpack to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tarn {

/// The bytes of a regular file in order: as they are, or unpacked where the
/// file begins like gzip or zstd (its name does not matter). Checksums are
/// verified; a file of several packed parts is their contents one after the
/// other. One thread at a time; holds about 128 KiB, and up to 128 MiB where a
/// zstd file asks for so large a window.
class UnpackStream {
 public:
  /// Throws FormatError naming the path unless it is a regular file that can be
  /// read.
  explicit UnpackStream(const std::string& path);
  ~UnpackStream();
  UnpackStream(const UnpackStream&) = delete;
  UnpackStream& operator=(const UnpackStream&) = delete;

  /// Reads up to `bytes` further bytes into `out`; returns 0 at the end only.
  /// Throws FormatError for a file that is cut off or damaged, or that
  /// continues with something else after its last packed part.
  size_t Read(char* out, size_t bytes);

  class Decoder;  // one of the three forms

 private:
  std::unique_ptr<Decoder> decoder_;
};

/// Whether the regular file open as `fd` begins like gzip or zstd. Its read
/// position is kept.
bool BeginsPacked(int fd);

/// All of a file, unpacked. Throws FormatError (also for more than `max_bytes`,
/// after reading one byte more than that). O(bytes) time and memory.
std::string ReadUnpacked(const std::string& path, uint64_t max_bytes);

}  // namespace tarn
