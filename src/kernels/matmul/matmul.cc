// Register tiles over packed panels. For one panel and up to kRowChunk rows a
// tile of results lives on the stack (12 KiB); blocks of kDepth inputs pass by,
// so that the part of the panel in use (24 KiB) stays in L1 while all rows
// meet it. Stopping a chain at a block's end and going on later changes no bit.
#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
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
};
constexpr int64_t kRowChunk = 48;  // a multiple of every tile height
constexpr int64_t kDepth = 96;
}  // namespace tarn
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

// Accumulators of the tall tile: 24 of 32 registers, or 12 of 16. A bf16 panel
// pays for widening once a tile, so its tile is taller and narrower.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr bool kManyRegisters = true;
#else
constexpr bool kManyRegisters = false;
#endif

// c[r, v] += sum over `depth` inputs of x[r, k] * panel[k, v], in order of k.
// x: kRows rows; panel: `depth` rows of kPanel; c: kRows rows, kPanel apart.
template <int kRows, int kVectors, typename T>
HWY_INLINE void Tile(const float* HWY_RESTRICT x, int64_t x_stride,
                     const T* HWY_RESTRICT panel, int64_t depth,
                     float* HWY_RESTRICT c) {
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
template <int kRows, int kWantVectors, typename T>
HWY_INLINE void TileRow(const float* x, int64_t x_stride, const T* panel,
                        int64_t depth, int64_t columns, float* c) {
  constexpr int kVectors =
      static_cast<int>(std::min<int64_t>(kWantVectors, kPanel / kLanes));
  for (int64_t j = 0; j < columns; j += kVectors * kLanes) {
    Tile<kRows, kVectors>(x, x_stride, panel + j, depth, c + j);
  }
}

// All rows of a chunk against one block of inputs.
template <typename T>
HWY_INLINE void RowTiles(const float* x, int64_t x_stride, int64_t rows,
                         const T* panel, int64_t depth, int64_t columns,
                         float* c) {
  constexpr bool kTall = kManyRegisters && sizeof(T) == 2;
  constexpr int kRows = kTall ? 12 : 6;
  constexpr int kWide = kManyRegisters ? 4 : 2;
  int64_t r = 0;
  const auto from = [&](int64_t at) { return x + at * x_stride; };
  for (; r + kRows <= rows; r += kRows) {
    TileRow<kRows, kTall ? 2 : kWide>(from(r), x_stride, panel, depth, columns,
                                      c + r * kPanel);
  }
  for (; r + 4 <= rows; r += 4) {
    TileRow<4, kWide>(from(r), x_stride, panel, depth, columns, c + r * kPanel);
  }
  for (; r + 2 <= rows; r += 2) {
    TileRow<2, 4>(from(r), x_stride, panel, depth, columns, c + r * kPanel);
  }
  if (r < rows) {
    TileRow<1, 8>(from(r), x_stride, panel, depth, columns, c + r * kPanel);
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
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(c + r * kPanel, w.bias() + p * kPanel, kPanel * sizeof(float));
  }
  // A single row meets each weight once: blocks would only interrupt it.
  const int64_t block = rows == 1 ? w.inputs() : kDepth;
  for (int64_t k = 0; k < w.inputs(); k += block) {
    RowTiles<T>(task.x + begin * task.x_stride + k, task.x_stride, rows,
                panel + k * kPanel, std::min(block, w.inputs() - k), columns,
                c);
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(task.y->Row(begin + r) + p * kPanel, c + r * kPanel,
                static_cast<size_t>(columns) * sizeof(float));
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

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(MultiplyPanels);

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
                  Executor& executor) {
  if (rows < 0) {
    throw ShapeError("PackedMatMul: rows", ">= 0", StrCat(rows));
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(MultiplyPanels);
  const int64_t panels = w.panels();
  if (executor.width() == 1 || IsSmall(rows, w)) {
    kernel({x, x_stride, &w, &y, 0, rows, 0, panels});
    return;
  }
  // Four pieces for each worker even out a busy machine; rows are cut as well
  // where panels are few.
  const int64_t pieces = 4 * static_cast<int64_t>(executor.width());
  const int64_t panel_groups = std::min(panels, pieces);
  const int64_t row_chunk =
      panels >= pieces ? std::max<int64_t>(rows, 1) : kRowChunk;
  const int64_t row_groups = (rows + row_chunk - 1) / row_chunk;
  executor.ParallelFor(panel_groups * row_groups, [&](int64_t task, int) {
    const int64_t group = task / row_groups, row = task % row_groups;
    kernel({x, x_stride, &w, &y, row * row_chunk,
            std::min(rows, (row + 1) * row_chunk),
            group * panels / panel_groups,
            (group + 1) * panels / panel_groups});
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
