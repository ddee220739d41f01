// What the forward pass and the gradient share inside one chunk: rows through
// the feature map into scratch, the factors of queries.

#if defined(TARN_KERNELS_LINEAR_ATTENTION_CHUNK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_LINEAR_ATTENTION_CHUNK_INL_H_
#undef TARN_KERNELS_LINEAR_ATTENTION_CHUNK_INL_H_
#else
#define TARN_KERNELS_LINEAR_ATTENTION_CHUNK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/linear_attention/geometry.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/panels-inl.h"
#include "kernels/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// phi(x) of one row. The default map comes first and inline: a step loads two
// rows per head, and the code of the others would slow it down.
HWY_MAYBE_UNUSED static HWY_NOINLINE void LoadOtherFeatures(
    FeatureMap map, DType dtype, const void* src, int64_t width, float* dst) {
  WithFeatureMap(map, [&](auto m) HWY_ATTR {
    MapRow(dtype, src, width, dst,
           [](VF x) HWY_ATTR { return Feature<decltype(m)::value>(x); });
  });
}
HWY_INLINE void LoadFeatures(FeatureMap map, DType dtype, const void* src,
                             int64_t width, float* dst) {
  if (HWY_LIKELY(map == FeatureMap::kElu1)) {
    MapRow(dtype, src, width, dst, [](VF x) HWY_ATTR { return Elu1(x); });
  } else {
    LoadOtherFeatures(map, dtype, src, width, dst);
  }
}

// Factor of phi(q) that the products carry under an exact denominator: 1, or
// for rows far from 1 the power of two that brings the largest feature into
// [1, 2). The ratio does not change, and the denominator underflows only if
// phi(k) does.
HWY_INLINE bool NeedsFactor(float largest) {
  return !(largest >= 0x1p-30f && largest <= 0x1p30f);
}
HWY_INLINE float QueryFactor(const LinearAttentionOptions& options,
                             const float* features, int64_t padded) {
  if (options.denominator != Denominator::kExact) return options.scale;
  const DF d;
  VF best = hn::Zero(d);
  for (int64_t i = 0; i < padded; i += kLanes) {
    best = hn::Max(hn::Abs(hn::LoadU(d, features + i)), best);
  }
  // The usual case needs no maximum across lanes.
  if (HWY_LIKELY(!hn::AllFalse(d, hn::Ge(best, hn::Set(d, 0x1p-30f))) &&
                 hn::AllTrue(d, hn::Le(best, hn::Set(d, 0x1p30f))))) {
    return 1.0f;
  }
  const float largest = RowMaxAbs(features, padded);
  return NeedsFactor(largest) ? PowerOfTwoScale(largest) : 1.0f;
}

HWY_INLINE bool KeyKept(const LinearAttentionInputs& in, const Sequence& s,
                        int64_t key) {
  return in.key_mask == nullptr ||
         in.key_mask[s.batch * in.keys.size[1] + s.key_at + key] != 0;
}

// ---- Whole chunks: all rows present, none masked, rows of whole vectors.

// Vector `column` of row r through the feature map.
template <DType kType, FeatureMap kMap>
HWY_INLINE VF LoadFeature(const ChunkView& from, int64_t r, int64_t column) {
  return Feature<kMap>(LoadVector<kType>(
      DF(), from.data + r * from.stride +
                column * static_cast<int64_t>(DTypeBytes(kType))));
}

// rows [count, width] into dst [count, width], mapped; their column sums into
// sums [width].
template <DType kType, FeatureMap kMap, bool kSums>
HWY_INLINE void CopyWhole(const ChunkView& from, int64_t count, int64_t width,
                          float* HWY_RESTRICT dst, int64_t ld, float* sums) {
  const DF d;
  for (int64_t c = 0; c < width; c += kLanes) {
    VF sum = hn::Zero(d);
    for (int64_t r = 0; r < count; r += 4) {
      HWY_UNROLL(4)
      for (int64_t u = r; u < r + 4; ++u) {
        const VF x = LoadFeature<kType, kMap>(from, u, c);
        hn::StoreU(x, d, dst + u * ld + c);
        if (kSums) sum = hn::Add(sum, x);
      }
    }
    if (kSums) hn::StoreU(sum, d, sums + c);
  }
}

HWY_MAYBE_UNUSED static HWY_NOINLINE void CopyChunk(FeatureMap map, DType dtype,
                                                    const ChunkView& from,
                                                    int64_t count,
                                                    int64_t width, float* dst,
                                                    int64_t ld, float* sums) {
  WithDType(dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    WithFeatureMap(map, [&](auto m) HWY_ATTR {
      constexpr FeatureMap kMap = decltype(m)::value;
      if (sums == nullptr) {
        CopyWhole<kType, kMap, false>(from, count, width, dst, ld, nullptr);
      } else {
        CopyWhole<kType, kMap, true>(from, count, width, dst, ld, sums);
      }
    });
  });
}

// Column sums of rows [begin, end).
HWY_INLINE void RowSums(const float* rows, int64_t begin, int64_t end,
                        int64_t ld, float* sums) {
  const DF d;
  for (int64_t c = 0; c < ld; c += kLanes) {
    VF sum = hn::Zero(d);
    for (int64_t r = begin; r < end; ++r) {
      sum = hn::Add(sum, hn::LoadU(d, rows + r * ld + c));
    }
    hn::StoreU(sum, d, sums + c);
  }
}

// phi(k) of the chunk into [chunk, ld], zero rows where there is no kept key;
// their sum into sums [ld] unless that is null.
HWY_MAYBE_UNUSED static HWY_NOINLINE void LoadKeys(
    const LinearAttentionOptions& options, const LinearAttentionInputs& in,
    const Sequence& s, const ChunkRows& rows, int64_t head, int64_t chunk,
    float* keys, int64_t ld, float* sums) {
  const int64_t width = in.keys.size[3];
  if (rows.AllKeys(chunk) && in.key_mask == nullptr && width == PadRow(width)) {
    return CopyChunk(options.feature_map, in.keys.dtype,
                     {in.keys, s.batch, s.key_at + rows.position, head, 0},
                     chunk, width, keys, ld, sums);
  }
  ZeroRows(keys, 0, rows.key_begin, ld);
  for (int64_t r = rows.key_begin; r < rows.key_end; ++r) {
    const int64_t key = rows.position + r;
    if (!KeyKept(in, s, key)) {
      ZeroRows(keys, r, r + 1, ld);
      continue;
    }
    LoadFeatures(options.feature_map, in.keys.dtype,
                 in.keys.Row(s.batch, s.key_at + key, head), width,
                 keys + r * ld);
  }
  ZeroRows(keys, std::max(rows.key_begin, rows.key_end), chunk, ld);
  if (sums != nullptr) RowSums(keys, rows.key_begin, rows.key_end, ld, sums);
}

// Columns [column, column + width) of the chunk's values into [chunk, ld].
HWY_MAYBE_UNUSED static HWY_NOINLINE void LoadValues(
    const LinearAttentionInputs& in, const Sequence& s, const ChunkRows& rows,
    int64_t value_head, int64_t column, int64_t width, int64_t chunk,
    float* values, int64_t ld) {
  if (rows.AllKeys(chunk) && in.key_mask == nullptr && width == PadRow(width)) {
    return CopyChunk(
        FeatureMap::kIdentity, in.values.dtype,
        {in.values, s.batch, s.key_at + rows.position, value_head, column},
        chunk, width, values, ld, nullptr);
  }
  ZeroRows(values, 0, rows.key_begin, ld);
  const int64_t skip =
      column * static_cast<int64_t>(DTypeBytes(in.values.dtype));
  for (int64_t r = rows.key_begin; r < rows.key_end; ++r) {
    const int64_t key = rows.position + r;
    if (!KeyKept(in, s, key)) {
      ZeroRows(values, r, r + 1, ld);
      continue;
    }
    LoadRow(in.values.dtype,
            in.values.Row(s.batch, s.key_at + key, value_head) + skip, width,
            values + r * ld);
  }
  ZeroRows(values, std::max(rows.key_begin, rows.key_end), chunk, ld);
}

// phi(q) into [chunk, ld], zero rows where there is no query.
HWY_MAYBE_UNUSED static HWY_NOINLINE void LoadQueries(
    const LinearAttentionOptions& options, const LinearAttentionInputs& in,
    const Sequence& s, const ChunkRows& rows, int64_t head, int64_t chunk,
    float* queries, int64_t ld) {
  const int64_t width = in.queries.size[3];
  const int64_t first = s.query_at + rows.position - s.offset;
  if (rows.AllQueries(chunk) && width == PadRow(width)) {
    return CopyChunk(options.feature_map, in.queries.dtype,
                     {in.queries, s.batch, first, head, 0}, chunk, width,
                     queries, ld, nullptr);
  }
  ZeroRows(queries, 0, rows.query_begin, ld);
  for (int64_t r = rows.query_begin; r < rows.query_end; ++r) {
    LoadFeatures(options.feature_map, in.queries.dtype,
                 in.queries.Row(s.batch, first + r, head), width,
                 queries + r * ld);
  }
  ZeroRows(queries, std::max(rows.query_begin, rows.query_end), chunk, ld);
}

// Factors of the chunk's queries into [chunk], from phi(Q)^T [key, chunk],
// which they multiply: a maximum over rows of lanes, no sum across lanes.
HWY_MAYBE_UNUSED static HWY_NOINLINE void ScaleQueriesT(
    const LinearAttentionOptions& options, const ChunkRows& rows, int64_t d_key,
    int64_t chunk, float* queries_t, float* factors) {
  const DF d;
  for (int64_t i = 0; i < rows.rows; i += kLanes) {
    float* column = queries_t + i;
    if (options.denominator == Denominator::kExact) {
      VF best[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (int64_t k = 0; k < d_key; k += 4) {  // padding rows are zero
        HWY_UNROLL(4)
        for (int u = 0; u < 4; ++u) {
          // A NaN in `best` is replaced by the next entry; whether a NaN entry
          // wins depends on the target. Either way the row's output is NaN.
          best[u] =
              hn::Max(hn::Abs(hn::LoadU(d, column + (k + u) * chunk)), best[u]);
        }
      }
      const VF largest =
          hn::Max(hn::Max(best[0], best[1]), hn::Max(best[2], best[3]));
      hn::StoreU(largest, d, factors + i);
      if (HWY_LIKELY(
              hn::AllTrue(d, hn::And(hn::Ge(largest, hn::Set(d, 0x1p-30f)),
                                     hn::Le(largest, hn::Set(d, 0x1p30f)))))) {
        hn::StoreU(hn::Set(d, 1.0f), d, factors + i);
        continue;
      }
      for (int64_t r = i; r < i + kLanes; ++r) {
        factors[r] =
            NeedsFactor(factors[r]) ? PowerOfTwoScale(factors[r]) : 1.0f;
      }
    } else {
      hn::StoreU(hn::Set(d, options.scale), d, factors + i);
      if (options.scale == 1.0f) continue;
    }
    const VF factor = hn::LoadU(d, factors + i);
    for (int64_t k = 0; k < d_key; ++k) {
      float* at = column + k * chunk;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), factor), d, at);
    }
  }
}

// Multiplies rows of phi(q) by their factors; returns whether any changed.
HWY_INLINE bool ScaleQueries(const LinearAttentionOptions& options,
                             const ChunkRows& rows, float* queries,
                             int64_t ld) {
  bool changed = false;
  for (int64_t r = rows.query_begin; r < rows.query_end; ++r) {
    float* row = queries + r * ld;
    const float factor = QueryFactor(options, row, ld);
    if (factor == 1.0f) continue;
    ScaleRow(row, ld, factor);
    changed = true;
  }
  return changed;
}

// A dense [width] vector into a padded one, and back.
HWY_INLINE void LoadNormalizer(const float* from, int64_t width, float* to,
                               int64_t padded) {
  std::memset(to, 0, static_cast<size_t>(padded) * sizeof(float));
  if (from == nullptr) return;
  std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
