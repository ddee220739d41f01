// A product is cut into pieces here; the format of the weights computes them.
#include "kernels/matmul/matmul.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/matmul/panel_task.h"

namespace tarn {
namespace {

// Below about 20 us, waking workers costs more than it saves: 256 KiB of
// weights from memory, or 1.6 million multiply-adds.
bool IsSmall(int64_t rows, const WeightMatrix& w) {
  return w.bytes() < 262144 &&
         static_cast<double>(rows) * w.outputs() * w.inputs() < 1.6e6;
}

}  // namespace

void PackedMatMul(const float* x, int64_t x_stride, int64_t rows,
                  const WeightMatrix& w, const OutputRows& y,
                  Executor& executor, MatMulFinish finish) {
  if (rows < 0) {
    throw ShapeError("PackedMatMul: rows", ">= 0", StrCat(rows));
  }
  const auto kernel = w.format().multiply;
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
  panels.w->format().multiply_row(panels);
}

void FetchMemory(const void* from, int64_t bytes) {
  if (from == nullptr) return;
  const char* line = static_cast<const char*>(from);
  for (int64_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(line + i, 0, 2);
  }
}

}  // namespace tarn
