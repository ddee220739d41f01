// Masked scores of a chunk: products of rows with rows, lanes over tokens.

#if defined(TARN_KERNELS_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_SCORES_INL_H_
#undef TARN_KERNELS_SCORES_INL_H_
#else
#define TARN_KERNELS_SCORES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Tokens of a block of scores. Chunks are whole blocks; lanes of scores run
// over the tokens of one block.
constexpr int64_t kBlock = 16;
constexpr int kBlockVectors = static_cast<int>(kBlock / kLanes);

// Rows of a tile of scores, whose lanes run over a block of tokens.
#if HWY_TARGET <= HWY_AVX3
constexpr int kScoreRows = 16;
#elif HWY_ARCH_ARM || HWY_TARGET <= HWY_AVX2
constexpr int kScoreRows = 4;
#else
constexpr int kScoreRows = 2;
#endif

// Which half of scores is kept; the diagonal is in both.
enum class Half { kLaneNotBefore, kLaneNotAfter };

// c[x, y] = a_x . b_y + row_add[x] + lane_add[y] for the tokens y >= x
// (kLaneNotBefore: y are queries) or y <= x (kLaneNotAfter: y are keys). Within
// diagonal blocks the other entries are zero (selected, so a NaN there is
// removed); blocks of the other half are not written. a [rows, kWidth] dense,
// b_t = B^T [width, chunk]. kWidth: a's row stride when it is known, else 0.
// Null terms are left out.
struct ScoreArgs {
  const float* a;
  int64_t a_stride;
  const float* b_t;
  int64_t chunk, rows, lanes, width;
  const float* row_add;
  const float* lane_add;
  float* c;
};

template <Half kHalf, int kWidth>
HWY_INLINE void ScoreTile(const ScoreArgs& s, int64_t x, int64_t y) {
  const DF d;
  const int64_t stride = kWidth == 0 ? s.a_stride : kWidth;
  Tile<kScoreRows, kBlockVectors> tile;
  tile.Clear();
  tile.AddProduct(s.a + x * stride, stride, 1, s.b_t + y, s.chunk, s.width);
  HWY_UNROLL(16)
  for (int r = 0; r < kScoreRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kBlockVectors; ++v) {
      VF score = tile.at[r][v];
      if (s.row_add != nullptr) {
        score = hn::Add(score, hn::Set(d, s.row_add[x + r]));
      }
      if (s.lane_add != nullptr) {
        score = hn::Add(score, hn::LoadU(d, s.lane_add + y + v * kLanes));
      }
      const int64_t to_diagonal = x + r - y - v * kLanes;
      if (kHalf == Half::kLaneNotBefore) {
        const auto hidden = hn::FirstN(
            d,
            static_cast<size_t>(std::clamp<int64_t>(to_diagonal, 0, kLanes)));
        score = hn::IfThenZeroElse(hidden, score);
      } else {
        const auto kept = hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(
                                            to_diagonal + 1, 0, kLanes)));
        score = hn::IfThenElseZero(kept, score);
      }
      hn::StoreU(score, d, s.c + (x + r) * s.chunk + y + v * kLanes);
    }
  }
}

template <Half kHalf, int kWidth>
HWY_INLINE void ScoreBlocks(const ScoreArgs& s) {
  for (int64_t y = 0; y < s.lanes; y += kBlock) {
    const int64_t begin = kHalf == Half::kLaneNotBefore ? 0 : y;
    const int64_t end =
        kHalf == Half::kLaneNotBefore ? std::min(y + kBlock, s.rows) : s.rows;
    for (int64_t x = begin; x < end; x += kScoreRows) {
      ScoreTile<kHalf, kWidth>(s, x, y);
    }
  }
}

template <Half kHalf>
HWY_MAYBE_UNUSED static HWY_NOINLINE void Scores(const ScoreArgs& s) {
  switch (s.a_stride) {
    case 32:
      return ScoreBlocks<kHalf, 32>(s);
    case 64:
      return ScoreBlocks<kHalf, 64>(s);
    case 128:
      return ScoreBlocks<kHalf, 128>(s);
    default:
      return ScoreBlocks<kHalf, 0>(s);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
