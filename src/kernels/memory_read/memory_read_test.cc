#include "kernels/memory_read/memory_read.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "kernels/aligned_buffer.h"
#include "kernels/simd_target.h"

namespace tarn {
namespace {

TEST(MemoryReadTest, SumsEveryWordOnce) {
  constexpr int64_t kMost = 70001;  // three pieces and some
  AlignedBuffer<uint64_t> words(kMost);
  uint64_t next = 1;
  for (int64_t i = 0; i < kMost; ++i) {
    words.data()[i] = next;
    next = next * 6364136223846793005u + 1442695040888963407u;
  }
  ThreadPool pool(3);
  SerialExecutor serial;
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    for (const int64_t count : {0, 1, 7, 8, 31, 32, 33, 32768, 32769, 70001}) {
      const uint64_t want =
          std::accumulate(words.data(), words.data() + count, uint64_t{0});
      EXPECT_EQ(want, SumWords(words.data(), count, serial)) << target;
      EXPECT_EQ(want, SumWords(words.data(), count, pool)) << target;
    }
  }
  ResetSimdTarget();
}

TEST(MemoryReadTest, BandwidthIsPositiveAndArgumentsAreChecked) {
  SerialExecutor serial;
  const double rate = ReadBandwidth(1 << 20, 3, serial);
  EXPECT_GT(rate, 1e7);   // slower than any memory
  EXPECT_LT(rate, 1e13);  // faster than any cache
  EXPECT_THROW(ReadBandwidth(-1, 3, serial), ArgumentError);
  EXPECT_THROW(ReadBandwidth(8, 0, serial), ArgumentError);
  EXPECT_THROW(SumWords(nullptr, -1, serial), ShapeError);
  EXPECT_EQ(0u, SumWords(nullptr, 0, serial));
}

}  // namespace
}  // namespace tarn
