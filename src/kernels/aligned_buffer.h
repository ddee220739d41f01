// Memory for weights, states and scratch: 64-byte aligned (one AVX-512 vector,
// one cache line), zero-filled, owned by one place.
#pragma once

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
    data_.reset(static_cast<T*>(::operator new(bytes, kAlignment)));
    std::memset(data_.get(), 0, bytes);
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

}  // namespace tarn
