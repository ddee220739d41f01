#include "kernels/memory_read/memory_read.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "core/error.h"
#include "kernels/aligned_buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/memory_read/memory_read.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Eight vectors in flight; prefetched as far ahead as the products' weights.
static uint64_t SumPiece(const uint64_t* words, int64_t count) {
  constexpr int64_t kAhead = 2048 / sizeof(uint64_t);
  const hn::ScalableTag<uint64_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, e = a, f = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    hwy::Prefetch(words + i + kAhead);
    if (lanes == 8) {
      hwy::Prefetch(words + i + kAhead + 8);
      hwy::Prefetch(words + i + kAhead + 16);
      hwy::Prefetch(words + i + kAhead + 24);
    }
    a = hn::Add(a, hn::LoadU(d, words + i));
    b = hn::Add(b, hn::LoadU(d, words + i + lanes));
    e = hn::Add(e, hn::LoadU(d, words + i + 2 * lanes));
    f = hn::Add(f, hn::LoadU(d, words + i + 3 * lanes));
  }
  // Lane by lane: the intrinsic for this adds signed words, which may not wrap.
  HWY_ALIGN uint64_t words_of_lanes[hn::MaxLanes(d)];
  hn::Store(hn::Add(hn::Add(a, b), hn::Add(e, f)), d, words_of_lanes);
  uint64_t sum = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) sum += words_of_lanes[lane];
  for (; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(SumPiece);

uint64_t SumWords(const uint64_t* words, int64_t count, Executor& executor) {
  if (count < 0) throw ShapeError("SumWords: count", ">= 0", StrCat(count));
  // Contiguous pieces of 256 KiB: small compared with any time worth measuring,
  // large compared with the cost of claiming one.
  constexpr int64_t kPiece = 262144 / sizeof(uint64_t);
  std::atomic<uint64_t> total{0};
  executor.ParallelFor((count + kPiece - 1) / kPiece, [&](int64_t task, int) {
    const int64_t begin = task * kPiece;
    total += HWY_DYNAMIC_DISPATCH(SumPiece)(words + begin,
                                            std::min(kPiece, count - begin));
  });
  return total;
}

double ReadBandwidth(int64_t bytes, int passes, Executor& executor) {
  if (bytes < 0 || passes < 1) {
    throw ArgumentError("ReadBandwidth", "bytes >= 0 and passes >= 1",
                        StrCat(bytes, " bytes, ", passes, " passes"));
  }
  const int64_t words = std::max<int64_t>(bytes, 1 << 20) / 8;
  AlignedBuffer<uint64_t> buffer(words);
  for (int64_t i = 0; i < words; i += 8) {
    buffer.data()[i] = static_cast<uint64_t>(i);
  }
  // A pass over a small buffer is too short for a clock and a pool: it is
  // repeated until it has read 64 MiB.
  const int64_t rounds = std::max<int64_t>(1, (int64_t{1} << 23) / words);
  std::vector<double> rates;
  uint64_t sink = 0;
  for (int pass = 0; pass <= passes; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < rounds; ++i) {
      sink += SumWords(buffer.data(), words, executor);
    }
    const std::chrono::duration<double> taken =
        std::chrono::steady_clock::now() - begin;
    if (pass > 0) {
      rates.push_back(static_cast<double>(words * rounds) * 8 / taken.count());
    }
  }
  // Keeps the sums from being optimised away; never true: words are small.
  if (sink == UINT64_MAX) return 0;
  std::nth_element(rates.begin(), rates.begin() + passes / 2, rates.end());
  return rates[static_cast<size_t>(passes / 2)];
}

}  // namespace tarn
#endif  // HWY_ONCE
