// Register tiles over packed panels. For one panel and up to kRowChunk rows a
// tile of results is on the stack (12 KiB); blocks of kDepth inputs follow
// each other, so that the part of the panel in use (32 KiB) stays in L1 while
// all rows meet it. Stopping a chain at a block's end and resuming it later
// changes no bit.
//
// Weights come from memory once per product. While a block is in use, the tiles
// fetch the next one into L2, about one line per input: panels are stored one
// after the other, so that there is always a next one. A single row runs
// through the panel at the speed of memory and prefetches kAhead bytes ahead of
// itself.
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
#include "kernels/activation/activation-inl.h"
#include "kernels/matmul/panel_task.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

constexpr int64_t kPanel = kPanelOutputs;
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

// The loader of float32 panels, and of blocks that were widened.
class FloatPanel {
 public:
  static constexpr int64_t kLines = 4;
  static constexpr bool kIsFloat = true;

  FloatPanel(const WeightMatrix& w, int64_t p)
      : at_(reinterpret_cast<const float*>(w.Panel(p))) {}
  explicit FloatPanel(const float* at) : at_(at) {}
  HWY_INLINE FloatPanel From(int64_t input, int64_t output) const {
    return FloatPanel(at_ + input * kPanel + output);
  }
  HWY_INLINE const void* Address() const { return at_; }
  HWY_INLINE VF Load(DF d, int64_t input, int64_t output) const {
    return hn::LoadU(d, at_ + input * kPanel + output);
  }

 private:
  const float* at_;  // [inputs][kPanel]
};

// c[r, v] += sum over `depth` inputs of x[r, k] * panel[k, v], in order of k.
// x: kRows rows; panel: `depth` inputs; c: kRows rows, kPanel apart.
// kLocality of the fetches: 3 for L1, 2 for L2.
template <int kRows, int kVectors, int kLocality, class Loader>
HWY_INLINE void Tile(const float* HWY_RESTRICT x, int64_t x_stride,
                     const Loader panel, int64_t depth, float* HWY_RESTRICT c,
                     Fetch fetch) {
  const DF d;
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
      w[v] = panel.Load(d, k, v * kLanes);
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
template <int kRows, int kWantVectors, int kLocality, class Loader>
HWY_INLINE void TileRow(const float* x, int64_t x_stride, const Loader& panel,
                        int64_t depth, int64_t columns, float* c,
                        Fetch& fetch) {
  constexpr int kVectors =
      static_cast<int>(std::min<int64_t>(kWantVectors, kPanel / kLanes));
  // A tile as wide as the panel is no loop, which leaves the number of lines to
  // fetch a constant.
  if constexpr (kVectors * kLanes == kPanel) {
    Tile<kRows, kVectors, kLocality>(x, x_stride, panel, depth, c, fetch);
    fetch.Pass(depth);
    return;
  }
  for (int64_t j = 0; j < columns; j += kVectors * kLanes) {
    Tile<kRows, kVectors, kLocality>(x, x_stride, panel.From(0, j), depth,
                                     c + j, fetch);
    fetch.Pass(depth);
  }
}

// All rows of a chunk (two or more) against one block of inputs.
template <class Loader>
HWY_INLINE void RowTiles(const float* x, int64_t x_stride, int64_t rows,
                         const Loader& panel, int64_t depth, int64_t columns,
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
template <class Loader>
HWY_INLINE Fetch NextBlock(const Loader& block, int64_t depth, int64_t rows) {
  constexpr int kLines = static_cast<int>(Loader::kLines);
  const bool many = rows >= 6 * kLines;
  return {static_cast<const char*>(block.From(depth, 0).Address()),
          many ? 1 : kLines, depth * kLines};
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
    const Fetch fetch = NextBlock(block, depth, rows);
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
  Fetch fetch{static_cast<const char*>(panel.Address()) + kAhead, kLines,
              inputs * kLines};
  TileRow<1, 8, 3>(x, 0, panel, inputs, columns, c, fetch);
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
    case MatMulFinish::kGeluTanh:
      TransformRow(c, kPanel, c, [](VF v) HWY_ATTR { return GeluTanhOf(v); });
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
template <class Loader>
HWY_INLINE void MultiplyChunk(const PanelTask& task, int64_t p, int64_t begin,
                              int64_t rows) {
  HWY_ALIGN float c[kRowChunk * kPanel];  // [rows, kPanel]
  const WeightMatrix& w = *task.w;
  const int64_t columns = w.Outputs(p), first = w.FirstOutput(p);
  const Loader panel(w, p);
  const float* x = task.x + begin * task.x_stride;
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(c + r * kPanel, w.Bias(p), kPanel * sizeof(float));
  }
  if (rows == 1) {
    MultiplySingle(x, panel, w.inputs(), columns, c);
  } else {
    MultiplyBlocks(x, task.x_stride, rows, panel, w.inputs(), columns, c);
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* row = c + r * kPanel;
    float* y = task.y->Row(begin + r) + first;
    FinishRow(task.finish, columns, y, row);
    std::memcpy(y, row, static_cast<size_t>(columns) * sizeof(float));
  }
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
    Fetch own{static_cast<const char*>(panel.Address()) + kAhead, kLines,
              depth * kLines};
    TileRow<1, 8, 3>(task.x, 0, panel, depth, columns, c, own);
    Fetch after{static_cast<const char*>(next), next == nullptr ? 0 : kLines,
                tail * kLines};
    TileRow<1, 8, 3>(task.x + depth, 0, panel.From(depth, 0), tail, columns, c,
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
