#include "kernels/softmax_attention/softmax_attention.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_attention/softmax_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/softmax_attention/cache_rows-inl.h"
#include "kernels/softmax_attention/score_row-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Rows of a cache are prefetched this many words before they are used: the
// hardware prefetcher stops at the end of a page, and a head's keys are few
// pages.
constexpr int64_t kAhead = 1024;
constexpr int64_t kLine = 16;  // floats of a cache line

// Prefetches ahead of row j: the row kAhead words after it or, after the last
// row, as much of what is read next.
template <bool kStreams>
struct Ahead {
  const float* rows;
  int64_t stride, width, end;  // of the rows: words of a row, rows
  const float* next;           // null: nothing
  int64_t distance = std::max<int64_t>(kAhead / width, 1);  // in rows

  HWY_INLINE void Fetch(int64_t j, int64_t count) const {
    if constexpr (kStreams) {
      for (int64_t r = j + distance; r < j + distance + count; ++r) {
        const float* row = rows + r * stride;
        if (r >= end) {
          if (next == nullptr) return;
          row = next + (r - end) * width;
        }
        for (int64_t i = 0; i < width; i += kLine) {
          __builtin_prefetch(row + i, 0, 3);
        }
      }
    }
  }
};

// out[0, columns) = factor * sum_j p[j] v_j for up to kVectors vectors of
// columns, the first of them `first`. Even and odd j have sums of their own:
// two chains hide the latency of a multiply-add where columns are few.
template <int kVectors, class Rows, bool kStreams>
HWY_INLINE void WeightedSum(const float* p, const KeyValueCache& cache,
                            int64_t first, int64_t columns, float factor,
                            const Ahead<kStreams>& ahead, float* out) {
  const DF d;
  // Rows of float32 begin at their first column, which saves an index.
  const int64_t from = Rows::kIsFloat ? 0 : first;
  const float* values = cache.values + (Rows::kIsFloat ? first : 0);
  VF even[kVectors], odd[kVectors];
  HWY_UNROLL(4)
  for (int i = 0; i < kVectors; ++i) even[i] = odd[i] = hn::Zero(d);
  int64_t j = 0;
  for (; j + 2 <= cache.seq_len; j += 2) {
    const float* row = values + j * cache.value_stride;
    ahead.Fetch(j, 2);
    const VF p0 = hn::Set(d, p[j]), p1 = hn::Set(d, p[j + 1]);
    HWY_UNROLL(4)
    for (int i = 0; i < kVectors; ++i) {
      const int64_t column = from + i * kLanes, valid = columns - i * kLanes;
      even[i] = hn::MulAdd(p0, LoadColumns<Rows>(row, column, valid), even[i]);
      odd[i] = hn::MulAdd(
          p1, LoadColumns<Rows>(row + cache.value_stride, column, valid),
          odd[i]);
    }
  }
  const bool last = j < cache.seq_len;
  HWY_UNROLL(4)
  for (int i = 0; i < kVectors; ++i) {
    const int64_t valid = columns - i * kLanes;
    if (last) {
      const float* row = values + j * cache.value_stride;
      even[i] =
          hn::MulAdd(hn::Set(d, p[j]),
                     LoadColumns<Rows>(row, from + i * kLanes, valid), even[i]);
    }
    const VF o = hn::Mul(hn::Add(even[i], odd[i]), hn::Set(d, factor));
    if (valid >= kLanes) {
      hn::StoreU(o, d, out + i * kLanes);
    } else {
      StorePart(o, out + i * kLanes, valid);
    }
  }
}

template <class Rows, bool kStreams>
HWY_INLINE void Attend(const float* query, const KeyValueCache& cache,
                       const SoftmaxStepOptions& options, float* scores,
                       float* out) {
  const float scale = options.scale;
  const Ahead<kStreams> keys{
      cache.keys, cache.key_stride,
      std::max<int64_t>(CacheRowWords(cache.type, cache.d_key), 1),
      cache.seq_len, cache.values};
  int64_t j = 0;
  for (; j + 4 <= cache.seq_len; j += 4) {
    keys.Fetch(j, 4);
    Scores<4, Rows>(query, cache.keys + j * cache.key_stride, cache.key_stride,
                    cache.d_key, scale, scores + j);
  }
  for (; j < cache.seq_len; ++j) {
    Scores<1, Rows>(query, cache.keys + j * cache.key_stride, cache.key_stride,
                    cache.d_key, scale, scores + j);
  }
  const float factor =
      SoftmaxOfRow(scores, cache.seq_len, options.softcap, options.sink);
  // Takes as many columns at a time as there are registers, so that every line
  // of a narrow head is read once.
  const auto sum = [&](auto vectors, int64_t c, int64_t columns) HWY_ATTR {
    const int64_t begin = Rows::Words(c), end = Rows::Words(c + columns);
    const Ahead<kStreams> ahead{
        cache.values + begin, cache.value_stride,
        std::max<int64_t>(end - begin, 1), cache.seq_len,
        c + columns == cache.d_value ? cache.next : nullptr};
    WeightedSum<decltype(vectors)::value, Rows, kStreams>(
        scores, cache, c, columns, factor, ahead, out + c);
  };
  int64_t c = 0;
  for (; c + 4 * kLanes <= cache.d_value; c += 4 * kLanes) {
    sum(std::integral_constant<int, 4>(), c, 4 * kLanes);
  }
  for (; c + 2 * kLanes <= cache.d_value; c += 2 * kLanes) {
    sum(std::integral_constant<int, 2>(), c, 2 * kLanes);
  }
  for (; c < cache.d_value; c += kLanes) {
    sum(std::integral_constant<int, 1>(), c,
        std::min(kLanes, cache.d_value - c));
  }
}

template <class Rows>
static void AttendRows(const float* query, const KeyValueCache& cache,
                       const SoftmaxStepOptions& options, float* scores,
                       float* out) {
  if (cache.streams) {
    Attend<Rows, true>(query, cache, options, scores, out);
  } else {
    Attend<Rows, false>(query, cache, options, scores, out);
  }
}

static void AttendStep(const float* query, const KeyValueCache& cache,
                       const SoftmaxStepOptions& options, float* scores,
                       float* out) {
  switch (cache.type) {
    case CacheType::kF32:
      return AttendRows<F32CacheRows>(query, cache, options, scores, out);
    case CacheType::kBF16:
      return AttendRows<BF16CacheRows>(query, cache, options, scores, out);
    case CacheType::kInt8:
      return AttendRows<Int8CacheRows>(query, cache, options, scores, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(AttendStep);

void SoftmaxAttentionStep(const float* query, const KeyValueCache& cache,
                          const SoftmaxStepOptions& options, float* scores,
                          float* out) {
  HWY_DYNAMIC_DISPATCH(AttendStep)(query, cache, options, scores, out);
}

}  // namespace tarn
#endif  // HWY_ONCE
