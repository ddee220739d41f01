// A file without a disk, for readers that take a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <span>
#include <string>

#include "core/file.h"
#include "fuzz/fuzz_input.h"

namespace tarn::fuzz {

/// One file whose contents change from input to input. Nothing may have it open
/// while they do.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("input", MFD_CLOEXEC)) {
    Require(fd_.get() >= 0, "no file in memory");
    path_ = "/proc/self/fd/" + std::to_string(fd_.get());
  }

  const std::string& path() const { return path_; }
  void Set(std::span<const uint8_t> bytes) const {
    Require(ftruncate(fd_.get(), 0) == 0, "no file in memory");
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t wrote =
          pwrite(fd_.get(), bytes.data() + done, bytes.size() - done,
                 static_cast<off_t>(done));
      Require(wrote > 0, "no room for a file in memory");
      done += static_cast<size_t>(wrote);
    }
  }

 private:
  FileDescriptor fd_;
  std::string path_;
};

}  // namespace tarn::fuzz
