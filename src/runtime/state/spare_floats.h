// Memory of states that ended, kept for those that begin.
#pragma once

#include <cstdint>

#include "kernels/aligned_buffer.h"

namespace tarn {

/// Keeps large blocks that have been freed, so that the next one of the same
/// size need not come from the system, which clears every page when it is first
/// used. Keeps nothing without an Allowance. The process has one store, which
/// all threads use.
class SpareFloats {
 public:
  /// Blocks below this come from malloc, which keeps what is freed itself.
  static constexpr int64_t kLeastFloats = int64_t{1} << 20;

  /// A kept block or a new one. Throws std::bad_alloc.
  static AlignedBuffer<float> Take(int64_t size,
                                   AlignedBuffer<float>::Contents contents);
  /// Keeps a block if an allowance has room for it.
  static void Give(AlignedBuffer<float> block) noexcept;
  /// Gives all of them back to the system.
  static void Clear();
  static int64_t bytes();  // of those kept

  /// Lets this many more bytes be kept while it lives.
  class Allowance {
   public:
    explicit Allowance(int64_t bytes);
    ~Allowance();
    Allowance(const Allowance&) = delete;
    Allowance& operator=(const Allowance&) = delete;

   private:
    const int64_t bytes_;
  };
};

}  // namespace tarn
