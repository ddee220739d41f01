#include "kernels/row_argmax/row_argmax.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_argmax/row_argmax.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest of `count` numbers; +infinity if one is not below it.
static float LargestBelowInfinity(const float* row, int64_t count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto infinity = hn::Set(d, kInfinity);
  auto most = hn::Set(d, -kInfinity), more = most;
  auto below = hn::Lt(most, infinity);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto x = hn::LoadU(d, row + i), y = hn::LoadU(d, row + i + lanes);
    // Comparisons with NaN are false.
    below = hn::And(below, hn::And(hn::Lt(x, infinity), hn::Lt(y, infinity)));
    most = hn::Max(most, x);
    more = hn::Max(more, y);
  }
  if (!hn::AllTrue(d, below)) return kInfinity;
  float largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(most, more)));
  for (; i < count; ++i) {
    if (!(row[i] < kInfinity)) return kInfinity;
    largest = std::max(largest, row[i]);
  }
  return largest;
}

// Of a block at a time, so that the search for its place reads one block again.
static int64_t Argmax(const float* row, int64_t count) {
  constexpr int64_t kBlock = 2048;
  float best = -std::numeric_limits<float>::infinity();
  int64_t from = 0;
  for (int64_t at = 0; at < count; at += kBlock) {
    const float most =
        LargestBelowInfinity(row + at, std::min(kBlock, count - at));
    if (most == std::numeric_limits<float>::infinity()) return -1;
    if (most > best) {
      best = most;
      from = at;
    }
  }
  return std::find(row + from, row + count, best) - row;
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(Argmax);

int64_t RowArgmax(const float* row, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(Argmax)(row, count);
}

}  // namespace tarn
#endif  // HWY_ONCE
