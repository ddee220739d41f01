#include "kernels/softmax_attention/softmax_rows.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_attention/softmax_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/softmax_attention/cache_rows-inl.h"
#include "kernels/softmax_attention/score_row-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Values are taken in blocks of so many keys, which stay in the second-level
// cache while their columns are summed one line after the other.
constexpr int64_t kKeyBlock = 128;
// Keys at once: with six rows twelve sums, as two vectors of a value have,
// which leave room for their operands in sixteen registers.
constexpr int kKeysAtOnce = 2;

// Of the queries of one call: their scores [rows, stride], and the sums of even
// and of odd keys [rows, 2, width].
struct RowsScratch {
  float *scores, *sums;
  int64_t stride, width;
  float* Scores(int64_t row) const { return scores + row * stride; }
  float* Sums(int64_t row, int64_t odd) const {
    return sums + (2 * row + odd) * width;
  }
};

// Scores of kKeys neighbouring keys for kRows queries.
template <int kRows, int kKeys, class Rows>
HWY_INLINE void ScoreTile(const SoftmaxQuery* queries, const float* keys,
                          int64_t stride, int64_t d_key, float scale,
                          int64_t key, const RowsScratch& scratch) {
  const DF d;
  VF sum[kRows][kKeys];
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int j = 0; j < kKeys; ++j) sum[r][j] = hn::Zero(d);
  }
  const auto add = [&](auto load_query, auto load_key) HWY_ATTR {
    VF k[kKeys];
    HWY_UNROLL(2)
    for (int j = 0; j < kKeys; ++j) k[j] = load_key(keys + j * stride);
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      const VF q = load_query(queries[r].query);
      HWY_UNROLL(2)
      for (int j = 0; j < kKeys; ++j) {
        sum[r][j] = hn::MulAdd(q, k[j], sum[r][j]);
      }
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= d_key; i += kLanes) {
    add([i](const float* q) HWY_ATTR { return hn::LoadU(DF(), q + i); },
        [i](const float* row) HWY_ATTR { return Rows::Load(row, i); });
  }
  if (const int64_t left = d_key - i; left > 0) {
    add([&](const float* q) HWY_ATTR { return LoadPart(q + i, left); },
        [&](const float* row) HWY_ATTR { return Rows::Part(row, i, left); });
  }
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    float* scores = scratch.Scores(r) + key;
    HWY_UNROLL(2)
    for (int j = 0; j < kKeys; ++j) {
      scores[j] = scale * hn::GetLane(hn::SumOfLanes(d, sum[r][j]));
    }
  }
}

template <int kRows, class Rows>
HWY_INLINE void ScoreRows(const SoftmaxQuery* queries, int64_t common,
                          const KeyValueCache& cache, float scale,
                          const RowsScratch& scratch) {
  int64_t j = 0;
  for (; j + kKeysAtOnce <= common; j += kKeysAtOnce) {
    ScoreTile<kRows, kKeysAtOnce, Rows>(
        queries, cache.keys + j * cache.key_stride, cache.key_stride,
        cache.d_key, scale, j, scratch);
  }
  for (; j < common; ++j) {
    ScoreTile<kRows, 1, Rows>(queries, cache.keys + j * cache.key_stride,
                              cache.key_stride, cache.d_key, scale, j, scratch);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t k = common; k < queries[r].seq_len; ++k) {
      Scores<1, Rows>(queries[r].query, cache.keys + k * cache.key_stride,
                      cache.key_stride, cache.d_key, scale,
                      scratch.Scores(r) + k);
    }
  }
}

// Adds keys [begin, end) of one parity to some columns of the sums.
template <int kRows, int kVectors, class Rows>
HWY_INLINE void SumTile(const KeyValueCache& cache, int64_t begin, int64_t end,
                        int64_t column, const RowsScratch& scratch) {
  const DF d;
  const int64_t odd = begin % 2;
  const auto lanes = [&](int v) { return cache.d_value - column - v * kLanes; };
  VF sum[kRows][kVectors];
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) {
      // Rows of sums are padded.
      sum[r][v] = hn::LoadU(d, scratch.Sums(r, odd) + column + v * kLanes);
    }
  }
  const float* row = cache.values + begin * cache.value_stride;
  const int64_t next =
      Rows::Words(std::min(column + kVectors * kLanes, cache.d_value - 1));
  for (int64_t j = begin; j < end; j += 2, row += 2 * cache.value_stride) {
    __builtin_prefetch(row + next, 0, 3);
    VF value[kVectors];
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) {
      value[v] = LoadColumns<Rows>(row, column + v * kLanes, lanes(v));
    }
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      const VF p = hn::Set(d, scratch.Scores(r)[j]);
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::MulAdd(p, value[v], sum[r][v]);
      }
    }
  }
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[r][v], d, scratch.Sums(r, odd) + column + v * kLanes);
    }
  }
}

// The same of the keys that one query alone sees.
template <class Rows>
HWY_INLINE void SumOwn(const KeyValueCache& cache, int64_t begin, int64_t end,
                       int64_t r, const RowsScratch& scratch) {
  const DF d;
  for (int64_t j = begin; j < end; ++j) {
    const float* row = cache.values + j * cache.value_stride;
    const VF p = hn::Set(d, scratch.Scores(r)[j]);
    float* sums = scratch.Sums(r, j % 2);
    for (int64_t c = 0; c < cache.d_value; c += kLanes) {
      const VF value = LoadColumns<Rows>(row, c, cache.d_value - c);
      hn::StoreU(hn::MulAdd(p, value, hn::LoadU(d, sums + c)), d, sums + c);
    }
  }
}

template <int kRows, class Rows>
HWY_INLINE void SumRows(const SoftmaxQuery* queries, int64_t common,
                        const KeyValueCache& cache, const float* factors,
                        const RowsScratch& scratch) {
  const DF d;
  std::fill_n(scratch.Sums(0, 0), 2 * kRows * scratch.width, 0.0f);
  for (int64_t begin = 0; begin < common; begin += kKeyBlock) {
    const int64_t end = std::min(begin + kKeyBlock, common);
    int64_t c = 0;
    for (; c + 2 * kLanes <= cache.d_value; c += 2 * kLanes) {
      SumTile<kRows, 2, Rows>(cache, begin, end, c, scratch);
      SumTile<kRows, 2, Rows>(cache, begin + 1, end, c, scratch);
    }
    for (; c < cache.d_value; c += kLanes) {
      SumTile<kRows, 1, Rows>(cache, begin, end, c, scratch);
      SumTile<kRows, 1, Rows>(cache, begin + 1, end, c, scratch);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    SumOwn<Rows>(cache, common, queries[r].seq_len, r, scratch);
    const VF factor = hn::Set(d, factors[r]);
    for (int64_t c = 0; c < cache.d_value; c += kLanes) {
      const VF o = hn::Mul(hn::Add(hn::LoadU(d, scratch.Sums(r, 0) + c),
                                   hn::LoadU(d, scratch.Sums(r, 1) + c)),
                           factor);
      const int64_t valid = cache.d_value - c;
      if (valid >= kLanes) {
        hn::StoreU(o, d, queries[r].out + c);
      } else {
        StorePart(o, queries[r].out + c, valid);
      }
    }
  }
}

template <int kRows, class Rows>
static void AttendTogether(const SoftmaxQuery* queries,
                           const KeyValueCache& cache,
                           const SoftmaxStepOptions& options,
                           const RowsScratch& scratch) {
  int64_t common = queries[0].seq_len;
  for (int r = 1; r < kRows; ++r) {
    common = std::min(common, queries[r].seq_len);
  }
  ScoreRows<kRows, Rows>(queries, common, cache, options.scale, scratch);
  float factors[kRows];
  for (int r = 0; r < kRows; ++r) {
    factors[r] = SoftmaxOfRow(scratch.Scores(r), queries[r].seq_len,
                              options.softcap, queries[r].sink);
  }
  SumRows<kRows, Rows>(queries, common, cache, factors, scratch);
}

template <class Rows>
static void AttendAll(std::span<const SoftmaxQuery> queries,
                      const KeyValueCache& cache,
                      const SoftmaxStepOptions& options,
                      const RowsScratch& scratch) {
  const auto take = [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    while (queries.size() >= static_cast<size_t>(kRows)) {
      AttendTogether<kRows, Rows>(queries.data(), cache, options, scratch);
      queries = queries.subspan(kRows);
    }
  };
  take(std::integral_constant<int, kMaxSoftmaxRows>());
  take(std::integral_constant<int, 4>());
  take(std::integral_constant<int, 2>());
  take(std::integral_constant<int, 1>());
}

static void AttendQueries(std::span<const SoftmaxQuery> queries,
                          const KeyValueCache& cache,
                          const SoftmaxStepOptions& options, float* scratch) {
  int64_t longest = 0;
  for (const SoftmaxQuery& query : queries) {
    longest = std::max(longest, query.seq_len);
  }
  const int64_t stride = SoftmaxRowFloats(longest);
  const RowsScratch rows = {scratch, scratch + kMaxSoftmaxRows * stride, stride,
                            SoftmaxRowFloats(cache.d_value)};
  switch (cache.type) {
    case CacheType::kF32:
      return AttendAll<F32CacheRows>(queries, cache, options, rows);
    case CacheType::kBF16:
      return AttendAll<BF16CacheRows>(queries, cache, options, rows);
    case CacheType::kInt8:
      return AttendAll<Int8CacheRows>(queries, cache, options, rows);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(AttendQueries);

void SoftmaxAttentionRows(std::span<const SoftmaxQuery> queries,
                          const KeyValueCache& cache,
                          const SoftmaxStepOptions& options, float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttendQueries)(queries, cache, options, scratch);
}

}  // namespace tarn
#endif  // HWY_ONCE
