// A panel times 2 to kFewRows rows, which takes about as long as reading it
// once where the panel comes from memory. The tiles of a block of inputs fetch
// the next block evenly: what one tile asked for at once would stall it.

#if defined(TARN_KERNELS_MATMUL_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_FEW_ROWS_INL_H_
#undef TARN_KERNELS_MATMUL_FEW_ROWS_INL_H_
#else
#define TARN_KERNELS_MATMUL_FEW_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/matmul/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

constexpr int64_t kFewRows = 12;
// Inputs of a block: 16 KiB of float32, which stay in L1 beside the next rows.
constexpr int64_t kFewDepth = 64;

// `step` bytes at each input, in kPrefetches lines.
template <int kPrefetches>
struct EvenFetch {
  const char* next;
  int64_t step;

  HWY_INLINE void AtInput() {
    HWY_UNROLL(4)
    for (int line = 0; line < kPrefetches; ++line) {
      __builtin_prefetch(next + line * kLine, 0, 2);
    }
    next += step;
  }
  void Pass(int64_t depth) { next += depth * step; }
};

// Vectors of a tile of some rows, and tiles over the width of a panel.
constexpr int FewVectors(int rows) {
  const int want = kManyRegisters || rows <= 3 ? 4 : 2;
  return static_cast<int>(std::min<int64_t>(want, kPanel / kLanes));
}
constexpr int FewTiles(int rows) {
  return static_cast<int>(kPanel / kLanes) / FewVectors(rows);
}

// Rows of two tiles, kSecond possibly 0. c [rows, kPanel] += x times the panel.
// The last block fetches as many bytes at `next`, if there is anything.
template <int kFirst, int kSecond, class Loader>
HWY_NOINLINE void FewTilesOf(const float* x, int64_t x_stride,
                             const Loader& panel, int64_t inputs,
                             int64_t columns, const void* next, float* c) {
  constexpr int kTiles =
      FewTiles(kFirst) + (kSecond > 0 ? FewTiles(std::max(kSecond, 1)) : 0);
  constexpr int64_t kInputBytes = Loader::kLines * kLine;
  constexpr int kPrefetches =
      static_cast<int>((kInputBytes / kTiles + kLine - 1) / kLine);
  for (int64_t k = 0; k < inputs; k += kFewDepth) {
    const int64_t depth = std::min(kFewDepth, inputs - k);
    const Loader block = panel.From(k, 0);
    const void* after = block.From(depth, 0).Address();
    if (k + depth == inputs) after = next != nullptr ? next : block.Address();
    EvenFetch<kPrefetches> fetch = {static_cast<const char*>(after),
                                    kInputBytes / kTiles};
    TileRow<kFirst, FewVectors(kFirst)>(x + k, x_stride, block, depth, columns,
                                        c, fetch);
    if constexpr (kSecond > 0) {
      TileRow<kSecond, FewVectors(kSecond)>(x + k + kFirst * x_stride, x_stride,
                                            block, depth, columns,
                                            c + kFirst * kPanel, fetch);
    }
  }
}

template <class Loader>
HWY_INLINE void MultiplyFew(const float* x, int64_t x_stride, int64_t rows,
                            const Loader& panel, int64_t inputs,
                            int64_t columns, const void* next, float* c) {
  switch (rows) {
#define TARN_FEW_ROWS(first, second)                                         \
  case first + second:                                                       \
    FewTilesOf<first, second>(x, x_stride, panel, inputs, columns, next, c); \
    break;
    TARN_FEW_ROWS(2, 0)
    TARN_FEW_ROWS(3, 0)
    TARN_FEW_ROWS(4, 0)
    TARN_FEW_ROWS(5, 0)
    TARN_FEW_ROWS(6, 0)
    TARN_FEW_ROWS(4, 3)
    TARN_FEW_ROWS(4, 4)
    TARN_FEW_ROWS(5, 4)
    TARN_FEW_ROWS(5, 5)
    TARN_FEW_ROWS(6, 5)
    TARN_FEW_ROWS(6, 6)
#undef TARN_FEW_ROWS
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_FEW_ROWS_INL_H_
