#include "core/files/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tarn {

AlignedBuffer::~AlignedBuffer() { std::free(bytes_); }

void AlignedBuffer::Grow(uint64_t used, uint64_t bytes) {
  constexpr uint64_t kAlignment = 64;
  const uint64_t rounded = (bytes / kAlignment + 1) * kAlignment;
  auto* grown = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, rounded));
  if (grown == nullptr) throw std::bad_alloc();
  if (used > 0) std::memcpy(grown, bytes_, used);
  std::free(bytes_);
  bytes_ = grown;
}

FileMapping::~FileMapping() {
  if (address_ != nullptr) munmap(address_, bytes_);
}

bool FileMapping::Map(int fd, uint64_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return false;
  address_ = address;
  bytes_ = bytes;
  return true;
}

void FileMapping::Release(uint64_t begin, uint64_t end) const {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  if (address_ != nullptr && begin < end) {
    madvise(static_cast<uint8_t*>(address_) + begin, end - begin,
            MADV_DONTNEED);
  }
}

Result<OpenedFile> OpenedFile::Open(const std::string& path) {
  // O_NONBLOCK for the open only: a pipe without a writer must not hang it.
  OpenedFile source{
      path,
      FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)),
      std::nullopt};
  const int fd = source.fd.get();
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) {
    return SystemError(path, "a readable file", errno);
  }
  if (S_ISDIR(info.st_mode)) return IoError(path, "a file", "a folder");
  if (S_ISREG(info.st_mode)) {
    source.size = static_cast<uint64_t>(info.st_size);
  } else if (fcntl(fd, F_SETFL, 0) != 0) {
    return SystemError(path, "a readable file", errno);
  }
  return source;
}

FormatError OpenedFile::Truncated(uint64_t offset, const std::string& wanted,
                                  uint64_t got) const {
  return FormatError(StrCat(path, ": byte ", offset), wanted,
                     StrCat(got, " bytes"));
}

int64_t ReadFully(int fd, uint8_t* out, uint64_t bytes) {
  constexpr uint64_t kMaxBytesPerCall = uint64_t{1} << 30;
  uint64_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        read(fd, out + done, std::min(bytes - done, kMaxBytesPerCall));
    if (got == 0) break;
    if (got > 0) done += static_cast<uint64_t>(got);
    if (got < 0 && errno != EINTR) return -1;
  }
  return static_cast<int64_t>(done);
}

std::optional<Error> ReadNext(const OpenedFile& source, uint64_t offset,
                              uint64_t bytes, AlignedBuffer& buffer) {
  constexpr uint64_t kFirstPiece = uint64_t{1} << 20;
  uint64_t used = 0;
  uint64_t capacity = source.size ? bytes : std::min(bytes, kFirstPiece);
  for (;;) {
    buffer.Grow(used, capacity);
    const int64_t got =
        ReadFully(source.fd.get(), buffer.get() + used, capacity - used);
    if (got < 0) return SystemError(source.path, "a readable file", errno);
    used += static_cast<uint64_t>(got);
    if (used < capacity) {
      return source.Truncated(
          offset, StrCat(bytes, " bytes that the header announces"), used);
    }
    if (used == bytes) return std::nullopt;
    capacity = bytes - used < used ? bytes : used * 2;
  }
}

}  // namespace tarn
