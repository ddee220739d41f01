// Memory of states that ended, kept for those that begin.
#pragma once

#include <cstdint>

#include "kernels/aligned_buffer.h"

namespace tarn {

/// Large blocks that nobody holds any more, for the next of the same size: a
/// copy into fresh pages of the system takes twice as long as one into these.
/// Nothing is kept without an Allowance. One store for the process, for all
/// threads.
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
