// Register tiles over packed panels. For one panel and up to kRowChunk rows a
// tile of results is on the stack (12 KiB); blocks of kDepth inputs follow
// each other, so that the part of the panel in use (32 KiB) stays in L1 while
// all rows meet it. Stopping a chain at a block's end and resuming it later
// changes no bit.
//
// Weights come from memory once per product. While a block is in use, the tiles
// fetch the next one into L2, evenly: there is always a next one, since panels
// are stored one after the other. A few rows go through smaller blocks
// (few_rows-inl.h). A single row runs through the panel at the speed of memory
// and prefetches kAhead bytes ahead of itself.
//
// The format of the weights is a panel loader, a small value that is copied:
//   kLines                cache lines of one input's weights, rounded up
//   kIsFloat              whether the panel holds float32; other formats are
//                         widened once per block if many rows use it
//   Loader(w, p)          of a whole panel of a matrix
//   From(input, output)   the same, `input` inputs and `output` outputs on
//   Address()             where the weights of the current input begin
//   Load(d, input, output)  one vector of weights of that input as float32
// Load is all arithmetic that a format has, so a row has the same bits alone
// and among others in every format.

#if defined(TARN_KERNELS_MATMUL_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_PRODUCT_INL_H_
#undef TARN_KERNELS_MATMUL_PRODUCT_INL_H_
#else
#define TARN_KERNELS_MATMUL_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/matmul/few_rows-inl.h"
#include "kernels/matmul/finish-inl.h"
#include "kernels/matmul/panel_task.h"
#include "kernels/matmul/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// All rows of a chunk (two or more) against one block of inputs.
template <class Loader>
HWY_INLINE void RowTiles(const float* x, int64_t x_stride, int64_t rows,
                         const Loader& panel, int64_t depth, int64_t columns,
                         float* c, EvenFetch<1> fetch) {
  constexpr int kRows = 6;
  constexpr int kWide = kManyRegisters ? 4 : 2;
  int64_t r = 0;
  const auto from = [&](int64_t at) { return x + at * x_stride; };
  for (; r + kRows <= rows; r += kRows) {
    TileRow<kRows, kWide>(from(r), x_stride, panel, depth, columns,
                          c + r * kPanel, fetch);
  }
  for (; r + 4 <= rows; r += 4) {
    TileRow<4, kWide>(from(r), x_stride, panel, depth, columns, c + r * kPanel,
                      fetch);
  }
  for (; r + 2 <= rows; r += 2) {
    TileRow<2, 4>(from(r), x_stride, panel, depth, columns, c + r * kPanel,
                  fetch);
  }
  if (r < rows) {
    TileRow<1, 8>(from(r), x_stride, panel, depth, columns, c + r * kPanel,
                  fetch);
  }
}

// The fetch of what follows a block, spread over the tiles of `rows` rows.
template <class Loader>
HWY_INLINE EvenFetch<1> NextBlock(const Loader& block, int64_t depth,
                                  int64_t rows) {
  const int64_t tiles = rows * (kPanel / kLanes) / (kManyRegisters ? 24 : 12);
  return {static_cast<const char*>(block.From(depth, 0).Address()),
          Loader::kLines * kLine / std::max<int64_t>(tiles, Loader::kLines)};
}

template <class Loader>
HWY_NOINLINE void WidenBlock(const Loader& block, int64_t depth, float* to) {
  const DF d;
  for (int64_t k = 0; k < depth; ++k, to += kPanel) {
    for (int64_t v = 0; v < kPanel; v += kLanes) {
      hn::Store(block.Load(d, k, v), d, to + v);
    }
  }
}

// c [rows, kPanel] += x times one panel, block by block.
template <class Loader>
HWY_INLINE void MultiplyBlocks(const float* x, int64_t x_stride, int64_t rows,
                               const Loader& panel, int64_t inputs,
                               int64_t columns, float* c) {
  // Other formats are widened once per block if several tiles use it: the
  // products then have the vector units to themselves.
  constexpr int64_t kWidenFrom = 7;
  HWY_ALIGN float wide[Loader::kIsFloat ? 1 : kDepth * kPanel];
  for (int64_t k = 0; k < inputs; k += kDepth) {
    const int64_t depth = std::min(kDepth, inputs - k);
    const Loader block = panel.From(k, 0);
    const EvenFetch<1> fetch = NextBlock(block, depth, rows);
    if constexpr (!Loader::kIsFloat) {
      if (rows >= kWidenFrom) {
        WidenBlock(block, depth, wide);
        RowTiles(x + k, x_stride, rows, FloatPanel(wide), depth, columns, c,
                 fetch);
        continue;
      }
    }
    RowTiles(x + k, x_stride, rows, block, depth, columns, c, fetch);
  }
}

// c [kPanel] += one row times one panel. Not inlined: among the tiles of many
// rows its loop would not keep its pointers in registers.
template <class Loader>
HWY_NOINLINE void MultiplySingle(const float* x, const Loader& panel,
                                 int64_t inputs, int64_t columns, float* c) {
  constexpr int kLines = static_cast<int>(Loader::kLines);
  Fetch<3> fetch{static_cast<const char*>(panel.Address()) + kAhead, kLines,
                 inputs * kLines};
  TileRow<1, 8>(x, 0, panel, inputs, columns, c, fetch);
}

// One panel times rows [begin, begin + rows), rows <= kRowChunk.
template <class Loader>
HWY_INLINE void MultiplyChunk(const PanelTask& task, int64_t p, int64_t begin,
                              int64_t rows) {
  HWY_ALIGN float c[kRowChunk * kPanel];  // [rows, kPanel]
  const WeightMatrix& w = *task.w;
  const int64_t columns = w.Outputs(p);
  const Loader panel(w, p);
  const float* x = task.x + begin * task.x_stride;
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(c + r * kPanel, w.Bias(p), kPanel * sizeof(float));
  }
  if (rows == 1) {
    MultiplySingle(x, panel, w.inputs(), columns, c);
  } else if (rows <= kFewRows) {
    const void* next = p + 1 < task.panel_end ? w.Panel(p + 1) : task.next;
    MultiplyFew(x, task.x_stride, rows, panel, w.inputs(), columns, next, c);
  } else {
    MultiplyBlocks(x, task.x_stride, rows, panel, w.inputs(), columns, c);
  }
  FinishRows(task, p, begin, rows, c);
}

template <class Loader>
void MultiplyPanels(const PanelTask& task) {
  for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
    for (int64_t r = task.row_begin; r < task.row_end; r += kRowChunk) {
      MultiplyChunk<Loader>(task, p, r, std::min(kRowChunk, task.row_end - r));
    }
  }
}

// One row through a range of panels. The last kAhead bytes of each panel
// prefetch the first of the next one, or those at `next`: memory is never idle.
template <class Loader>
void MultiplyRow(const RowPanels& task) {
  HWY_ALIGN float c[kPanel];
  const WeightMatrix& w = *task.w;
  constexpr int kLines = static_cast<int>(Loader::kLines);
  const int64_t tail = std::min(kAhead / (kLines * kLine), w.inputs());
  const int64_t depth = w.inputs() - tail;
  for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
    const int64_t columns = w.Outputs(p), first = w.FirstOutput(p);
    const Loader panel(w, p);
    const void* next = p + 1 < task.panel_end ? w.Panel(p + 1) : task.next;
    std::memcpy(c, w.Bias(p), sizeof(c));
    Fetch<3> own{static_cast<const char*>(panel.Address()) + kAhead, kLines,
                 depth * kLines};
    TileRow<1, 8>(task.x, 0, panel, depth, columns, c, own);
    Fetch<3> after{static_cast<const char*>(next), next == nullptr ? 0 : kLines,
                   tail * kLines};
    TileRow<1, 8>(task.x + depth, 0, panel.From(depth, 0), tail, columns, c,
                  after);
    const float* residual =
        task.residual == nullptr ? nullptr : task.residual + first;
    FinishRow(task.finish, columns, residual, c);
    std::memcpy(task.y + first, c,
                static_cast<size_t>(columns) * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_PRODUCT_INL_H_
