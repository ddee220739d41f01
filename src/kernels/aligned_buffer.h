// Memory for weights, states and scratch: 64-byte aligned (one AVX-512 vector,
// one cache line), zero-filled, owned by one place. Large buffers are on huge
// pages where the system has them: a decode step reads all weights once, and
// address translation of 4 KiB pages costs a fifth of the bandwidth.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace tarn {

/// A fixed-size array of trivial T. Moves, never copies; throws std::bad_alloc.
template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t size) : size_(size) {
    if (size == 0) return;
    if (static_cast<uint64_t>(size) > PTRDIFF_MAX / sizeof(T)) {
      throw std::bad_alloc();
    }
    const size_t bytes = static_cast<size_t>(size) * sizeof(T);
    const bool huge = bytes >= 2 * kHugePage;
    // Only whole pages are taken: a part of one cannot be huge.
    const size_t taken =
        huge ? (bytes + kHugePage - 1) / kHugePage * kHugePage : bytes;
    const std::align_val_t alignment{huge ? kHugePage : kAlignment};
    data_ = {static_cast<T*>(::operator new(taken, alignment)),
             Free{alignment}};
#if defined(__linux__)
    // This is only a request: if it is refused, the buffer works but is slower.
    if (huge) madvise(data_.get(), taken, MADV_HUGEPAGE);
#endif
    std::memset(data_.get(), 0, bytes);
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kHugePage = size_t{2} << 20;
  struct Free {
    std::align_val_t alignment{kAlignment};
    void operator()(T* data) const { ::operator delete(data, alignment); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

}  // namespace tarn
