// Memory that several values share for as long as none of them changes it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/aligned_buffer.h"
#include "runtime/state/float_runs.h"
#include "runtime/state/spare_floats.h"

namespace tarn {

class FloatCopies;

/// An array of floats. Copies share their memory, O(1); whoever wants to change
/// it asks for memory of its own first. Copies may be used by different
/// threads, one copy by one thread at a time.
class SharedFloats {
 public:
  SharedFloats() = default;
  /// Zeros. Throws std::bad_alloc.
  explicit SharedFloats(int64_t size)
      : SharedFloats(size, AlignedBuffer<float>::kZeros) {}
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
  /// `spare` if that fits. Throws std::bad_alloc with nothing changed. With
  /// `copies` the floats are there when these have been made.
  void Own(SharedFloats& spare);
  void Own(SharedFloats& spare, FloatCopies& copies);
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
    ~Block() { SpareFloats::Give(std::move(floats)); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    AlignedBuffer<float> floats;
    std::atomic<int64_t> owners{1};
  };

  static SharedFloats TakeOrMake(SharedFloats& spare, int64_t size) {
    if (spare.size() == size && spare.own()) return std::move(spare);
    return SharedFloats(size, AlignedBuffer<float>::kNotZeroed);
  }
  SharedFloats(int64_t size, AlignedBuffer<float>::Contents contents)
      : block_(size == 0 ? nullptr
                         : new Block(SpareFloats::Take(size, contents))) {}

  Block* block_ = nullptr;
};

/// Copies that are still to be made, in pieces that workers may share.
class FloatCopies {
 public:
  /// `from` is held, `to` must stay until Clear. Throws
  /// std::bad_alloc with nothing added.
  void Add(const SharedFloats& from, float* to) {
    const size_t more = static_cast<size_t>(from.size() / kPiece + 1);
    if (pieces_.capacity() < pieces_.size() + more) {
      pieces_.reserve(2 * pieces_.size() + more);
    }
    for (int64_t at = 0; at < from.size(); at += kPiece) {
      pieces_.push_back({from, at, to + at});
    }
  }
  int64_t pieces() const { return static_cast<int64_t>(pieces_.size()); }
  void Copy(int64_t piece) const {
    const Piece& p = pieces_[static_cast<size_t>(piece)];
    CopyFloats(p.from.data() + p.at, std::min(kPiece, p.from.size() - p.at),
               p.to);
  }
  void CopyAll() const {
    for (int64_t i = 0; i < pieces(); ++i) Copy(i);
  }
  void Clear() { pieces_.clear(); }  // the memory of the list stays

 private:
  static constexpr int64_t kPiece = int64_t{1} << 18;  // 1 MiB
  struct Piece {
    SharedFloats from;
    int64_t at;
    float* to;
  };
  std::vector<Piece> pieces_;
};

inline void SharedFloats::Own(SharedFloats& spare, FloatCopies& copies) {
  if (own()) return;
  SharedFloats copy = TakeOrMake(spare, size());
  copies.Add(*this, copy.data());
  *this = std::move(copy);
}
inline void SharedFloats::Own(SharedFloats& spare) {
  if (own()) return;
  SharedFloats copy = TakeOrMake(spare, size());
  CopyFloats(data(), size(), copy.data());
  *this = std::move(copy);
}

}  // namespace tarn
