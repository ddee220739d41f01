// What the forward and the gradient share inside one chunk: loading rows
// through the feature map, masked scores, and triangular products that never
// let a NaN or infinity of a later token reach an earlier row.

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

#include "hwy/highway.h"
#include "kernels/linear_attention/geometry.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a triangular block: scores are computed for 16 rows at a time, up to
// the block's last column, which leaves 3/4 (C = 32) of the full square.
constexpr int64_t kBlock = 16;

HWY_INLINE void LoadFeatures(FeatureMap map, DType dtype, const void* src,
                             int64_t width, float* dst) {
  if (map == FeatureMap::kElu1) {
    LoadElu1(dtype, src, width, dst);
  } else {
    LoadRow(dtype, src, width, dst);
  }
}

// Factor of phi(q) that the products carry. Exact: a power of two (the ratio
// does not change, and the denominator underflows only if phi(k) does).
HWY_INLINE float QueryFactor(const LinearAttentionOptions& options,
                             const float* features, int64_t padded) {
  if (options.denominator != Denominator::kExact) return options.scale;
  return PowerOfTwoScale(RowMaxAbs(features, padded));
}

HWY_INLINE void ZeroRows(float* data, int64_t begin, int64_t end, int64_t ld) {
  if (begin < end) {
    std::memset(data + begin * ld, 0,
                static_cast<size_t>((end - begin) * ld) * sizeof(float));
  }
}

// Rows of one head lie a whole token apart, too far for the hardware to
// foresee: while a row is read or written, the row one chunk on in the walk is
// asked for. (An address past the tensor is only a hint.) Into L2: the chunk's
// own scratch fills L1.
template <int kWrite = 0>
HWY_INLINE void PrefetchRow(const TensorView& view, const char* row,
                            int64_t tokens, int64_t width) {
  const int64_t bytes = static_cast<int64_t>(DTypeBytes(view.dtype));
  const uintptr_t at = reinterpret_cast<uintptr_t>(row) +
                       static_cast<uintptr_t>(tokens * view.stride[1] * bytes);
  for (int64_t i = 0; i < width * bytes; i += 64) {
    __builtin_prefetch(reinterpret_cast<const char*>(at + i), kWrite, 2);
  }
}

HWY_INLINE bool KeyKept(const LinearAttentionInputs& in, const Sequence& s,
                        int64_t key) {
  return in.key_mask == nullptr ||
         in.key_mask[s.batch * in.keys.size[1] + s.key_at + key] != 0;
}

// phi(k) of the chunk into [chunk, ld]; zero rows where there is no kept key.
HWY_INLINE void LoadKeys(const LinearAttentionOptions& options,
                         const LinearAttentionInputs& in, const Sequence& s,
                         const ChunkRows& rows, int64_t head, int64_t chunk,
                         float* keys, int64_t ld) {
  ZeroRows(keys, 0, rows.key_begin, ld);
  for (int64_t r = rows.key_begin; r < rows.key_end; ++r) {
    const int64_t key = rows.position + r;
    if (!KeyKept(in, s, key)) {
      ZeroRows(keys, r, r + 1, ld);
      continue;
    }
    const char* row = in.keys.Row(s.batch, s.key_at + key, head);
    PrefetchRow(in.keys, row, s.ahead, in.keys.size[3]);
    LoadFeatures(options.feature_map, in.keys.dtype, row, in.keys.size[3],
                 keys + r * ld);
  }
  ZeroRows(keys, std::max(rows.key_begin, rows.key_end), chunk, ld);
}

// Columns [column, column + width) of the chunk's values into [chunk, ld].
HWY_INLINE void LoadValues(const LinearAttentionInputs& in, const Sequence& s,
                           const ChunkRows& rows, int64_t value_head,
                           int64_t column, int64_t width, int64_t chunk,
                           float* values, int64_t ld) {
  ZeroRows(values, 0, rows.key_begin, ld);
  const int64_t skip =
      column * static_cast<int64_t>(DTypeBytes(in.values.dtype));
  for (int64_t r = rows.key_begin; r < rows.key_end; ++r) {
    const int64_t key = rows.position + r;
    if (!KeyKept(in, s, key)) {
      ZeroRows(values, r, r + 1, ld);
      continue;
    }
    const char* row = in.values.Row(s.batch, s.key_at + key, value_head) + skip;
    PrefetchRow(in.values, row, s.ahead, width);
    LoadRow(in.values.dtype, row, width, values + r * ld);
  }
  ZeroRows(values, std::max(rows.key_begin, rows.key_end), chunk, ld);
}

// Factor * phi(q) into [chunk, ld], factors into [chunk]; zero rows where there
// is no query.
HWY_INLINE void LoadQueries(const LinearAttentionOptions& options,
                            const LinearAttentionInputs& in, const Sequence& s,
                            const ChunkRows& rows, int64_t head, int64_t chunk,
                            float* queries, int64_t ld, float* factors) {
  ZeroRows(queries, 0, rows.query_begin, ld);
  for (int64_t r = rows.query_begin; r < rows.query_end; ++r) {
    float* row = queries + r * ld;
    const int64_t at = s.query_at + rows.position + r - s.offset;
    const char* from = in.queries.Row(s.batch, at, head);
    PrefetchRow(in.queries, from, s.ahead, in.queries.size[3]);
    LoadFeatures(options.feature_map, in.queries.dtype, from,
                 in.queries.size[3], row);
    factors[r] = QueryFactor(options, row, ld);
    if (factors[r] != 1.0f) ScaleRow(row, ld, factors[r]);
  }
  ZeroRows(queries, std::max(rows.query_begin, rows.query_end), chunk, ld);
}

// Zeroes scores[i, j] for j > i in the diagonal blocks; entries are selected,
// not multiplied, so a NaN above the diagonal is gone.
HWY_INLINE void MaskDiagonal(float* scores, int64_t ld, int64_t rows) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i) {
    float* row = scores + i * ld;
    const int64_t block = i / kBlock * kBlock;
    for (int64_t j = block; j < block + kBlock; j += lanes) {
      const int64_t keep = std::clamp<int64_t>(i + 1 - j, 0, lanes);
      hn::StoreU(hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(keep)),
                                    hn::LoadU(d, row + j)),
                 d, row + j);
    }
  }
}

// scores = tril(A B^T), A [rows, k] dense in ld_a, bt = B^T [k, chunk].
HWY_INLINE void LowerScores(const float* a, int64_t ld_a, const float* bt,
                            int64_t chunk, int64_t rows, int64_t k,
                            float* scores) {
  for (int64_t i = 0; i < rows; i += kBlock) {
    const int64_t m = std::min(kBlock, rows - i);
    MatMul({a + i * ld_a, ld_a, 1}, bt, chunk, scores + i * chunk, chunk, m,
           i + kBlock, k, /*accumulate=*/false);
  }
}

// c += tril(scores) x: row i takes x rows j <= i. With `finite` false each row
// gets products up to its own length only.
HWY_INLINE void LowerTimes(const float* scores, int64_t chunk, const float* x,
                           int64_t ld_x, int64_t rows, int64_t n, float* c,
                           int64_t ld_c, bool finite) {
  const int64_t step = finite ? kBlock : 1;
  for (int64_t i = 0; i < rows; i += step) {
    const int64_t m = std::min(step, rows - i);
    MatMul({scores + i * chunk, chunk, 1}, x, ld_x, c + i * ld_c, ld_c, m, n,
           std::min(i + step, rows), /*accumulate=*/true);
  }
}

// c += tril(scores)^T x: row j takes x rows i >= j.
HWY_INLINE void LowerTransposedTimes(const float* scores, int64_t chunk,
                                     const float* x, int64_t ld_x, int64_t rows,
                                     int64_t n, float* c, int64_t ld_c,
                                     bool finite) {
  const int64_t step = finite ? kBlock : 1;
  for (int64_t j = 0; j < rows; j += step) {
    const int64_t m = std::min(step, rows - j);
    MatMul({scores + j * chunk + j, 1, chunk}, x + j * ld_x, ld_x, c + j * ld_c,
           ld_c, m, n, rows - j, /*accumulate=*/true);
  }
}

// to [padded rows of d_key, ld] from dense [d_key, width] columns [column,
// column + count); zeros elsewhere. A null source gives zeros.
HWY_INLINE void LoadState(const float* from, int64_t d_key, int64_t width,
                          int64_t column, int64_t count, float* to,
                          int64_t padded_rows, int64_t ld) {
  std::memset(to, 0, static_cast<size_t>(padded_rows * ld) * sizeof(float));
  if (from == nullptr) return;
  for (int64_t k = 0; k < d_key; ++k) {
    std::memcpy(to + k * ld, from + k * width + column,
                static_cast<size_t>(count) * sizeof(float));
  }
}

HWY_INLINE void StoreState(const float* from, int64_t ld, int64_t d_key,
                           int64_t width, int64_t column, int64_t count,
                           float* to) {
  if (to == nullptr) return;
  for (int64_t k = 0; k < d_key; ++k) {
    std::memcpy(to + k * width + column, from + k * ld,
                static_cast<size_t>(count) * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
