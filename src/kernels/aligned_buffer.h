// Memory for weights, states and scratch: 64-byte aligned (one AVX-512 vector,
// one cache line), zero-filled unless told otherwise, owned by one place. Large
// buffers are on huge pages where the system has them: a decode step reads all
// weights once, and address translation of 4 KiB pages costs a fifth of the
// bandwidth. On Linux these come from the system, which zeroes pages when they
// are first used: one that is not used yet costs nothing.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#define TARN_MAPS_BUFFERS 1
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace tarn {

/// A fixed-size array of trivial T. Moves, never copies; throws std::bad_alloc.
template <typename T>
class AlignedBuffer {
 public:
  enum Contents { kZeros, kNotZeroed };

  AlignedBuffer() = default;
  /// kNotZeroed: for one who writes all of it before reading.
  explicit AlignedBuffer(int64_t size, Contents contents = kZeros)
      : size_(size) {
    if (size == 0) return;
    if (static_cast<uint64_t>(size) >
        (PTRDIFF_MAX - 2 * kHugePage) / sizeof(T)) {
      throw std::bad_alloc();
    }
    const size_t bytes = static_cast<size_t>(size) * sizeof(T);
#if defined(TARN_MAPS_BUFFERS)
    if (bytes >= 2 * kHugePage) {
      data_ = Map(bytes);
      return;
    }
#endif
    const std::align_val_t alignment{kAlignment};
    data_ = {static_cast<T*>(::operator new(bytes, alignment)), Free{}};
    if (contents == kZeros) std::memset(data_.get(), 0, bytes);
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kHugePage = size_t{2} << 20;
  struct Free {
    size_t mapped = 0;  // bytes from the system; 0: from operator new
    void operator()(T* data) const {
#if defined(TARN_MAPS_BUFFERS)
      if (mapped > 0) {
        munmap(data, mapped);
        return;
      }
#endif
      ::operator delete (data, std::align_val_t{kAlignment});
    }
  };

#if defined(TARN_MAPS_BUFFERS)
  // Only whole pages are taken: a part of one cannot be huge.
  static std::unique_ptr<T, Free> Map(size_t bytes) {
    const size_t taken = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    const size_t more = taken + kHugePage;  // of which an aligned part stays
    void* found = mmap(nullptr, more, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
    const auto begin = reinterpret_cast<uintptr_t>(found);
    const uintptr_t at = (begin + kHugePage - 1) / kHugePage * kHugePage;
    if (at > begin) munmap(found, at - begin);
    const size_t after = begin + more - (at + taken);
    auto* data = reinterpret_cast<T*>(at);
    if (after > 0) munmap(reinterpret_cast<char*>(at) + taken, after);
    // This is only a request: if it is refused, the buffer works but is slower.
    madvise(data, taken, MADV_HUGEPAGE);
    return {data, Free{taken}};
  }
#endif

  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

}  // namespace tarn
