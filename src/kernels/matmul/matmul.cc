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

using Segment = WeightMatrix::Segment;

// How the panels of one format and the rows of inputs are cut.
struct Cut {
  int64_t panel_groups, row_groups, row_chunk;
  int64_t tasks() const { return panel_groups * row_groups; }
};

// Small pieces let all workers end together (the pool hands out many at once
// while many are left); rows are cut as well if panels are few.
Cut CutOf(const Segment& s, int64_t rows, int64_t width) {
  const int64_t together = s.format->panels_together;
  const int64_t chunks = (rows + kRowChunk - 1) / kRowChunk;
  const int64_t groups = (s.panels + together - 1) / together;
  if (together > 1 && chunks > 1) {
    // As few panel groups as leave eight pieces for each worker.
    return {std::min(groups, std::max<int64_t>(1, 8 * width / chunks)), chunks,
            kRowChunk};
  }
  Cut cut = {std::min(s.panels, 16 * width), 1, std::max<int64_t>(rows, 1)};
  if (together > 1 && rows > 1) {
    cut.panel_groups = std::max(groups, std::min(s.panels, 4 * width));
  }
  if (cut.panel_groups < 4 * width) {
    cut.row_chunk = kRowChunk;
    cut.row_groups = chunks;
  }
  return cut;
}

}  // namespace

void PackedMatMul(const float* x, int64_t x_stride, int64_t rows,
                  const WeightMatrix& w, const OutputRows& y,
                  Executor& executor, MatMulFinish finish) {
  if (rows < 0) {
    throw ShapeError("PackedMatMul: rows", ">= 0", StrCat(rows));
  }
  // More rows are cut on one thread too, so that an executor can stop between.
  if ((executor.width() == 1 && rows <= 1) || IsSmall(rows, w)) {
    for (const Segment& s : w.segments()) {
      s.format->multiply(
          {x, x_stride, &w, &y, 0, rows, s.panel, s.panel + s.panels, finish});
    }
    return;
  }
  const int64_t width = executor.width();
  int64_t tasks = 0;
  for (const Segment& s : w.segments()) tasks += CutOf(s, rows, width).tasks();
  executor.ParallelFor(tasks, [&](int64_t task, int) {
    const Segment* s = w.segments().data();
    Cut cut = CutOf(*s, rows, width);
    while (task >= cut.tasks()) {
      task -= cut.tasks();
      cut = CutOf(*++s, rows, width);
    }
    const int64_t group = task / cut.row_groups, row = task % cut.row_groups;
    const auto panel = [&](int64_t i) {
      return s->panel + i * s->panels / cut.panel_groups;
    };
    s->format->multiply({x, x_stride, &w, &y, row * cut.row_chunk,
                         std::min(rows, (row + 1) * cut.row_chunk),
                         panel(group), panel(group + 1), finish});
  });
}

void PackedPanelMatMul(const float* x, int64_t x_stride, int64_t rows,
                       const WeightMatrix& w, int64_t panel_begin,
                       int64_t panel_end, const OutputRows& y,
                       MatMulFinish finish, const void* next) {
  for (const Segment& s : w.segments()) {
    const int64_t begin = std::max(panel_begin, s.panel);
    const int64_t end = std::min(panel_end, s.panel + s.panels);
    if (begin >= end) continue;
    s.format->multiply({x, x_stride, &w, &y, 0, rows, begin, end, finish,
                        end < panel_end ? w.Panel(end) : next});
  }
}

void PackedRowMatMul(const RowPanels& panels) {
  for (const Segment& s : panels.w->segments()) {
    RowPanels own = panels;
    own.panel_begin = std::max(panels.panel_begin, s.panel);
    own.panel_end = std::min(panels.panel_end, s.panel + s.panels);
    if (own.panel_begin >= own.panel_end) continue;
    if (own.panel_end < panels.panel_end) {
      own.next = panels.w->Panel(own.panel_end);
    }
    s.format->multiply_row(own);
  }
}

void FetchMemory(const void* from, int64_t bytes) {
  if (from == nullptr) return;
  const char* line = static_cast<const char*>(from);
  for (int64_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(line + i, 0, 2);
  }
}

}  // namespace tarn
