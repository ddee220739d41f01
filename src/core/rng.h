// Counter-based random numbers: the value is a pure function of (seed, stream,
// counter), so any thread, batch order or resumed run draws the same numbers.
#pragma once

#include <array>
#include <cstdint>

namespace tarn {

/// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as
/// 1, 2, 3"): four 32-bit words for each counter.
std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t stream,
                               uint64_t counter);

/// A cursor over Philox output. A value: copy it to fork, compare to check.
class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0, uint64_t counter = 0)
      : seed_(seed), stream_(stream), counter_(counter) {}

  /// 64 random bits; advances the counter by one.
  uint64_t Next();
  /// Uniform in [0, 1), 53 bits.
  double Uniform();
  /// Uniform in [0, bound), bound >= 1, without modulo bias.
  uint64_t Below(uint64_t bound);
  /// Standard normal (Box-Muller; one counter step a draw).
  double Normal();
  uint64_t counter() const { return counter_; }

 private:
  uint64_t seed_, stream_, counter_;
};

}  // namespace tarn
