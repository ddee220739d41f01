// Small float32 matrix products on padded scratch, in registers.
//
// One shape serves every product of chunked attention: C[m, n] (+)= A B with A
// read one scalar at a time (any strides, so A may be a transpose) and rows of
// B read as vectors. Each element of C is one chain of multiply-adds along k in
// index order, whatever the tile it falls into, so results do not depend on
// how columns were split.

#if defined(TARN_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_TILE_INL_H_
#undef TARN_KERNELS_TILE_INL_H_
#else
#define TARN_KERNELS_TILE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A matrix whose entry (i, k) is data[i * row + k * col].
struct Strided {
  const float* data;
  int64_t row, col;
};

// kRows x kVectors accumulators; b rows are ldb apart, c rows ldc.
template <int kRows, int kVectors>
HWY_INLINE void Tile(Strided a, const float* HWY_RESTRICT b, int64_t ldb,
                     float* HWY_RESTRICT c, int64_t ldc, int64_t k,
                     bool accumulate) {
  const DF d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  VF acc[kRows][kVectors];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] =
          accumulate ? hn::LoadU(d, c + r * ldc + v * kLanes) : hn::Zero(d);
    }
  }
  for (int64_t p = 0; p < k; ++p) {
    VF row[kVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      row[v] = hn::LoadU(d, b + p * ldb + v * kLanes);
    }
    const float* column = a.data + p * a.col;
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const VF x = hn::Set(d, column[r * a.row]);
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        acc[r][v] = hn::MulAdd(x, row[v], acc[r][v]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(acc[r][v], d, c + r * ldc + v * kLanes);
    }
  }
}

// Accumulators: 16 of 32 registers (AVX-512, NEON), 12 of 16 elsewhere.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 6;
#endif

template <int kVectors>
HWY_INLINE void TileColumn(Strided a, const float* b, int64_t ldb, float* c,
                           int64_t ldc, int64_t m, int64_t k, bool accumulate) {
  int64_t i = 0;
  const auto rest = [&](int64_t at) HWY_ATTR {
    return Strided{a.data + at * a.row, a.row, a.col};
  };
  for (; i + kTileRows <= m; i += kTileRows) {
    Tile<kTileRows, kVectors>(rest(i), b, ldb, c + i * ldc, ldc, k, accumulate);
  }
  for (; i + 4 <= m; i += 4) {
    Tile<4, kVectors>(rest(i), b, ldb, c + i * ldc, ldc, k, accumulate);
  }
  for (; i + 2 <= m; i += 2) {
    Tile<2, kVectors>(rest(i), b, ldb, c + i * ldc, ldc, k, accumulate);
  }
  if (i < m) {
    Tile<1, kVectors>(rest(i), b, ldb, c + i * ldc, ldc, k, accumulate);
  }
}

// C[m, n] (+)= A[m, k] B[k, n]; n is a multiple of kRowPad.
HWY_MAYBE_UNUSED static HWY_NOINLINE void MatMul(const Strided& a,
                                                 const float* b, int64_t ldb,
                                                 float* c, int64_t ldc,
                                                 int64_t m, int64_t n,
                                                 int64_t k, bool accumulate) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  int64_t j = 0;
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    TileColumn<2>(a, b + j, ldb, c + j, ldc, m, k, accumulate);
  }
  if (j < n) TileColumn<1>(a, b + j, ldb, c + j, ldc, m, k, accumulate);
}

// to[c, r] = from[r, c] for a rows x cols block, both multiples of 4.
HWY_MAYBE_UNUSED static HWY_NOINLINE void Transpose(
    const float* HWY_RESTRICT from, int64_t ld_from, int64_t rows, int64_t cols,
    float* HWY_RESTRICT to, int64_t ld_to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      to[c * ld_to + r] = from[r * ld_from + c];
    }
  }
#else
  const hn::Simd<float, 4, 0> d;
  const hn::Repartition<uint64_t, decltype(d)> d64;
  for (int64_t r = 0; r < rows; r += 4) {
    for (int64_t c = 0; c < cols; c += 4) {
      const float* p = from + r * ld_from + c;
      const auto a0 = hn::LoadU(d, p);
      const auto a1 = hn::LoadU(d, p + ld_from);
      const auto a2 = hn::LoadU(d, p + 2 * ld_from);
      const auto a3 = hn::LoadU(d, p + 3 * ld_from);
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, a0, a1));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, a2, a3));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, a0, a1));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, a2, a3));
      float* q = to + c * ld_to + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, q);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d,
                 q + ld_to);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d,
                 q + 2 * ld_to);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d,
                 q + 3 * ld_to);
    }
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
