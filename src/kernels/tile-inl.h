// Small float32 matrix products on padded scratch, in registers.
//
// One shape serves every product of chunked attention: rows of C take scalars
// of A, columns of C take vectors of B. Each element of C is one chain of
// multiply-adds along the depth in index order, in whichever tile it is, so
// results do not depend on how rows or columns were split.

#if defined(TARN_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_TILE_INL_H_
#undef TARN_KERNELS_TILE_INL_H_
#else
#define TARN_KERNELS_TILE_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

// Tiles of kTileRows x 2 vectors: 16 accumulators of 32 registers (AVX-512,
// NEON), 12 of 16 elsewhere. Two multiply-adds a cycle of latency 4 need 8.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 6;
#endif
constexpr int64_t kPanel = 2 * kLanes;

template <int kRows, int kVectors>
struct Tile {
  VF at[kRows][kVectors];

  // Defined here, so that it has the SIMD target of the surrounding code: a
  // compiler-generated one would have that of the command line.
  HWY_INLINE Tile() {}  // NOLINT: not initialised
  HWY_INLINE void Clear() {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) at[r][v] = hn::Zero(DF());
    }
  }
  HWY_INLINE void Load(const float* c, int64_t ld) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        at[r][v] = hn::LoadU(DF(), c + r * ld + v * kLanes);
      }
    }
  }
  HWY_INLINE void Store(float* c, int64_t ld) const {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(at[r][v], DF(), c + r * ld + v * kLanes);
      }
    }
  }

  // Rows [kFirst, kRows) += a[r * row] * b.
  template <int kFirst = 0>
  HWY_INLINE void AddOuter(const float* HWY_RESTRICT a, int64_t row,
                           const float* HWY_RESTRICT b) {
    const DF d;
    VF x[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) x[v] = hn::LoadU(d, b + v * kLanes);
    HWY_UNROLL(16)
    for (int r = kFirst; r < kRows; ++r) {
      const VF scalar = hn::Set(d, a[r * row]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        at[r][v] = hn::MulAdd(scalar, x[v], at[r][v]);
      }
    }
  }

  // += A B over `depth`: scalar (r, p) at a[r * row + p * col], row p of B at
  // b + p * ldb.
  HWY_INLINE void AddProduct(const float* HWY_RESTRICT a, int64_t row,
                             int64_t col, const float* HWY_RESTRICT b,
                             int64_t ldb, int64_t depth) {
    for (int64_t p = 0; p < depth; ++p) {
      AddOuter(a, row, b);
      a += col;
      b += ldb;
    }
  }
  // The same; `pause` is called after every 8 rows of B.
  template <class F>
  HWY_INLINE void AddProduct(const float* HWY_RESTRICT a, int64_t row,
                             int64_t col, const float* HWY_RESTRICT b,
                             int64_t ldb, int64_t depth, const F& pause) {
    while (depth >= 8) {
      AddProduct(a, row, col, b, ldb, 8);
      a += 8 * col;
      b += 8 * ldb;
      depth -= 8;
      pause();
    }
    AddProduct(a, row, col, b, ldb, depth);
  }

  // += lower triangle: row r takes depth p <= r only, so that what is after
  // the diagonal is never touched, not even by a product with zero.
  template <int kFrom = 0>
  HWY_INLINE void AddLower(const float* HWY_RESTRICT a, int64_t row,
                           int64_t col, const float* HWY_RESTRICT b,
                           int64_t ldb) {
    if constexpr (kFrom < kRows) {
      AddOuter<kFrom>(a + kFrom * col, row, b + kFrom * ldb);
      AddLower<kFrom + 1>(a, row, col, b, ldb);
    }
  }

  // += upper triangle: row r takes depth p >= r only.
  template <int kFrom = 0>
  HWY_INLINE void AddUpper(const float* HWY_RESTRICT a, int64_t row,
                           int64_t col, const float* HWY_RESTRICT b,
                           int64_t ldb) {
    if constexpr (kFrom < kRows) {
      AddFirst<kFrom + 1>(a + kFrom * col, row, b + kFrom * ldb);
      AddUpper<kFrom + 1>(a, row, col, b, ldb);
    }
  }

 private:
  // Rows [0, kLast) += a[r * row] * b.
  template <int kLast>
  HWY_INLINE void AddFirst(const float* HWY_RESTRICT a, int64_t row,
                           const float* HWY_RESTRICT b) {
    const DF d;
    VF x[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) x[v] = hn::LoadU(d, b + v * kLanes);
    HWY_UNROLL(16)
    for (int r = 0; r < kLast; ++r) {
      const VF scalar = hn::Set(d, a[r * row]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        at[r][v] = hn::MulAdd(scalar, x[v], at[r][v]);
      }
    }
  }
};

template <int kRows>
using RowCount = std::integral_constant<int, kRows>;

// f(RowCount, first_row) over row tiles of kTileRows and of 4 that cover
// [0, rows) exactly, rows a multiple of 4.
template <class F>
HWY_INLINE void ForRowTiles(int64_t rows, const F& f) {
  // Tiles of 6 go in pairs, or the rest would not be a multiple of 4.
  constexpr int kPair = kTileRows % 4 == 0 ? 1 : 2;
  int64_t i = 0;
  for (; i + kPair * kTileRows <= rows; i += kPair * kTileRows) {
    f(RowCount<kTileRows>(), i);
    if (kPair == 2) f(RowCount<kTileRows>(), i + kTileRows);
  }
  for (; i < rows; i += 4) f(RowCount<4>(), i);
}

// f(VectorCount, first_column) over column panels of [0, columns), columns a
// multiple of 16: pairs of vectors, a single one at the end when that is odd.
template <class F>
HWY_INLINE void ForPanels(int64_t columns, const F& f) {
  int64_t j = 0;
  for (; j + kPanel <= columns; j += kPanel) f(RowCount<2>(), j);
  if (j < columns) f(RowCount<1>(), j);
}

#if HWY_TARGET <= HWY_AVX3
// 16 x 16: 32-bit and 64-bit interleaving inside 128-bit lanes, then lanes.
HWY_INLINE void TransposeBlock(const float* HWY_RESTRICT from, int64_t ld_from,
                               float* HWY_RESTRICT to, int64_t ld_to) {
  __m512 a[16], b[16];
  HWY_UNROLL(16)
  for (int r = 0; r < 16; ++r) a[r] = _mm512_loadu_ps(from + r * ld_from);
  HWY_UNROLL(8)
  for (int r = 0; r < 16; r += 2) {
    b[r] = _mm512_unpacklo_ps(a[r], a[r + 1]);
    b[r + 1] = _mm512_unpackhi_ps(a[r], a[r + 1]);
  }
  HWY_UNROLL(4)
  for (int r = 0; r < 16; r += 4) {
    const __m512d x0 = _mm512_castps_pd(b[r]), x1 = _mm512_castps_pd(b[r + 1]);
    const __m512d y0 = _mm512_castps_pd(b[r + 2]);
    const __m512d y1 = _mm512_castps_pd(b[r + 3]);
    a[r] = _mm512_castpd_ps(_mm512_unpacklo_pd(x0, y0));
    a[r + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x0, y0));
    a[r + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(x1, y1));
    a[r + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(x1, y1));
  }
  // Lane l of a[4 g + c] holds column 4 l + c of rows 4 g to 4 g + 3.
  HWY_UNROLL(4)
  for (int c = 0; c < 4; ++c) {
    const __m512 even01 = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88);
    const __m512 odd01 = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xDD);
    const __m512 even23 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
    const __m512 odd23 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xDD);
    _mm512_storeu_ps(to + c * ld_to,
                     _mm512_shuffle_f32x4(even01, even23, 0x88));
    _mm512_storeu_ps(to + (4 + c) * ld_to,
                     _mm512_shuffle_f32x4(odd01, odd23, 0x88));
    _mm512_storeu_ps(to + (8 + c) * ld_to,
                     _mm512_shuffle_f32x4(even01, even23, 0xDD));
    _mm512_storeu_ps(to + (12 + c) * ld_to,
                     _mm512_shuffle_f32x4(odd01, odd23, 0xDD));
  }
}
constexpr int64_t kTransposeBlock = 16;
#else
// 4 x 4 in 128-bit vectors, on every other target.
HWY_INLINE void TransposeBlock(const float* HWY_RESTRICT from, int64_t ld_from,
                               float* HWY_RESTRICT to, int64_t ld_to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t c = 0; c < 4; ++c) to[c * ld_to + r] = from[r * ld_from + c];
  }
#else
  const hn::Simd<float, 4, 0> d;
  const hn::Repartition<uint64_t, decltype(d)> d64;
  const auto a0 = hn::LoadU(d, from);
  const auto a1 = hn::LoadU(d, from + ld_from);
  const auto a2 = hn::LoadU(d, from + 2 * ld_from);
  const auto a3 = hn::LoadU(d, from + 3 * ld_from);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, a0, a1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, a2, a3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, a0, a1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, a2, a3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d,
             to + ld_to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d,
             to + 2 * ld_to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d,
             to + 3 * ld_to);
#endif
}
constexpr int64_t kTransposeBlock = 4;
#endif

// to[c, r] = from[r, c] for rows x cols, both multiples of 16.
HWY_MAYBE_UNUSED static HWY_NOINLINE void Transpose(
    const float* HWY_RESTRICT from, int64_t ld_from, int64_t rows, int64_t cols,
    float* HWY_RESTRICT to, int64_t ld_to) {
  for (int64_t r = 0; r < rows; r += kTransposeBlock) {
    for (int64_t c = 0; c < cols; c += kTransposeBlock) {
      TransposeBlock(from + r * ld_from + c, ld_from, to + c * ld_to + r,
                     ld_to);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
