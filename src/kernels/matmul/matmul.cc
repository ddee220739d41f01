// Register tiles over packed panels. For one panel and up to kRowChunk rows a
// tile of results lives on the stack (12 KiB); blocks of kDepth inputs follow
// each other, so that the part of the panel in use (32 KiB) stays in L1 while
// all rows meet it. Stopping a chain at a block's end and resuming it later
// changes no bit.
//
// Weights come from memory once per product. While a block is in use, the tiles
// fetch the next one into L2, about one line per input: panels lie one behind
// the other, so that there is always a next one. A single row runs through the
// panel at the speed of memory and prefetches kAhead bytes ahead of itself.
#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"
#include "kernels/rows-inl.h"

#ifndef TARN_MATMUL_ONCE
#define TARN_MATMUL_ONCE
namespace tarn {
// Some panels times some rows: one piece of a product.
struct PanelTask {
  const float* x;
  int64_t x_stride;
  const PackedMatrix* w;
  const OutputRows* y;
  int64_t row_begin, row_end;
  int64_t panel_begin, panel_end;
  MatMulFinish finish;
};
constexpr int64_t kRowChunk = 48;  // a multiple of every tile height
constexpr int64_t kDepth = 128;
// Distance in bytes between a single row's weights and those it prefetches:
// memory answers within some 2 KiB of its stream, and huge pages let the
// prefetch reach further.
constexpr int64_t kAhead = 4096;
constexpr int64_t kLine = 64;  // bytes of a cache line
}  // namespace tarn
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

// Accumulators of the tallest tile: 24 of 32 registers, or 12 of 16.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr bool kManyRegisters = true;
#else
constexpr bool kManyRegisters = false;
#endif

// Weights to fetch before they are needed, `lines` of them at each input. A
// tile takes it by value, which keeps it in registers, and calls Pass after.
struct Fetch {
  const char* next;
  int lines;     // at each input
  int64_t left;  // lines that are not fetched yet

  void Pass(int64_t depth) {
    next += depth * lines * kLine;
    left -= depth * lines;
    if (left <= 0) lines = 0;
  }
};

// c[r, v] += sum over `depth` inputs of x[r, k] * panel[k, v], in order of k.
// x: kRows rows; panel: `depth` rows of kPanel; c: kRows rows, kPanel apart.
// kLocality of the fetches: 3 for L1, 2 for L2.
template <int kRows, int kVectors, int kLocality, typename T>
HWY_INLINE void Tile(const float* HWY_RESTRICT x, int64_t x_stride,
                     const T* HWY_RESTRICT panel, int64_t depth,
                     float* HWY_RESTRICT c, Fetch fetch) {
  const DF d;
  constexpr DType kType = sizeof(T) == 4 ? DType::kF32 : DType::kBF16;
  VF acc[kRows][kVectors];
  HWY_UNROLL(12)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = hn::LoadU(d, c + r * kPanel + v * kLanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int line = 0; line < fetch.lines; ++line, fetch.next += kLine) {
      __builtin_prefetch(fetch.next, 0, kLocality);
    }
    VF w[kVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      w[v] = LoadVector<kType>(d, panel + k * kPanel + v * kLanes);
    }
    HWY_UNROLL(12)
    for (int r = 0; r < kRows; ++r) {
      const VF broadcast = hn::Set(d, x[r * x_stride + k]);
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        acc[r][v] = hn::MulAdd(broadcast, w[v], acc[r][v]);
      }
    }
  }
  HWY_UNROLL(12)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(acc[r][v], d, c + r * kPanel + v * kLanes);
    }
  }
}

// kRows rows, the first `columns` columns of the panel (rounded up to tiles).
template <int kRows, int kWantVectors, int kLocality, typename T>
HWY_INLINE void TileRow(const float* x, int64_t x_stride, const T* panel,
                        int64_t depth, int64_t columns, float* c,
                        Fetch& fetch) {
  constexpr int kVectors =
      static_cast<int>(std::min<int64_t>(kWantVectors, kPanel / kLanes));
  for (int64_t j = 0; j < columns; j += kVectors * kLanes) {
    Tile<kRows, kVectors, kLocality>(x, x_stride, panel + j, depth, c + j,
                                     fetch);
    fetch.Pass(depth);
  }
}

// All rows of a chunk (two or more) against one block of inputs.
template <typename T>
HWY_INLINE void RowTiles(const float* x, int64_t x_stride, int64_t rows,
                         const T* panel, int64_t depth, int64_t columns,
                         float* c, Fetch fetch) {
  constexpr int kRows = 6;
  constexpr int kWide = kManyRegisters ? 4 : 2;
  int64_t r = 0;
  const auto from = [&](int64_t at) { return x + at * x_stride; };
  for (; r + kRows <= rows; r += kRows) {
    TileRow<kRows, kWide, 2>(from(r), x_stride, panel, depth, columns,
                             c + r * kPanel, fetch);
  }
  for (; r + 4 <= rows; r += 4) {
    TileRow<4, kWide, 2>(from(r), x_stride, panel, depth, columns,
                         c + r * kPanel, fetch);
  }
  for (; r + 2 <= rows; r += 2) {
    TileRow<2, 4, 2>(from(r), x_stride, panel, depth, columns, c + r * kPanel,
                     fetch);
  }
  if (r < rows) {
    TileRow<1, 8, 2>(from(r), x_stride, panel, depth, columns, c + r * kPanel,
                     fetch);
  }
}

// The fetch of what follows a block, spread over the tiles of `rows` rows.
template <typename T>
HWY_INLINE Fetch NextBlock(const T* block, int64_t depth, int64_t rows) {
  const int lines = static_cast<int>(kPanel * sizeof(T) / kLine);
  const bool many = rows >= 6 * lines;
  return {reinterpret_cast<const char*>(block + depth * kPanel),
          many ? 1 : lines, depth * lines};
}

static void WidenBlock(const uint16_t* from, int64_t count, float* to) {
  const DF d;
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::Store(LoadVector<DType::kBF16>(d, from + i), d, to + i);
  }
}

// c [rows, kPanel] += x times one panel, block by block.
template <typename T>
HWY_INLINE void MultiplyBlocks(const float* x, int64_t x_stride, int64_t rows,
                               const T* panel, int64_t inputs, int64_t columns,
                               float* c) {
  // bf16 is widened once per block if several tiles use it: the products then
  // have the vector units to themselves.
  constexpr int64_t kWidenFrom = 7;
  HWY_ALIGN float wide[sizeof(T) == 2 ? kDepth * kPanel : 1];
  for (int64_t k = 0; k < inputs; k += kDepth) {
    const int64_t depth = std::min(kDepth, inputs - k);
    const T* block = panel + k * kPanel;
    const Fetch fetch = NextBlock(block, depth, rows);
    if constexpr (sizeof(T) == 2) {
      if (rows >= kWidenFrom) {
        WidenBlock(block, depth * kPanel, wide);
        RowTiles(x + k, x_stride, rows, wide, depth, columns, c, fetch);
        continue;
      }
    }
    RowTiles(x + k, x_stride, rows, block, depth, columns, c, fetch);
  }
}

// Turns the product in c [kPanel] into what is to be stored at y.
HWY_INLINE void FinishRow(MatMulFinish finish, int64_t columns, const float* y,
                          float* c) {
  switch (finish) {
    case MatMulFinish::kStore:
      break;
    case MatMulFinish::kRelu:
      TransformRow(c, kPanel, c, [](VF v) HWY_ATTR { return ReluOf(v); });
      break;
    case MatMulFinish::kGelu:
      TransformRow(c, kPanel, c, [](VF v) HWY_ATTR { return GeluOf(v); });
      break;
    case MatMulFinish::kAdd:
      for (int64_t i = 0; i < columns; ++i) c[i] = y[i] + c[i];
      break;
    case MatMulFinish::kSwiglu:
      CombineRows(c, y, columns, c, [](VF gate, VF up) HWY_ATTR {
        return hn::Mul(SiluOf(gate), up);
      });
      break;
  }
}

// One panel times rows [begin, begin + rows), rows <= kRowChunk.
template <typename T>
HWY_INLINE void MultiplyChunk(const PanelTask& task, int64_t p, int64_t begin,
                              int64_t rows) {
  HWY_ALIGN float c[kRowChunk * kPanel];  // [rows, kPanel]
  const PackedMatrix& w = *task.w;
  const int64_t columns = std::min(kPanel, w.outputs() - p * kPanel);
  const T* panel = reinterpret_cast<const T*>(w.Panel(p));
  const float* x = task.x + begin * task.x_stride;
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(c + r * kPanel, w.bias() + p * kPanel, kPanel * sizeof(float));
  }
  if (rows == 1) {
    const int lines = static_cast<int>(kPanel * sizeof(T) / kLine);
    Fetch fetch{reinterpret_cast<const char*>(panel) + kAhead, lines,
                w.inputs() * lines};
    TileRow<1, 8, 3>(x, task.x_stride, panel, w.inputs(), columns, c, fetch);
  } else {
    MultiplyBlocks(x, task.x_stride, rows, panel, w.inputs(), columns, c);
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* row = c + r * kPanel;
    float* y = task.y->Row(begin + r) + p * kPanel;
    FinishRow(task.finish, columns, y, row);
    std::memcpy(y, row, static_cast<size_t>(columns) * sizeof(float));
  }
}

static void MultiplyPanels(const PanelTask& task) {
  for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
    for (int64_t r = task.row_begin; r < task.row_end; r += kRowChunk) {
      const int64_t rows = std::min(kRowChunk, task.row_end - r);
      if (task.w->dtype() == DType::kF32) {
        MultiplyChunk<float>(task, p, r, rows);
      } else {
        MultiplyChunk<uint16_t>(task, p, r, rows);
      }
    }
  }
}

// One row through a range of panels. The last kAhead bytes of each panel
// prefetch the first of the next one, or those at `next`: memory is never idle.
template <typename T>
HWY_INLINE void MultiplyRow(const RowPanels& task) {
  HWY_ALIGN float c[kPanel];
  const PackedMatrix& w = *task.w;
  constexpr int64_t kBytes = kPanel * sizeof(T);  // of an input's weights
  constexpr int kLines = static_cast<int>(kBytes / kLine);
  const int64_t tail = std::min(kAhead / kBytes, w.inputs());
  const int64_t depth = w.inputs() - tail;
  for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
    const int64_t columns = std::min(kPanel, w.outputs() - p * kPanel);
    const T* panel = reinterpret_cast<const T*>(w.Panel(p));
    const void* next = p + 1 < task.panel_end ? w.Panel(p + 1) : task.next;
    std::memcpy(c, w.bias() + p * kPanel, sizeof(c));
    Fetch own{reinterpret_cast<const char*>(panel) + kAhead, kLines,
              depth * kLines};
    TileRow<1, 8, 3>(task.x, 0, panel, depth, columns, c, own);
    Fetch after{static_cast<const char*>(next), next == nullptr ? 0 : kLines,
                tail * kLines};
    TileRow<1, 8, 3>(task.x + depth, 0, panel + depth * kPanel, tail, columns,
                     c, after);
    const float* residual =
        task.residual == nullptr ? nullptr : task.residual + p * kPanel;
    FinishRow(task.finish, columns, residual, c);
    std::memcpy(task.y + p * kPanel, c,
                static_cast<size_t>(columns) * sizeof(float));
  }
}

static void MultiplyRowPanels(const RowPanels& task) {
  if (task.w->dtype() == DType::kF32) {
    MultiplyRow<float>(task);
  } else {
    MultiplyRow<uint16_t>(task);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(MultiplyPanels);
HWY_EXPORT(MultiplyRowPanels);

namespace {

// Below about 20 us, waking workers costs more than it saves: 256 KiB of
// weights from memory, or 1.6 million multiply-adds.
bool IsSmall(int64_t rows, const PackedMatrix& w) {
  return w.bytes() < 262144 &&
         static_cast<double>(rows) * w.outputs() * w.inputs() < 1.6e6;
}

}  // namespace

void PackedMatMul(const float* x, int64_t x_stride, int64_t rows,
                  const PackedMatrix& w, const OutputRows& y,
                  Executor& executor, MatMulFinish finish) {
  if (rows < 0) {
    throw ShapeError("PackedMatMul: rows", ">= 0", StrCat(rows));
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(MultiplyPanels);
  const int64_t panels = w.panels();
  // More rows are cut on one thread too, so that an executor can stop between.
  if ((executor.width() == 1 && rows <= 1) || IsSmall(rows, w)) {
    kernel({x, x_stride, &w, &y, 0, rows, 0, panels, finish});
    return;
  }
  // Small pieces let all workers end together (the pool hands out many at once
  // while many are left); rows are cut as well if panels are few.
  const int64_t width = executor.width();
  const int64_t panel_groups = std::min(panels, 16 * width);
  const int64_t row_chunk =
      panels >= 4 * width ? std::max<int64_t>(rows, 1) : kRowChunk;
  const int64_t row_groups = (rows + row_chunk - 1) / row_chunk;
  executor.ParallelFor(panel_groups * row_groups, [&](int64_t task, int) {
    const int64_t group = task / row_groups, row = task % row_groups;
    kernel({x, x_stride, &w, &y, row * row_chunk,
            std::min(rows, (row + 1) * row_chunk),
            group * panels / panel_groups, (group + 1) * panels / panel_groups,
            finish});
  });
}

void PackedRowMatMul(const RowPanels& panels) {
  HWY_DYNAMIC_DISPATCH(MultiplyRowPanels)(panels);
}

void FetchMemory(const void* from, int64_t bytes) {
  if (from == nullptr) return;
  const char* line = static_cast<const char*>(from);
  for (int64_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(line + i, 0, 2);
  }
}

}  // namespace tarn
#endif  // HWY_ONCE
