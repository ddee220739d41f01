// The triangular systems of the delta rule, 16 tokens wide, by substitution in
// registers: no inverse is formed, so betas of 0 and 2 are exact.

#if defined(TARN_KERNELS_RECURRENCE_SOLVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_SOLVE_INL_H_
#undef TARN_KERNELS_RECURRENCE_SOLVE_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_SOLVE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// tile += strictly lower part of `a` times the tile itself, row by row: solves
// (I - A) x = tile. Scalar (r, p) at a[r * row + p * col].
template <int kFrom, int kRows, int kVectors>
HWY_INLINE void SolveLower(const float* a, int64_t row, int64_t col,
                           Tile<kRows, kVectors>& tile) {
  if constexpr (kFrom + 1 < kRows) {
    HWY_UNROLL(8)
    for (int r = kFrom + 1; r < kRows; ++r) {
      const VF scalar = hn::Set(DF(), a[r * row + kFrom * col]);
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) {
        tile.at[r][v] = hn::MulAdd(scalar, tile.at[kFrom][v], tile.at[r][v]);
      }
    }
    SolveLower<kFrom + 1>(a, row, col, tile);
  }
}

// The same with the strictly upper part: solves from the last row up.
template <int kFrom, int kRows, int kVectors>
HWY_INLINE void SolveUpper(const float* a, int64_t row, int64_t col,
                           Tile<kRows, kVectors>& tile) {
  if constexpr (kFrom > 0) {
    HWY_UNROLL(8)
    for (int r = 0; r < kFrom; ++r) {
      const VF scalar = hn::Set(DF(), a[r * row + kFrom * col]);
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) {
        tile.at[r][v] = hn::MulAdd(scalar, tile.at[kFrom][v], tile.at[r][v]);
      }
    }
    SolveUpper<kFrom - 1>(a, row, col, tile);
  }
}

// f(RowCount, first_row) over the row tiles of a block of 16, last to first.
template <class F>
HWY_INLINE void ForRowTilesDown(const F& f) {
  constexpr int64_t C = kRecurrentChunk;
  constexpr int64_t kWhole = C / kTileRows * kTileRows;
  if constexpr (kWhole < C) f(RowCount<static_cast<int>(C - kWhole)>(), kWhole);
  for (int64_t i = kWhole; i > 0; i -= kTileRows) {
    f(RowCount<kTileRows>(), i - kTileRows);
  }
}

// Rows of U = Diag(beta) R into `values`, R into `residuals`, for the columns
// of one panel, with (I + X Diag(beta)) R = V - Pt S. `solve`: -X Diag(beta) by
// rows over keys.
template <int kVectors>
HWY_INLINE void SolveResiduals(const ChunkParts& at, int64_t d_key,
                               bool reads_state, const float* panel, int64_t v,
                               float* w, RowPrefetcher& prefetch) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  ForRowTiles(C, [&](auto m, int64_t i) HWY_ATTR {
    constexpr int kRows = decltype(m)::value;
    Tile<kRows, kVectors> tile;
    tile.Load(w + at.values + i * at.value + v, at.value);
    if (reads_state) {
      tile.AddProduct(w + at.past_keys_t + i, 1, C, panel, kPanel, d_key,
                      [&]() HWY_ATTR { prefetch.Next(); });
    }
    const float* solve = w + at.solve + i;
    float* residuals = w + at.residuals + v;
    tile.AddProduct(solve, 1, C, residuals, at.value, i);
    SolveLower<0>(solve + i * C, 1, C, tile);
    tile.Store(residuals + i * at.value, at.value);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const VF beta = hn::Set(d, w[at.betas + i + r]);
      HWY_UNROLL(2)
      for (int c = 0; c < kVectors; ++c) {
        hn::StoreU(hn::Mul(tile.at[r][c], beta), d,
                   w + at.values + (i + r) * at.value + v + c * kLanes);
      }
    }
  });
}

// solve by rows over keys *= betas of the keys.
HWY_INLINE void ScaleByBetas(const ChunkParts& at, float* w) {
  ScaleRows(w + at.solve, kRecurrentChunk, w + at.betas);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
