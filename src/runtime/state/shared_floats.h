// Memory that several values share for as long as none of them changes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "kernels/aligned_buffer.h"
#include "runtime/state/float_runs.h"

namespace tarn {

/// An array of floats. Copies share their memory, O(1); whoever wants to change
/// it asks for memory of its own first. Copies may be used by different
/// threads, one copy by one thread at a time.
class SharedFloats {
 public:
  SharedFloats() = default;
  /// Zeros. Throws std::bad_alloc.
  explicit SharedFloats(int64_t size)
      : block_(size == 0 ? nullptr : new Block(AlignedBuffer<float>(size))) {}
  SharedFloats(const SharedFloats& other) : block_(other.block_) {
    if (block_ != nullptr) block_->owners.fetch_add(1);
  }
  SharedFloats(SharedFloats&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)) {}
  SharedFloats& operator=(SharedFloats other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~SharedFloats() {
    if (block_ != nullptr && block_->owners.fetch_sub(1) == 1) delete block_;
  }

  /// To read, and where own() to write.
  float* data() { return block_ == nullptr ? nullptr : block_->floats.data(); }
  const float* data() const {
    return block_ == nullptr ? nullptr : block_->floats.data();
  }
  int64_t size() const { return block_ == nullptr ? 0 : block_->floats.size(); }
  int64_t bytes() const {
    return block_ == nullptr ? 0 : block_->floats.bytes();
  }
  /// No other value shares the memory. What others have read of it happened
  /// before.
  bool own() const { return block_ == nullptr || block_->owners.load() == 1; }
  bool Shares(const SharedFloats& other) const {
    return block_ == other.block_;
  }

  /// Memory of its own with the same floats: a copy where others share it, into
  /// `spare` if that fits. Throws std::bad_alloc with nothing changed.
  void Own(SharedFloats& spare) {
    if (own()) return;
    SharedFloats copy = TakeOrMake(spare, size());
    CopyFloats(data(), size(), copy.data());
    *this = std::move(copy);
  }
  /// The same for one who writes all of it: what it holds is not specified.
  void OwnToOverwrite(SharedFloats& spare) {
    if (!own()) *this = TakeOrMake(spare, size());
  }
  /// Shares another's memory. Its own becomes the spare one.
  void Share(const SharedFloats& other, SharedFloats& spare) {
    if (Shares(other)) return;
    if (own() && size() > 0) spare = std::move(*this);
    *this = other;
  }

 private:
  struct Block {
    explicit Block(AlignedBuffer<float> memory) : floats(std::move(memory)) {}
    AlignedBuffer<float> floats;
    std::atomic<int64_t> owners{1};
  };

  static SharedFloats TakeOrMake(SharedFloats& spare, int64_t size) {
    if (spare.size() == size && spare.own()) return std::move(spare);
    SharedFloats made;
    made.block_ =
        new Block(AlignedBuffer<float>(size, AlignedBuffer<float>::kNotZeroed));
    return made;
  }

  Block* block_ = nullptr;
};

}  // namespace tarn
